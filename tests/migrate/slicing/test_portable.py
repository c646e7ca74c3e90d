"""What a slice says of devices, wherever it would run, means the CPU; every form still runs."""

from __future__ import annotations

import ast

import pytest

from headrace.migrate.reading.scopes import Repository
from headrace.migrate.reading.source import parse_source
from headrace.migrate.slicing.portable import make_portable


def neutral(text: str) -> str:
    repository = Repository([parse_source("a.py", text.encode())])
    module = repository.modules["a.py"]
    return ast.unparse(make_portable(module.tree.body, module, "", repository))


@pytest.mark.parametrize(
    "written",
    ["'cuda'", "'cuda:1'", "'mps'", "'cuda:%d' % n", "'cuda:{}'.format(n)", "f'cuda:{n}'", "'cuda:' + str(n)"],
)
def test_a_device_is_the_cpu_however_it_is_spelled(written: str) -> None:
    names: dict[str, object] = {"n": 3}
    exec(neutral(f"device = {written}\n"), names)
    assert names["device"] == "cpu"


@pytest.mark.parametrize("written", ["'barracuda: %d' % n", "f'on {n}'", "'a' + 'b'", "7 % n", "f'{n}:cuda'"])
def test_other_texts_and_sums_stay(written: str) -> None:
    assert neutral(f"x = {written}\n") == f"x = {ast.unparse(ast.parse(written))}"


def test_a_question_about_the_device_stays_a_question() -> None:
    assert neutral("x = device == 'cuda'\n") == "x = device == 'cuda'"


@pytest.mark.parametrize("alias", ["torch", "t"])
def test_types_of_a_gpus_tensors_are_those_of_the_cpu(alias: str) -> None:
    text = f"import torch as {alias}\ndtype = {alias}.cuda.FloatTensor if {alias}.cuda.is_available() else None\n"
    text += f"dtype = {alias}.cuda.HalfTensor\nx = {alias}.ones(2).type(dtype)\n"
    names: dict[str, object] = {}
    exec(neutral(text), names)
    assert "cuda.HalfTensor" not in neutral(text)
    assert str(names["x"].dtype) == "torch.float16"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "folder", "imported", "seen_from"),
    [
        ("ml/net.py", "", "from ml import config", []),
        ("ml/net.py", "ml", "from ml import config", [".."]),
        ("ml/sub/net.py", "ml", "from sub import config", []),
        ("Machine Learning/food/net.py", "Machine Learning/food", "from food import config", [".."]),
        ("Machine Learning/food/net.py", "", "from food import config", ["Machine Learning"]),
        ("Machine Learning/food/net.py", "app", "from food import config", ["../Machine Learning"]),
        ("01-basics/net.py", "01-basics", "import config", []),
        ("01-basics/net.py", "", "import config", ["01-basics"]),
        ("class/net.py", "", "import config", ["class"]),
    ],
)
def test_relative_imports_are_absolute_from_a_folder_that_can_be_named(path, folder, imported, seen_from):
    repository = Repository([parse_source(path, b"from . import config\n")])
    module = repository.modules[path]
    text = ast.unparse(make_portable(module.tree.body, module, folder, repository))
    assert ast.parse(text)
    assert text.splitlines()[-1] == imported
    named = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert named == seen_from
