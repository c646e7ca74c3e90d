"""What a repository's own pyproject.toml says under [tool.headrace]: data, checked, and never a reason to stop.

    [tool.headrace]
    select = ["PS2"]            # as --select
    ignore = ["PS203"]          # as --ignore
    unsafe = false              # as --unsafe
    entry = "evaluate.py"       # as --entry, --model, --input-size
    model = "resnet18"
    input-size = [3, 224, 224]
    rules = ["my_rules.py"]     # files with rules of your own, run only with --trust-rules

The command line wins over the file. What executes code or trusts a file (`--trust-rules`, `--trust-checkpoint`) can only be
said there: whoever wrote the repository cannot speak for whoever migrates it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..reading.finding import Finding
from .rule import Rule

FILE = "pyproject.toml"
MAX_BYTES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class RepositorySettings:
    """The checked values; what was not said is empty. `findings` say what could not be used."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    unsafe: bool = False
    entry: str | None = None
    model: str | None = None
    input_size: tuple[int, int, int] | None = None
    rules: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    def with_known_codes(self, rules: Sequence[Rule]) -> RepositorySettings:
        """Without the codes that no rule has, which become findings."""
        unknown = [
            code for code in (*self.select, *self.ignore) if not code or not any(rule.code.startswith(code) for rule in rules)
        ]
        unknown_codes = [_finding(f"no rule has a code beginning with {code!r}; headrace rules lists them") for code in unknown]
        return replace(
            self,
            select=tuple(code for code in self.select if code not in unknown),
            ignore=tuple(code for code in self.ignore if code not in unknown),
            findings=(*self.findings, *unknown_codes),
        )


def read_settings(root: Path) -> RepositorySettings:
    """The preferences of a repository; empty where it has none."""
    path = root / FILE
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        return RepositorySettings()
    try:
        table: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError, RecursionError) as error:
        return RepositorySettings(findings=(_finding(f"cannot be read: {error}", "note"),))
    for key in ("tool", "headrace"):
        table = table.get(key, {}) if isinstance(table, dict) else {}
    if not isinstance(table, dict):
        return RepositorySettings(findings=(_finding("[tool.headrace] must be a table"),))
    values: dict[str, Any] = {}
    findings: list[Finding] = []
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in _CHECKS:
            known = ", ".join(sorted(known.replace("_", "-") for known in _CHECKS))
            findings.append(_finding(f"[tool.headrace] has no setting {key!r}; there are {known}"))
        elif not (check := _CHECKS[name])[0](value):
            findings.append(_finding(f"[tool.headrace] {key} must be {check[1]}"))
        else:
            values[name] = tuple(value) if isinstance(value, list) else value
    return RepositorySettings(**values, findings=tuple(findings))


def _finding(message: str, severity: str = "warning") -> Finding:
    return Finding(FILE, 1, 0, "PS020", message, "note" if severity == "note" else "warning")


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _size(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(type(side) is int and side > 0 for side in value)


_CHECKS = {
    "select": (_texts, 'a list of codes, e.g. ["PS2"]'),
    "ignore": (_texts, 'a list of codes, e.g. ["PS203"]'),
    "unsafe": (lambda value: isinstance(value, bool), "true or false"),
    "entry": (_text, 'the path of a script, e.g. "evaluate.py"'),
    "model": (_text, 'the name of a model, e.g. "resnet18"'),
    "input_size": (_size, "[channels, height, width], e.g. [3, 224, 224]"),
    "rules": (_texts, 'a list of files, e.g. ["my_rules.py"]'),
}
