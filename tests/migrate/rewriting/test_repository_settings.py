"""[tool.headrace] of a repository: checked, and never a reason to stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.migrate.rewriting.repository_settings import RepositorySettings, read_settings
from headrace.migrate.rewriting.rule import all_rules


def told(tmp_path: Path, text: str) -> RepositorySettings:
    (tmp_path / "pyproject.toml").write_text(text)
    return read_settings(tmp_path)


def test_all_settings(tmp_path: Path) -> None:
    text = """
        [tool.headrace]
        select = ["PS2"]
        ignore = ["PS203"]
        unsafe = true
        entry = "evaluate.py"
        model = "resnet18"
        input-size = [3, 32, 32]
        rules = ["my_rules.py"]
    """
    assert told(tmp_path, text) == RepositorySettings(
        select=("PS2",), ignore=("PS203",), unsafe=True, entry="evaluate.py", model="resnet18", input_size=(3, 32, 32),
        rules=("my_rules.py",),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.headrace]\nselect = 'PS2'", "select must be a list of codes"),
        ("[tool.headrace]\nselect = [2]", "select must be a list of codes"),
        ("[tool.headrace]\nunsafe = 1", "unsafe must be true or false"),
        ("[tool.headrace]\ninput-size = [3, 32]", "input-size must be"),
        ("[tool.headrace]\ninput-size = [3, 0, 32]", "input-size must be"),
        ("[tool.headrace]\ntrust-checkpoint = true", "no setting 'trust-checkpoint'; there are entry, ignore, input-size"),
        ("[tool]\nheadrace = 3", "must be a table"),
        ("not toml", "cannot be read"),
        ("x = '\ud800'".encode("utf-8", "surrogatepass").decode("latin-1") and "x = [" * 5000, "cannot be read"),
    ],
)
def test_what_does_not_fit_is_a_finding(tmp_path: Path, text: str, message: str) -> None:
    found = told(tmp_path, text)
    (finding,) = found.findings
    assert message in finding.message
    assert (finding.path, finding.code) == ("pyproject.toml", "PS020")
    assert found == RepositorySettings(findings=found.findings)


def test_nothing_said(tmp_path: Path) -> None:
    assert read_settings(tmp_path) == RepositorySettings()
    assert told(tmp_path, "[tool.ruff]\nline-length = 9\n") == RepositorySettings()


def test_codes_of_no_rule_are_left_out_and_told(tmp_path: Path) -> None:
    found = told(tmp_path, '[tool.headrace]\nselect = ["PS2", "XX"]\nignore = ["YY1"]').with_known_codes(all_rules())
    assert (found.select, found.ignore) == (("PS2",), ())
    assert ["'XX'" in found.findings[0].message, "'YY1'" in found.findings[1].message] == [True, True]
