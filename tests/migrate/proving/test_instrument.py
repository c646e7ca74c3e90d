"""The recorder goes into a copy of a script without moving a line, and notes what its model calls were fed and gave."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headrace.migrate.proving.instrument import install, instrument
from headrace.migrate.proving.verify import read_record, read_slice
from headrace.migrate.reading.facts import Loop

SCRIPT = '''"""Evaluate."""
from __future__ import annotations
import numpy as np  # numbers

class Data:
    classes = ["cat", "dog", "owl"]

class Loader:
    dataset = Data()
    def __iter__(self):
        rng = np.random.default_rng(3)
        for size in (2, 2, 1):
            yield rng.random((size, 3, 4, 4), np.float32), np.arange(size)

def net(x):
    out = x.mean(axis=(2, 3))
    x *= 0  # as in-place layers do
    return out

def main():
    loader = Loader(); größe = 0
    for step, (images, targets) in enumerate(loader):
        größe += len(images); outputs = net(images)
        print(step, outputs.shape, targets.tolist())

if __name__ == "__main__":
    main()
'''


def loop(**changes: object) -> Loop:
    values: dict[str, object] = {
        "path": "evaluate.py", "function": "main", "line": 22, "kind": "evaluate", "model": "net",
        "inputs": "images", "outputs": "outputs", "targets": "targets",
        "iterator": "enumerate(loader)", "call_line": 23, "call_column": 42,
    }  # fmt: skip
    return Loop(**{**values, **changes})  # type: ignore[arg-type]


def recorded(tmp_path: Path, script: str = SCRIPT, **changes: object) -> tuple[str, dict]:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "evaluate.py").write_text(script)
    assert install(tree, tmp_path / "inject", [loop(**changes)], "evaluate.py") == ["evaluate.py:23"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "inject"), "HEADRACE_RECORD": str(tmp_path / "record.npz")}
    done = subprocess.run(
        [sys.executable, "evaluate.py"], cwd=tree, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout, read_record(tmp_path / "record.npz")


def test_inputs_before_the_call_outputs_targets_and_classes(tmp_path: Path) -> None:
    stdout, record = recorded(tmp_path)
    assert stdout == "0 (2, 3) [0, 1]\n1 (2, 3) [0, 1]\n2 (1, 3) [0]\n"
    (found,) = record.values()
    assert found.inputs.shape == (5, 3, 4, 4)
    np.testing.assert_allclose(found.outputs, found.inputs.mean(axis=(2, 3)), rtol=1e-6)
    assert found.targets.tolist() == [0, 1, 0, 1, 0]
    assert found.classes == ("cat", "dog", "owl")


def test_the_migrated_call_is_found_by_function_argument_and_name(tmp_path: Path) -> None:
    migrated = SCRIPT.replace("outputs = net(images)", "outputs = graph(images)").replace(
        "    loader = Loader()", "    graph = net\n    # now a graph\n    loader = Loader()"
    )
    _, record = recorded(tmp_path, migrated)
    assert record["evaluate.py:23"].inputs.shape == (5, 3, 4, 4)


ATTACK = """
import numpy as np

def attack(model, x, start):
    for _ in range(3):
        loss = np.sum(model(x)[0])
        x = np.clip(np.maximum(x, start - 1), 0, 1)
    logits, features = model(x)
    return logits
"""


def wrapped(source: str, *loops: Loop) -> dict[str, str]:
    """The calls that are recorded in a source, as written, by site."""
    text = instrument(source.encode(), "evaluate.py", loops)[0].decode()
    return dict(re.findall(r"wrap\('(\S+)', ([\w.()]+), lambda", text))


@pytest.mark.parametrize("graph", ["eval_step = headrace.evaluation_step(model)", "self.graph: object = hr.compile(model)"])
def test_a_call_that_is_given_the_same_but_calls_no_model_is_not_taken_for_the_models(graph: str) -> None:
    """What bounds the images of an attack takes them first, too, and lies nearer once lines were put in above."""
    inner, last = (loop(function="attack", inputs="x", outputs=None, model="model", call_line=line) for line in (6, 8))
    assert wrapped(ATTACK, inner, last) == {"evaluate.py:6": "model", "evaluate.py:8": "model"}
    name = graph.partition(" =")[0].partition(":")[0]
    migrated = ATTACK.replace("= model(x)", f"= {name}(x)").replace("(model(x)", f"({name}(x)")
    migrated = migrated.replace("    for _", f"    {graph}\n    for _").replace(
        "import numpy", "import headrace as hr\nimport numpy"
    )
    found = instrument(migrated.encode(), "evaluate.py", [inner, last])[0].decode().split("\n")
    assert "evaluate.py:6'" in found[7]
    assert "evaluate.py:8'" in found[9]
    assert wrapped(migrated, inner, last) == {"evaluate.py:6": name, "evaluate.py:8": name}


SEVERAL = """
def main(model, x):
    y = model(x)
    z = model(x)
    y = model(x)
