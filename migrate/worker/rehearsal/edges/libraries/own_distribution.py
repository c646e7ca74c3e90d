"""The repository's own distribution, which is not installed where its scripts run from a copy: the version that it has."""

from __future__ import annotations

import email.message
import importlib.metadata
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from ...stage import Stage
from ..packages import folders_of

_FILES = ("pyproject.toml", "setup.cfg", "setup.py")
_NAME = re.compile(r"""^\s*name\s*=\s*["']?([\w.-]+)""", re.M)
_VERSION = re.compile(r"""^\s*version\s*=\s*["']?(\d[\w.+!-]*)""", re.M)
_DEEPEST = 2
"""Folders below the root in which a distribution is described."""


class _Own(importlib.metadata.Distribution):
    """What `importlib.metadata` is asked of a distribution: its name and version, and that it has no files."""

    def __init__(self, name: str, version: str) -> None:
        self._message = email.message.Message()
        self._message["Name"], self._message["Version"] = name, version

    def read_text(self, filename: str) -> str | None:
        return self._message.as_string() if filename == "METADATA" else None

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        return Path(path)


def stand_in(stage: Stage) -> None:
    def named(original: Any, name: str) -> Any:
        try:
            return original(name)
        except importlib.metadata.PackageNotFoundError:
            version = described(Path(stage.root), name)
            if version is None:
                raise
            stage.note("libraries", f"{name}, which this repository is, is not installed; its version was {version}")
            return _Own(name, version)

    stage.wrap(importlib.metadata.Distribution, "from_name", named)


def described(root: Path, name: str) -> str | None:
    """The version of a distribution that a repository makes, "0" where nothing tells it; None where it makes no such one."""
    for file in (path for depth in range(_DEEPEST + 1) for kind in _FILES for path in sorted(root.glob("*/" * depth + kind))):
        text = file.read_text(encoding="utf-8", errors="replace")
        said, version = _project(text) if file.suffix == ".toml" else (_first(_NAME, text), _first(_VERSION, text))
        if said is not None and _normal(said) == _normal(name):
            return version or "0"
    return "0" if folders_of(str(root), _normal(name).replace("-", "_")) else None


def _project(text: str) -> tuple[str | None, str | None]:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None, None
    for part in (table.get("project"), table.get("tool", {}).get("poetry")):
        if isinstance(part, dict) and isinstance(part.get("name"), str):
            return part["name"], part["version"] if isinstance(part.get("version"), str) else None
    return None, None


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return None if found is None else found[1]


def _normal(name: str) -> str:
    """A name as the index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
