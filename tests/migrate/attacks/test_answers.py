"""What the user's code leaves as an answer may be anything: every kind is read in bounded time and size, and is a value."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import SandboxError
from headrace.migrate.proving import sandbox as sandbox_module
from headrace.migrate.proving.sandbox import Sandbox, read_left, read_left_arrays, read_left_json
from headrace.migrate.proving.trace_transform import _answer
from headrace.migrate.proving.verify import read_losses, read_record, read_slice
from headrace.migrate.proving.worker_protocol import (
    Failed,
    Inspect,
    Inspected,
    ModelPackaged,
    Package,
    ParityResult,
    decode,
    encode,
)
from headrace.migrate.reading.recipe import Recipe
from headrace.migrate.stages.worker_client import ask, class_names, package

RECIPE = Recipe(root="/r", script="s.py", source="", expression="model")
INSPECT = Inspect(recipe=RECIPE)
PACKAGE = Package(recipe=RECIPE, name="net", out="", input=(3, 8, 8))
PARITY = ParityResult(
    status="passed", max_abs=0.0, top1_agreement=1.0, decision_agreement=None, cosine=None, batches=(1,), why=None
)


def answering(tmp_path: Path, leave: Callable[[Path], object]) -> Sandbox:
    """A sandbox whose worker leaves what `leave` makes of the path of its response."""

    def server(request: Path, response: Path, on_line: Callable[[str], None]) -> str | None:
        leave(response)
        return None

    return Sandbox(scratch=tmp_path, server=server)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


LEFT = {
    "a pipe": os.mkfifo,
    "a folder": os.mkdir,
    "a device by a link": lambda path: path.symlink_to("/dev/zero"),
    "a link to a file": lambda path: path.symlink_to("/etc/passwd"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a terabyte": sparse,
    "nothing in it": lambda path: path.write_bytes(b""),
    "half an answer": lambda path: path.write_text(encode(Failed(stage="build", error="x"))[:-3]),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "endless nesting": lambda path: path.write_text("[" * 200_000),
    "nesting in an answer": lambda path: path.write_text('{"kind":"Failed","stage":"x","error":' + "[" * 90_000),
    "a list": lambda path: path.write_text("[]"),
    "a kind of another type": lambda path: path.write_text('{"kind": ["Failed"]}'),
    "an unknown kind": lambda path: path.write_text('{"kind": "Popen"}'),
    "a request": lambda path: path.write_text(encode(INSPECT)),
    "fields missing": lambda path: path.write_text('{"kind": "Inspected"}'),
    "fields unknown": lambda path: path.write_text('{"kind": "Failed", "stage": "a", "error": "b", "evil": 1}'),
    "other types": lambda path: path.write_text('{"kind": "Failed", "stage": 1, "error": {}}'),
    "no number": lambda path: path.write_text('{"kind": "Failed", "stage": "a", "error": NaN}'),
    "digits without end": lambda path: path.write_text('{"kind": "Inspected", "parameters": ' + "9" * 10_000 + "}"),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("left", LEFT)
def test_an_answer_of_the_worker(tmp_path: Path, left: str) -> None:
    answer = ask(INSPECT, answering(tmp_path, LEFT[left]))
    assert isinstance(answer, Failed)
    assert answer.error.startswith("the worker's answer")
    assert len(answer.error) < 2000


@pytest.mark.timeout(20)
@pytest.mark.parametrize("left", [name for name in LEFT if name not in ("a list", "other types", "no number")])
def test_files_of_json_and_arrays(tmp_path: Path, left: str) -> None:
    LEFT[left](tmp_path / "left")
    for read in (read_left_arrays, read_record, read_losses, read_slice):
        with pytest.raises(SandboxError, match="left"):
            read(tmp_path / "left")
    with pytest.raises(SandboxError, match="left"):
        _answer(tmp_path / "left", 1)


def npz(path: Path, **arrays: object) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)


def bomb(path: Path) -> None:
    """An array of 8 TB by its header, in a few bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
        archive.writestr("s/inputs.npy", b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header + b"\n")


