"""What each extra brings, and what is said where it is not installed."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, MissingExtraError
from headrace.extras import LIBRARIES, require

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Distributions whose package is called otherwise.
PACKAGES = {
    "grpcio": "grpc",
    "grpcio-health-checking": "grpc_health",
    "grpcio-reflection": "grpc_reflection",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry.exporter",
    "opentelemetry-sdk": "opentelemetry.sdk",
    "pillow": "PIL",
    "prometheus-client": "prometheus_client",
    "protobuf": "google.protobuf",
    "python-multipart": "multipart",
    "spdl-core": "spdl",
}
# They run models, or make things faster where they are: nothing fails without them.
OPTIONAL = {"onnxruntime", "onnxruntime-gpu", "openvino", "cykooz-resizer", "simplejpeg", "fastapi-offline"}
# fsspec is for addresses of stores alone.
OPTIONAL_OF = {"classify": {"fsspec"}}


def distributions(extra):
    """The names in an extra, with those of the extras of our own that it consists of."""
    found = set()
    for line in PROJECT["optional-dependencies"][extra]:
        name, parts = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", line).groups()
        if name == "headrace":
            found = found.union(*map(distributions, parts.split(",")))
        else:
            found.add(name)
    return found


def lacking(*modules):
    """A program that begins as where these are not installed."""
    return f"import sys\nsys.modules.update(dict.fromkeys({modules!r}))\n"


@pytest.mark.parametrize("extra", LIBRARIES)
def test_an_extra_brings_what_is_looked_for(extra):
    names = distributions(extra) - OPTIONAL - OPTIONAL_OF.get(extra, set())
    expected = {PACKAGES.get(name, name) for name in names}
    base = {re.match(r"[\w-]+", line)[0] for line in PROJECT["dependencies"]}
    brought_by_serve = set(LIBRARIES["serve"]) if extra == "bench" else set()
    assert set(LIBRARIES[extra]) == expected - brought_by_serve | (base & set(LIBRARIES[extra]))


def test_everything_is_in_the_extras_for_a_machine():
    parts = set(LIBRARIES) - {"classify", "ray", "telemetry"}
    for machine in ("cpu", "cuda"):
        assert set().union(*map(distributions, parts)) - OPTIONAL <= distributions(machine)
    assert not {"onnxruntime", "onnxruntime-gpu"} <= distributions("cuda"), "they lie in the same folder"


def test_serving_needs_no_torch_and_no_compiler():
    heavy = {"torch", "matplotlib", "onnx", "onnxscript", "openvino", "tritonclient", "triton"}
    assert not heavy & distributions("serve")
    assert {re.match(r"[\w-]+", line)[0] for line in PROJECT["dependencies"]} == {"psutil", "rich", "typer"}


@pytest.mark.parametrize(
    ("arguments", "modules", "extra"),
    [
        (["serve", "models"], ["fastapi"], "serve"),
        (["serve", "models", "--trace-otlp", "http://localhost:4318"], ["uvicorn"], "serve"),
        (["migrate", "repository"], ["torch"], "migrate"),
        (["run", "script.py"], ["torch"], "migrate"),
        (["compile", "model.py:Net"], ["onnxscript"], "migrate"),
        (["tune", "models/net"], ["torch"], "migrate"),
        (["bench", "models"], ["matplotlib"], "bench"),
        (["bench", "models"], ["fastapi"], "serve"),
        (["bench", "models", "--baseline", "repository"], ["torch"], "migrate"),
        (["bench", "repository"], ["torch"], "migrate"),
        (["classify", "photos", "--model", "models", "--out", "out"], ["spdl"], "classify"),
        (["classify", "photos", "--model", "models", "--out", "out"], ["numpy"], "serve"),
        (["triton", "lint", "models"], ["onnx"], "migrate"),
        (["verify", "http://localhost/predict", "--against", "models"], ["PIL"], "serve"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_a_command_names_the_extra_that_it_lacks(warm_commands, tmp_path, arguments, modules, extra):
    program = f"{lacking(*modules)}\nsys.argv = ['headrace', *{arguments!r}]\nfrom headrace.cli import main\nmain()"
    done = warm_commands.python(["-c", program], cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"needs the extra {extra}: pip install 'headrace[{extra}]'" in line
    assert modules[0] in line


def test_names_of_the_package_name_their_extra():
    code = lacking("torch") + "import headrace\nfor name in ('compile', 'Graph'):\n    try: getattr(headrace, name)\n"
    code += "    except headrace.errors.MissingExtraError as error: print(error)\n"
    code += "try: headrace.migrate('repository')\nexcept headrace.errors.MissingExtraError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    assert [line.partition(" needs")[0] for line in said] == ["headrace.compile", "headrace.Graph", "headrace.migrate"]
    assert all("pip install 'headrace[migrate]'" in line for line in said)


def test_what_is_installed_is_not_asked_for():
    require("this test", "serve", "migrate", "bench")
    assert issubclass(MissingExtraError, HeadraceError)


def test_what_pyproject_says_of_python_is_one_thing():
    versions = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)}
    assert min(versions) in PROJECT["requires-python"]
    assert {"authors", "urls"} <= set(PROJECT)
    assert importlib.metadata.metadata("headrace")["Name"] == "headrace"
