"""Class names that the sources state: in whatever form, wherever they stand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.migrate.resolving.labels import all_class_names, looked_up_names, stored_names
from headrace.migrate.survey.survey import project_index, survey


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("class_list = ['ant', 'bee']", ("ant", "bee")),
        ("CLASSES = 'ant bee'.split()", ("ant", "bee")),
        ("label_map = {1: 'bee', 0: 'ant'}", ("ant", "bee")),
        ("class_to_idx = {'bee': 1, 'ant': 0}", ("ant", "bee")),
        ("classes = [str(digit) for digit in range(3)]", ("0", "1", "2")),
        ("CLASSES: list[str] = ['ant', 'bee']", ("ant", "bee")),
        ("net.classes = ['ant', 'bee']", ("ant", "bee")),
        ("labels = {'1': 'bee', '0': 'ant'}", ("ant", "bee")),
        ("classes = saved.get('classes', ['ant', 'bee'])", ("ant", "bee")),
        ("classes = saved.get('classes') or ('ant', 'bee')", ("ant", "bee")),
        ("classes = saved.get('classes', None)", None),
        ("hosts = ['ant', 'bee']", None),
        ("label_of = open('names.txt').read()", None),
        ("classes = ['same', 'same']", None),
        ("labels = [0, 1, 1]", None),
    ],
)
def test_every_literal_list_is_found_in_a_function_too(tmp_path: Path, statement: str, names: tuple[str, ...] | None) -> None:
    (tmp_path / "app.py").write_text(f"import torch\n\ndef get_class(index):\n    {statement}\n    return index\n")
    modules = project_index(survey(tmp_path)).repository.modules.values()
    assert list(all_class_names(modules)) == ([names] if names is not None else [])


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("mapper = {0: 'ant', 1: 'bee', 2: 'fly'}", ("ant", "bee", "fly")),
        ("self.mapper: dict = {2: 'fly', 0: 'ant', 1: 'bee'}", ("ant", "bee", "fly")),
        ("switch = {0: 'off', 1: 'on'}", None),
        ("kinds = {0: 'ant', 1: 'bee'}\nprint(kinds[prediction.item()])", ("ant", "bee")),
        ("insects = ['ant', 'bee']\nprint(insects[torch.argmax(net(x))])", ("ant", "bee")),
        ("insects = ['ant', 'bee']\nprint(insects[3])", None),
        ("insects = ['ant', 'bee']\nscore, index = net(x).max(0)\nprint(insects[index.item()])", ("ant", "bee")),
        ("insects = ['ant', 'bee']\nscore, index = net(x)\nprint(insects[index.item()])", None),
        ("alphabet = 'abc'\nprint(alphabet[prediction])", ("a", "b", "c")),
        ("alphabet = 'abc'\nprint(alphabet[3])", None),
        ("text = 'a cb'\nprint(text[prediction])", None),
        ("text = 'noon'\nprint(text[prediction])", None),
        ("colors = ['red', 'blue']\nprint(colors[predicted])", None),
        ("order = {'ant': 0, 'bee': 1, 'fly': 2}", None),
        ("sparse = {0: 'ant', 1: 'bee', 5: 'fly'}", None),
        ("numbers = {0: 3, 1: 4, 2: 5}", None),
    ],
)
def test_a_table_is_known_by_what_is_looked_up_in_it(tmp_path: Path, source: str, names: tuple[str, ...] | None) -> None:
    lines = source.replace("\n", "\n    ")
    (tmp_path / "app.py").write_text(f"import torch\n\ndef show(self, net, x):\n    {lines}\n")
    modules = project_index(survey(tmp_path)).repository.modules.values()
    assert list(looked_up_names(modules)) == ([names] if names is not None else [])


@pytest.mark.parametrize(
    ("stored", "names"),
    [
        ('{"0": "ant", "2": "cat", "1": "bee"}', ("ant", "bee", "cat")),
        ('{"bee": 1, "ant": 0, "cat": 2}', ("ant", "bee", "cat")),
        ('["ant", "bee", "cat"]', ("ant", "bee", "cat")),
        ('{"0": "ant", "1": "bee"}', None),
        ('{"0": "ant", "1": "bee", "3": "cat"}', None),
        ('{"0": "ant", "1": "ant", "2": "cat"}', None),
        ('{"lr": 1, "epochs": 3, "seed": 0}', None),
        ('{"names": ["ant", "bee", "cat"]}', None),
        ('{"size": 64, "id2label": {"0": "ant", "1": "bee", "2": "cat"}}', ("ant", "bee", "cat")),
        ('{"epoch": 3, "classes": ["ant", "bee", "cat"], "labels": 3}', ("ant", "bee", "cat")),
        ("[" * 100_000, None),
    ],
)
def test_names_that_a_script_left_in_a_file_are_those_of_so_many_classes(tmp_path, stored, names):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/classes.json").write_text(stored)
    (tmp_path / "out/other.json").write_text('["a", "b", "c"]')
    (tmp_path / "train.py").write_text("import json, torch\njson.dump(classes, open('out/classes.json', 'w'))\n")
    modules = project_index(survey(tmp_path)).repository.modules.values()
    assert list(stored_names(tmp_path, modules, 3)) == ([names] if names is not None else [])


def test_a_pipe_of_that_name_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "classes.json")
    (tmp_path / "train.py").write_text("import json, torch\njson.dump(classes, open('classes.json', 'w'))\n")
    modules = project_index(survey(tmp_path)).repository.modules.values()
    assert list(stored_names(tmp_path, modules, 3)) == []


KINDS = """
import enum
class Kind({base}):
    {members}

    @property
    def title(self):
        return self.name.title()
"""


@pytest.mark.parametrize(
    ("base", "members", "asked", "names"),
    [
        ("enum.IntEnum", "DENT = 0; STAIN = 1", "best = int(net(x).argmax())\nprint(Kind(best).title)", ("DENT", "STAIN")),
        ("enum.Enum", "DENT = 0; STAIN = 1", "score, i = net(x).max(0)\nprint(Kind(i.item()).name)", ("DENT", "STAIN")),
        ("str, enum.Enum", "A = 'dent'; B = 'stain'", "print(list(Kind)[net(x).argmax()].value)", ("dent", "stain")),
        ("enum.IntEnum", "DENT = 0; STAIN = 1", "print(Kind(phase))", None),
        ("enum.IntEnum", "DENT = 1; STAIN = 2", "print(Kind(net(x).argmax()))", None),
        ("Base", "DENT = 0; STAIN = 1", "print(Kind(net(x).argmax()))", None),
    ],
)
def test_the_members_of_an_enum_that_a_prediction_is_one_of_are_names(
    tmp_path: Path, base: str, members: str, asked: str, names: tuple[str, ...] | None
) -> None:
    (tmp_path / "kinds.py").write_text(KINDS.format(base=base, members=members))
    (tmp_path / "run.py").write_text(f"import torch\nfrom kinds import Kind\n{asked}\n")
    modules = project_index(survey(tmp_path)).repository.modules.values()
    assert list(looked_up_names(modules)) == ([names] if names is not None else [])