def unpacking(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("s/inputs.npy", bytes(2**20))


ARCHIVES = {
    "objects": lambda path: npz(path, **{"s/inputs": np.array([{}], dtype=object), "s/outputs": np.zeros(1)}),
    "a pickle": lambda path: path.write_bytes(pickle.dumps([1])),
    "texts for numbers": lambda path: npz(path, **{"s/inputs": np.array(["x"]), "s/outputs": np.zeros(1)}),
    "times": lambda path: npz(path, **{"s/inputs": np.zeros(2, "datetime64[s]"), "s/outputs": np.zeros(1)}),
    "classes that are none": lambda path: npz(
        path, **{"s/inputs": np.zeros(1), "s/outputs": np.zeros(1), "s/classes": np.array('{"a": 1}')}
    ),
    "half an archive": lambda path: (npz(path, **{"s/inputs": np.zeros(999)}), path.write_bytes(path.read_bytes()[:700])),
    "a zip of something else": lambda path: zipfile.ZipFile(path, "w").writestr("s/inputs.npy", b"hello"),
    "a header that promises": bomb,
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ARCHIVES)
def test_archives(tmp_path: Path, kind: str) -> None:
    ARCHIVES[kind](tmp_path / "record.npz")
    with pytest.raises(SandboxError, match=r"record\.npz"):
        read_record(tmp_path / "record.npz")


def test_archives_that_unpack_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_module, "ARRAY_BYTES", 2**16)
    unpacking(tmp_path / "record.npz")
    assert (tmp_path / "record.npz").stat().st_size < 2**16
    with pytest.raises(SandboxError, match="unpacks to more"):
        read_left_arrays(tmp_path / "record.npz")


@pytest.mark.parametrize(
    "slice_", [np.array([3, 2]), np.array([0, 2]), np.array([1.0, 2.0]), np.array(["1", "2"]), np.array(1)]
)
def test_slices_of_another_kind(tmp_path: Path, slice_: np.ndarray) -> None:
    npz(tmp_path / "record.npz", **{"/slice": slice_})
    with pytest.raises(SandboxError, match="slice"):
        read_slice(tmp_path / "record.npz")


def test_losses_of_another_kind(tmp_path: Path) -> None:
    npz(tmp_path / "record.npz", **{"s/losses": np.array(["low"])})
    with pytest.raises(SandboxError, match="losses"):
        read_losses(tmp_path / "record.npz")


def test_what_is_in_order_is_read(tmp_path: Path) -> None:
    npz(tmp_path / "record.npz", **{"a.py:3/inputs": np.ones((1, 2)), "a.py:3/outputs": np.ones(1), "b/losses": np.ones(2)})
    assert read_record(tmp_path / "record.npz")["a.py:3"].inputs.shape == (1, 2)
    assert read_losses(tmp_path / "record.npz")["b"].shape == (2,)
    (tmp_path / "x.json").write_text('{"a": [1]}')
    assert read_left_json(tmp_path / "x.json") == {"a": [1]}
    assert read_left(tmp_path / "x.json", most=10) == b'{"a": [1]}'
    with pytest.raises(SandboxError, match="more than"):
        read_left(tmp_path / "x.json", most=9)


def packaged(
    response: Path, changed: Mapping[str, object] | None = None, make: Callable[[Path], object] = lambda models: None
) -> None:
    models = response.parent / "models"
    (models / "net/1").mkdir(parents=True)
    (models / "net/1/model.onnx").write_bytes(b"onnx")
    (models / "net/config.pbtxt").write_text('name: "net"\nbackend: "onnxruntime"\n')
    make(models)
    answer = encode(ModelPackaged(artifact="/etc", parity=PARITY))
    response.write_text(json.dumps(json.loads(answer) | dict(changed or {})))