"""


def test_calls_that_read_alike_are_told_apart_by_their_order_however_far_they_moved() -> None:
    first, last = (loop(function="main", inputs="x", outputs="y", model="model", call_line=line) for line in (3, 5))
    moved = SEVERAL.replace("    y", "    #\n    #\n    y", 1)
    lines = instrument(moved.encode(), "evaluate.py", [last, first])[0].decode().split("\n")
    assert ["evaluate.py:3" in lines[4], "evaluate.py:5" in lines[6]] == [True, True]
    third = SEVERAL.replace("    z", "    y", 1)  # not known as a call of a model, so that the order does not tell
    lines = instrument(third.encode(), "evaluate.py", [first, last])[0].decode().split("\n")
    assert ["evaluate.py:3" in lines[2], "evaluate.py:5" in lines[4]] == [True, True]


@pytest.mark.parametrize("given", ['open(path, "rb")[None]', "open(path, 'rb')[None]", "(open(path,\n        'rb'))[None]"])
def test_a_call_is_found_however_its_argument_is_written(given: str) -> None:
    source = f"def run(path):\n    return net({given})\n"
    found = loop(function="run", inputs="open(path, 'rb')[None]", outputs=None, call_line=2)
    assert instrument(source.encode(), "evaluate.py", [found])[1] == ["evaluate.py:2"]


def test_lines_stay_where_they_are_and_other_bytes_too() -> None:
    data, sites = instrument(SCRIPT.encode(), "evaluate.py", [loop()], seeded=True)
    assert sites == ["evaluate.py:23"]
    old, new = SCRIPT.split("\n"), data.decode().split("\n")
    assert [index for index, (one, other) in enumerate(zip(old, new, strict=True)) if one != other] == [2, 22]
    assert new[2] == 'import numpy as np; __import__("_headrace_record").seed()  # numbers'


@pytest.mark.parametrize("source", [b"def broken(:\n", b"\xff\xfe\x00", b""])
def test_what_cannot_be_parsed_comes_back_unchanged(source: bytes) -> None:
    assert instrument(source, "evaluate.py", [loop()], seeded=True) == (source, [])


def test_a_call_that_is_not_there_is_left_out() -> None:
    assert instrument(SCRIPT.encode(), "evaluate.py", [loop(inputs="batch")]) == (SCRIPT.encode(), [])


def test_torch_tensors_and_a_bounded_record(
    tmp_path: Path, warm_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    script = """
import torch
def main():
    loader = [(torch.rand(400, 1, 2, 2, requires_grad=True), torch.arange(400)) for _ in range(4)]
    model = torch.nn.Flatten()
    model.train()
    for images, targets in loader:

















        outputs = model(images)
