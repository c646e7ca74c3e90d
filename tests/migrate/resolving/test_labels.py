"""Class names that the sources state: in whatever form, wherever they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.migrate.resolving.labels import all_class_names
from headrace.migrate.survey.survey import project_index, survey


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("class_list = ['ant', 'bee']", ("ant", "bee")),
        ("CLASSES = 'ant bee'.split()", ("ant", "bee")),
        ("label_map = {1: 'bee', 0: 'ant'}", ("ant", "bee")),
        ("class_to_idx = {'bee': 1, 'ant': 0}", ("ant", "bee")),
        ("classes = [str(digit) for digit in range(3)]", ("0", "1", "2")),
        ("hosts = ['ant', 'bee']", None),
        ("classes = ['same', 'same']", None),
        ("labels = [0, 1, 1]", None),
    ],
)
def test_every_literal_list_is_found_in_a_function_too(tmp_path: Path, statement: str, names: tuple[str, ...] | None) -> None:
    (tmp_path / "app.py").write_text(f"import torch\n\ndef get_class(index):\n    {statement}\n    return index\n")
    modules = project_index(survey(tmp_path)).repository.modules.values()
    assert list(all_class_names(modules)) == ([names] if names is not None else [])
