"""How scripts say themselves that they are run, at their top, and how the editor's configurations start them.

This tells which arguments a script takes, and nothing of which script comes first: hardly any that is in use says it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..reading.facts import Command
from ..reading.source import SourceFile, head
from .documented_commands import commands_in, opened

LAUNCHES = ".vscode/launch.json"
_TOP = re.compile(r"\A(?:[ \t]*(?:#[^\n]*)?\r?\n)*(?:[rRuU]?(\"\"\"|''')(?:.*?)\1)?(?:[ \t]*(?:#[^\n]*)?\r?\n)*", re.DOTALL)
"""The comments and the docstring with which a file begins."""
_MOST_CHARACTERS, _MOST_BYTES, _MOST_EACH, _MOST = 8_000, 500_000, 8, 500
_STRING_OR_COMMENT = re.compile(r"\"(?:\\.|[^\"\\])*\"|//[^\n]*|/\*.*?\*/", re.DOTALL)
_WORKSPACE = re.compile(r"^\$\{workspace(?:Folder|Root)\}/")


def usages(root: Path, files: Sequence[SourceFile]) -> tuple[Command, ...]:
    """The command lines at the top of the scripts that they run, then those of the editor's configurations."""
    said = (command for file in files if file.notebook is None for command in _said(root, file.path, file.text or ""))
    return tuple(itertools.islice(itertools.chain(said, _launched(root)), _MOST))


def _said(root: Path, path: str, text: str) -> Iterator[Command]:
    found = _TOP.match(text[:_MOST_CHARACTERS])
    top = found[0] if found is not None else ""
    prose = re.sub(r"(?m)^[ \t]*#+[ \t]?|\"\"\"|'''", "", top)
    own = (command for command in commands_in(root, path, prose, {}) if command.script == path)
    yield from itertools.islice(own, _MOST_EACH)


def _launched(root: Path) -> Iterator[Command]:
    """What Visual Studio Code starts."""
    text = ""
    with contextlib.suppress(OSError):
        text = head(root / LAUNCHES, _MOST_BYTES).decode(errors="replace")
    for launch in _launches(text):
        program, arguments = launch.get("program"), launch.get("args", [])
        if isinstance(arguments, str):
            arguments = _words(arguments)
        if not isinstance(program, str) or not isinstance(arguments, list) or not all(isinstance(x, str) for x in arguments):
            continue
        path = _WORKSPACE.sub("", program.replace("\\", "/")).removeprefix("./")
        if not path.startswith(("/", "..")) and (root / path).is_file():
            line = text.count("\n", 0, text.find(json.dumps(launch.get("name")))) + 1
            yield Command(script=path, written=path, arguments=tuple(opened(arguments)), path=LAUNCHES, line=line, readme=False)


def _launches(text: str) -> list[dict[str, Any]]:
    """The configurations of a file of JSON with comments and commas at the ends of lists."""
    text = _STRING_OR_COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else " ", text)
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(_without_last_commas(text))
        launches = found.get("configurations", []) if isinstance(found, dict) else []
        return [launch for launch in launches if isinstance(launch, dict)] if isinstance(launches, list) else []
    return []


def _without_last_commas(text: str) -> str:
    return re.sub(r"(\"(?:\\.|[^\"\\])*\")|,(?=\s*[\]}])", lambda found: found[1] or "", text)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