def moved_away(models: Path) -> None:
    models.rename(models.parent / "elsewhere")
    models.symlink_to(models.parent / "elsewhere")


PACKAGES: dict[str, Callable[[Path], object]] = {
    "a link in it": lambda models: (models / "net/1/x").symlink_to("/etc/passwd"),
    "a pipe in it": lambda models: os.mkfifo(models / "net/1/x"),
    "another model": lambda models: (models / "other").mkdir(),
    "none": lambda models: (models / "net").rename(models.parent / "net"),
    "a link to it": moved_away,
    "a file for it": lambda models: ((models / "net").rename(models.parent / "n"), (models / "net").symlink_to(models.parent)),
}


def in_server(tmp_path: Path, leave: Callable[[Path], object]) -> Sandbox:
    def server(request: Path, response: Path, on_line: Callable[[str], None]) -> str | None:
        (response.parent / "models").rmdir()
        leave(response)
        return None

    return Sandbox(scratch=tmp_path, server=server)


@pytest.mark.parametrize("kind", PACKAGES)
def test_packages(tmp_path: Path, kind: str) -> None:
    sandbox = in_server(tmp_path, lambda response: packaged(response, make=PACKAGES[kind]))
    made = package(PACKAGE, None, sandbox, lambda fraction, text: None, own_outputs=False)
    assert isinstance(made, Failed), made
    assert "no package" in made.error
    assert not (tmp_path / "models/net").exists()


DUEL = {"batch": 1, "chosen": "eager fp32", "eager": [1.0], "graph": [1.0], "others": 0.0}


@pytest.mark.parametrize(
    "changed",
    [
        {"duels": "x"}, {"duels": [3]}, {"duels": [{"batch": 1}]},
        {"duels": [{**DUEL, "others": "a"}]},
        {"duels": [{**DUEL, "eager": ["a"]}]}, {"duels": [{**DUEL, "graph": 3}]}, {"duels": [{**DUEL, "more": 3}]},
    ],
)  # fmt: skip
def test_duels(tmp_path: Path, changed: Mapping[str, object]) -> None:
    sandbox = in_server(tmp_path, lambda response: packaged(response, changed))
    assert isinstance(package(PACKAGE, None, sandbox, lambda fraction, text: None, own_outputs=False), Failed)


def test_a_package_in_order_is_kept_where_nothing_later_reaches_it(tmp_path: Path) -> None:
    sandbox = in_server(tmp_path, packaged)
    assert isinstance(package(PACKAGE, None, sandbox, lambda fraction, text: None, own_outputs=False), ModelPackaged)
    assert (tmp_path / "models/net/1/model.onnx").read_bytes() == b"onnx"


@pytest.mark.parametrize("status", ["excellent", 1, ["passed"], None])
def test_words_that_are_none_of_those_expected(status: object) -> None:
    message = json.loads(encode(ModelPackaged(artifact="a", parity=PARITY)))
    message["parity"]["status"] = status
    with pytest.raises(ValueError, match="message"):
        decode(json.dumps(message))


@pytest.mark.timeout(60)
def test_class_names_in_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    source = "import os, sys, json\nout = json.load(open(sys.argv[-1]))['out'] if len(sys.argv) > 1 else ''\n"
    source = "import glob, os\n[os.mkfifo(folder + '/names.json') for folder in glob.glob('../writable-*')]\nnames = ['a']\n"
    (tmp_path / "repository/s.py").write_text(source)
    recipe = replace(RECIPE, root=str(tmp_path / "repository"), source=source, expression="names")
    with pytest.raises(SandboxError):
        class_names(recipe, Sandbox(scratch=tmp_path, limits=sandbox_module.Limits(timeout=10)))


def test_answers_of_the_expected_kind_still_pass(tmp_path: Path) -> None:
    told = Inspected(class_name="N", factory=None, parameters=1, input=None, candidates=(), classes=2, output="o")
    assert ask(INSPECT, answering(tmp_path, lambda response: response.write_text(encode(told)))) == told