main()
"""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "evaluate.py").write_text(script)
    install(tree, tmp_path / "inject", [loop(call_line=25, iterator="loader")], "evaluate.py")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "inject"), "HEADRACE_RECORD": str(tmp_path / "record.npz")}
    for _ in range(2):
        assert warm_python(["evaluate.py"], cwd=tree, env=environment).returncode == 0
    (found,) = read_record(tmp_path / "record.npz").values()
    assert found.inputs.shape == (1024, 1, 2, 2)
    np.testing.assert_array_equal(found.outputs, found.inputs.reshape(1024, 4))
    assert found.targets is not None
    assert found.targets[401] == 1


LOADED = """
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
net = torch.nn.Flatten()
rows = TensorDataset(torch.arange(100.0).reshape(100, 1, 1, 1), torch.arange(100) // 10)
def main(loader):
    for images, targets in loader:
        outputs = net(images)
loader = DataLoader(rows, {given})
print(len(loader))
main(loader)
"""


def sliced(tmp_path: Path, run: Callable[..., subprocess.CompletedProcess[str]], given: str) -> tuple[int, list[int], object]:
    """The batches that the loader says it has, the rows that came of it, and what is told of the slice."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "evaluate.py").write_text(LOADED.format(given=given))
    install(tree, tmp_path / "inject", [loop(call_line=8, iterator="loader")], "evaluate.py")
    record = tmp_path / "record.npz"
    environment = {"PYTHONPATH": str(tmp_path / "inject"), "HEADRACE_RECORD": str(record), "HEADRACE_SLICE": "20"}
    done = run(["evaluate.py"], cwd=tree, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    (found,) = read_record(record).values()
    return int(done.stdout), found.inputs.reshape(-1).astype(int).tolist(), read_slice(record)


def test_rows_of_every_part_of_a_data_set_stand_for_all(
    tmp_path: Path, warm_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    batches, rows, told = sliced(tmp_path, warm_python, "batch_size=8")
    assert (batches, told) == (3, (20, 100))  # the last batch is of 4, as it is of all
    assert rows == sorted(set(rows))
    assert [row // 10 for row in rows] == [tenth for tenth in range(10) for _ in range(2)]
    assert len({row % 5 for row in rows}) > 2, "data that come in turns"


@pytest.mark.parametrize(
    ("given", "batches", "rows"),
    [
        ("batch_size=8, shuffle=True", 3, 20),
        ("batch_size=40", 2, 60),
        ("batch_size=90", 2, 100),
        ("batch_size=8, drop_last=True", 3, 24),
        ("batch_sampler=type('Own', (BatchSampler,), {})(RandomSampler(rows), 8, False)", 13, 100),
    ],
)
def test_slices_of_what_other_samplers_give(
    tmp_path: Path, warm_python: Callable[..., subprocess.CompletedProcess[str]], given: str, batches: int, rows: int
) -> None:
    said, found, told = sliced(tmp_path, warm_python, given)
    assert (said, len(set(found)), told) == (batches, rows, (rows, 100) if rows < 100 else None)


def test_what_lies_at_the_root_is_found_last_as_if_installed(tmp_path):
    package, examples = tmp_path / "lib", tmp_path / "examples"
    for folder in (package, examples, tmp_path / "src" / "deep"):
        folder.mkdir(parents=True)
    (package / "__init__.py").write_text("NAME = 'lib'\n")
    (tmp_path / "src" / "deep" / "__init__.py").write_text("NAME = 'deep'\n")
    (tmp_path / "json.py").write_text("raise SystemExit('shadows the standard library')\n")
    source = (
        '"""Says names."""\nfrom __future__ import annotations\nimport json\nimport lib, deep\nprint(lib.NAME, deep.NAME)\n'
    )
    (examples / "main.py").write_text(source)
    install(tmp_path, tmp_path / "inject", [], "examples/main.py")
    environment = {"PYTHONPATH": str(tmp_path / "inject")}
    command = [sys.executable, str(examples / "main.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "lib deep\n"
    assert len((examples / "main.py").read_text().splitlines()) == len(source.splitlines())


def test_the_steps_of_a_trainers_module_are_recorded_in_its_own_file_where_they_do_not_train(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text("import net\ntrainer = net.Trainer()\ntrainer.fit(net.Net())\n")
    (tmp_path / "net.py").write_text(
        "import headrace\nclass Net:\n    def forward(self, x):\n        return headrace.evaluation_step(self.net)(x)\n"
    )
    none = {"outputs": None, "targets": None, "iterator": None}
    step = loop(path="net.py", function="Net.forward", model="self.net", inputs="x", call_line=4, **none)
    fit = loop(path="run.py", function=None, model="net.Net()", inputs="", outputs=None, call_line=3, steps=(step,))
    assert install(tmp_path, tmp_path / "recorder", [fit, fit], "run.py") == ["net.py:4"]
    text = (tmp_path / "net.py").read_text()
    assert ".wrap('net.py:4', headrace.evaluation_step(self.net), lambda: None, lambda: (), graded=False)(x)" in text
