"""The classes that the outputs of notebooks show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.migrate.reading.notebooks.shown_classes import shown_classes
from headrace.migrate.worker.rehearsal import hints


def notebook(path: Path, *cells: tuple[str, str], stream: bool = False) -> None:
    made: list[dict[str, Any]] = [{"cell_type": "markdown", "source": ["# classes: ['a', 'b']"]}]
    for source, shown in cells:
        output: dict[str, Any] = {"output_type": "execute_result", "data": {"text/plain": shown.splitlines(keepends=True)}}
        if stream:
            output = {"output_type": "stream", "text": shown}
        made.append({"cell_type": "code", "source": source.splitlines(keepends=True), "outputs": [output] if shown else []})
    path.write_text(json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))


LIST = "['cat', 'dog', 'emu']"


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("data = ImageFolder('train')\ndata.classes", LIST),
        ("%matplotlib inline\n!ls\nprint('Classes:', data.classes)", f"Classes: {LIST}\n"),
        ("class_names = data.classes\nclass_names", LIST),
        ("load, test, class_names", "(<DataLoader at 0x7f>,\n <DataLoader at 0x7e>,\n ['cat',\n  'dog',\n  'emu'])"),
        ("print(f'{len(data.classes)} classes: {data.class_to_idx}')", "3 classes: {'dog': 1, 'cat': 0, 'emu': 2}\n"),
        ("names = {v: k for k, v in data.class_to_idx.items()}\nprint(names)", "{1: 'dog', 0: 'cat', 2: 'emu'}"),
        ("data.classes", '["cat", "dog", "emu"]'),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_classes_that_a_cell_shows(tmp_path: Path, source: str, shown: str, stream: bool) -> None:
    notebook(tmp_path / "train.ipynb", ("import torch", ""), (source, shown), stream=stream)
    assert shown_classes(tmp_path, "train.ipynb") == ("cat", "dog", "emu")
    assert shown_classes(tmp_path, "predict.py") == ("cat", "dog", "emu")


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("scores, classes = predict(image)\nclasses", "['tulip', 'rose', 'iris']"),  # the best of one answer
        ("print(class_names[best])", "['cat', 'dog']"),
        ("print(len(data.classes), os.listdir('train'))", "3 ['x', 'y']"),
        ("class_names = data.classes", LIST),  # said by something else
        ("data.classes", "['cat', 'cat']"),
        ("data.classes", "['cat']"),
        ("data.classes", "[0, 1, 2]"),
        ("data.class_to_idx", "{'cat': 1, 'dog': 2}"),
        ("data.class_to_idx", "{'cat': [0], 'dog': [1]}"),
        ("data.classes", "['cat', 'dog', ...]"),
        ("data.classes", "[" * 5000 + "]" * 5000),
        ("data.classes", "['cat', 'dog'"),
        ("this is no Python\ndata.classes", LIST),
    ],
)
def test_what_is_no_list_of_all_classes(tmp_path: Path, source: str, shown: str) -> None:
    notebook(tmp_path / "train.ipynb", (source, shown))
    assert shown_classes(tmp_path, "train.ipynb") is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"cells": 3}', '{"cells": [3]}', '{"cells": [{"cell_type": "code", "outputs": [1]}]}']
)
def test_files_that_are_no_notebooks(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.ipynb").write_text(text)
    (tmp_path / "folder.ipynb").mkdir()
    assert shown_classes(tmp_path, "train.ipynb") is None
    assert shown_classes(tmp_path, "predict.py") is None


def test_notebooks_that_do_not_agree_say_nothing_of_a_script_and_sources_come_first(tmp_path: Path) -> None:
    notebook(tmp_path / "a.ipynb", ("data.classes", LIST))
    (tmp_path / "main.py").write_text("print(1)\n")
    assert hints.class_names(str(tmp_path), "main.py") == ("cat", "dog", "emu")
    assert hints.class_count(str(tmp_path), "main.py") == 3
    notebook(tmp_path / "b.ipynb", ("data.classes", "['cat', 'dog']"))
    assert shown_classes(tmp_path, "main.py") is None
    assert shown_classes(tmp_path, "b.ipynb") == ("cat", "dog")
    (tmp_path / "other").mkdir()
    notebook(tmp_path / "other" / "a.ipynb", ("data.classes", LIST))
    (tmp_path / "other" / "main.py").write_text("class_names = ['owl', 'fox']\n")
    assert hints.class_names(str(tmp_path / "other"), "main.py") == ("owl", "fox")
