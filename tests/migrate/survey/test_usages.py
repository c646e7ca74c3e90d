"""Command lines at the top of scripts and in the editor's configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.migrate.reading.arguments import OPEN
from headrace.migrate.reading.source import read_source
from headrace.migrate.survey.usages import LAUNCHES, usages


def told(root: Path, **texts: str) -> list[tuple[str, str, str, int]]:
    """Scripts, arguments with `?` for what is left open, and where they stand."""
    for name, text in texts.items():
        (root / f"{name}.py").write_text(text, encoding="utf-8")
    files = [read_source(root, f"{name}.py") for name in texts]
    return [(item.script, " ".join(item.arguments).replace(OPEN, "?"), item.path, item.line) for item in usages(root, files)]


@pytest.mark.parametrize(
    "top",
    [
        "# Example\n# python train.py --arch small\n\nimport torch\n",
        '#!/usr/bin/env python\n"""Trains.\n\nUsage: python train.py --arch small\n"""\nimport torch\n',
        "'''\n    $ python train.py --arch small\n'''\n",
        '"""Trains."""\n# -*- coding: utf-8 -*-\n#   python3 train.py --arch small\nimport torch\n',
        '"""Trains.\n\n```\nCUDA_VISIBLE_DEVICES=0 python train.py \\\n    --arch small\n```\n"""\n',
    ],
)
def test_a_script_says_at_its_top_how_it_is_run(tmp_path: Path, top: str) -> None:
    (found,) = told(tmp_path, train=top)
    assert found[:3] == ("train.py", "--arch small", "train.py")
    line = top.splitlines()[found[3] - 1]
    assert "python" in line


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import torch\n# python train.py --arch small\n",  # below the top: tried once, and left out
        '"""Trains; python other.py makes the data."""\n',
        'import torch\n"""python train.py --arch small"""\n',
        '"""Not closed: python -c 1',
    ],
)
def test_what_stands_elsewhere_or_runs_another_script_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.py").touch()
    assert told(tmp_path, train=text) == []


def test_the_editor_starts_scripts(tmp_path: Path) -> None:
    (tmp_path / ".vscode").mkdir()
    (tmp_path / LAUNCHES).write_text(
        """{
    // https://code.visualstudio.com/docs
    "version": "0.2.0", /* of the schema */
    "configurations": [
        {"name": "Current file", "program": "${file}"},
        {
            "name": "Train",
            "program": "${workspaceFolder}/train.py",
            "args": ["--url=http://host//a", "--arch", "small", "--out", "${workspaceFolder}/out",],
        },
        {"name": "As text", "program": "./train.py", "args": "--arch 'very large'"},
        {"name": "Plain", "program": "train.py"},
        {"name": "Gone", "program": "gone.py", "args": []},
        {"name": "Outside", "program": "../train.py", "args": []},
        {"name": "Odd", "program": "train.py", "args": [1]},
        {"name": "Odder", "program": ["train.py"]},
        "odd",
    ],
}
"""
    )
    assert told(tmp_path, train="import torch\n") == [
        ("train.py", "--url=http://host//a --arch small --out ?", LAUNCHES, 7),
        ("train.py", "--arch very large", LAUNCHES, 11),
        ("train.py", "", LAUNCHES, 12),
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"configurations": 1}', '"' * 9, "[" * 100_000])
def test_what_is_no_configuration_starts_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / ".vscode").mkdir()
    (tmp_path / LAUNCHES).write_text(text)
    assert told(tmp_path, train="import torch\n") == []
