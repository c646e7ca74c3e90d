"""What the Dockerfiles promise, read from them; `make lint-docker` has hadolint look, `make test-docker` carries them out."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pathspec
import pytest

ROOT = Path(__file__).parents[2]
FILES = {"Dockerfile": ["serve", "cpu", "cuda"], "triton.Dockerfile": ["triton"]}


def final(stages, name):
    """The instructions of a stage and of those that it starts from, in order."""
    (image,) = [value for instruction, value in stages[name] if instruction == "FROM"]
    parent = image.partition(" AS ")[0]
    return (final(stages, parent) if parent in stages else []) + stages[name][1:]


def last(instructions, name):
    return [value for instruction, value in instructions if instruction == name][-1]


@pytest.mark.parametrize("name", FILES)
def test_images_from_elsewhere_are_pinned_by_digest_arguments_that_nobody_made_up(stages, name):
    read = stages(name)
    arguments = dict(value.split("=", 1) for instruction, value in read[""] if instruction == "ARG")
    foreign = [value for stage in read.values() for instruction, value in stage if instruction == "FROM"]
    foreign = [value for value in foreign if value.partition(" AS ")[0] not in read]
    assert len(foreign) == 1
    image, digest = re.fullmatch(r"\$\{(\w+_IMAGE)\}\$\{(\w+_DIGEST):\+@\$\{\2\}\} AS base", foreign[0]).groups()
    assert ":" in arguments[image]
    assert not arguments[image].endswith(":latest")
    assert arguments[digest] == ""


@pytest.mark.parametrize(("name", "stage"), [(name, stage) for name, found in FILES.items() for stage in found])
def test_final_stages_run_as_a_numbered_user_and_build_nothing(stages, name, stage):
    instructions = final(stages(name), stage)
    user, group = last(instructions, "USER").split(":")
    assert int(user) > 0 < int(group)
    ran = " ".join(value for instruction, value in instructions if instruction == "RUN")
    assert not re.search(r"\b(apt-get|apt|pip|gcc|g\+\+|curl|wget)\b", ran)
    copied = [value.split() for instruction, value in instructions if instruction == "COPY"]
    assert all(parts[0].startswith("--from=build") or parts[0] == "docker/health.py" for parts in copied)
    for instruction in ("ENTRYPOINT", "CMD"):
        assert json.loads(last(instructions, instruction)), f"{instruction} is not in exec form"
    options, _, command = last(instructions, "HEALTHCHECK").partition(" CMD ")
    assert json.loads(command)[-1] == "/opt/health.py"
    assert "--start-period=" in options
    assert last(instructions, "STOPSIGNAL") == "SIGTERM"
    assert last(instructions, "EXPOSE").split() == ["8000", "8001", "8002"]


def test_the_command_is_one_that_the_command_line_takes(stages, parse_serve):
    settings = parse_serve(json.loads(last(final(stages("Dockerfile"), "cpu"), "CMD")))
    assert (settings["models"], settings["host"]) == ("/models", "0.0.0.0")


def test_caches_lie_where_the_image_may_write(stages):
    instructions = final(stages("Dockerfile"), "cuda")
    values = dict(re.findall(r"(\w+)=(\S+)", " ".join(value for instruction, value in instructions if instruction == "ENV")))
    caches = {name for name in values if name == "HOME" or "CACHE" in name or name.endswith("CONFIGDIR")}
    assert {"HOME", "HEADRACE_CACHE", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME"} <= caches
    made = " ".join(value for instruction, value in instructions if instruction == "RUN")
    for name in caches:
        assert values[name] == "/tmp" or values[name].startswith("/tmp/") or f"--mode=1777 {values[name]}" in made, name


def test_the_context_is_what_the_wheel_and_the_images_are_made_of():
    """Nothing else is sent to the engine: no model, no test, no key that lies about."""
    spec = pathspec.PathSpec.from_lines("gitignore", (ROOT / ".dockerignore").read_text().splitlines())
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    files = {name for name in listed if name and (ROOT / name).is_file()}
    left = {name for name in files if not spec.match_file(name)}
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    parts = {package.split(".")[1] for package in packages if "." in package}
    package = {name for name in files if name.split("/")[0] in parts or ("/" not in name and name.endswith(".py"))}
    beside = {"py.typed", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"}
    locks = {f"docker/locks/{path.name}" for path in (ROOT / "docker" / "locks").glob("*.txt")}
    assert {Path(name).stem for name in locks} == {"build", "cpu", "cuda", "serve", "triton"}
    copied = {"docker/install.sh", "docker/health.py", *locks}
    assert left == package | beside | copied
    assert spec.match_file("serving/__pycache__/x.pyc")
    assert spec.match_file("tokens.toml")


def install(*arguments, cwd):
    script = ROOT / "docker" / "install.sh"
    return subprocess.run(["sh", script, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False)


def test_install_says_how_it_is_used(tmp_path):
    for arguments in ((), ("wheels", "cpu"), ("venv", "cpu", tmp_path), ("cpu", "wheels", "x")):
        ended = install(*arguments, cwd=tmp_path)
        assert ended.returncode == 2
        assert "install.sh wheels EXTRA WHEELS" in ended.stderr


def test_install_names_what_is_missing(tmp_path):
    ended = install("wheels", "cpu", tmp_path / "wheels", cwd=tmp_path)
    assert (ended.returncode, "run it in a checkout of headrace" in ended.stderr) == (2, True)
    ended = install("venv", "cpu", tmp_path / "wheels", tmp_path / "venv", cwd=tmp_path)
    assert (ended.returncode, f"run 'install.sh wheels cpu {tmp_path}/wheels' first" in ended.stderr) == (2, True)


def test_the_environment_takes_wheels_from_the_folder_alone(tmp_path):
    """Not from the network, whatever pip's settings say: a folder without headrace's wheel is an error."""
    (tmp_path / "wheels").mkdir()
    environment = {**os.environ, "PYTHON": sys.executable, "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    ended = subprocess.run(
        ["sh", ROOT / "docker" / "install.sh", "venv", "cpu", tmp_path / "wheels", tmp_path / "venv"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode != 0
    assert "No matching distribution found for headrace[cpu]" in ended.stderr
    assert "127.0.0.1" not in ended.stderr
