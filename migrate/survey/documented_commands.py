"""The command lines by which a repository's documentation runs its scripts: READMEs first, then shell scripts and the like.

Read as written for people: with prompts, launchers, placeholders, line continuations, redirections and prose around them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..reading.arguments import OPEN
from ..reading.facts import Command
from ..reading.source import head, walk
from .entry_points import entry_points

_SHELL = (".sh", ".bat", "Makefile", "Dockerfile", "dvc.yaml", "compose.yml", "compose.yaml", "Procfile", "justfile")
_DOCUMENTS = ("README", ".md", ".rst", *_SHELL, "readme.txt", "README.txt")
_MOST_FILES, _MOST_BYTES, _MOST_CHARACTERS, _MOST_COMMANDS = 200, 500_000, 2_000, 2_000
# What starts a Python program: an interpreter, a launcher of several of them, or a notebook's magic.
_START = re.compile(
    r"(?<![A-Za-z0-9_-])(?:python(?:w|[\d.]+)?(?:\.exe)?|pypy3?|torchrun|deepspeed|(?:accelerate|composer)\s+launch"
    r"|(?:streamlit|coverage|fabric)\s+run|%run)(?=\s)"
)
_RUNNER = r"(?:(?:(?:uv|poetry|pdm|hatch|rye|pipenv|pixi)\s+run|uvx)\s+(?:-\S+\s+(?:(?!-)\S+\s+)??)*)?"
"""What runs an installed command in a project's environment, with its options."""
_LAUNCHERS = frozenset(["torch", "accelerate", "deepspeed", "cProfile", "pdb", "coverage", "memory_profiler", "trace"])
"""Packages of the modules that `python -m` runs to run a script in turn."""
_OPTIONS = re.compile(r"\s*--?[A-Za-z][\w-]*(=\S+|\s|$)(?!.*```)")
"""A line that can only go on with a command."""
_SCRIPT = re.compile(r"^[\w./\\~ -]*\w\.(?:py|ipynb)$", re.ASCII)
_MODULE = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", re.ASCII)
_TYPED = re.compile(r"(\t| {4,})\S|\s*[$>]\s")
"""How a line begins that is to be typed, outside of a fence."""
_END = re.compile(r"^(\|.*|&&?|;|\d?>>?.*|&>.*|<|#.*)$")
_VALUE = r"([^\s$`(]+|\"[^\"$`]*\"|'[^']*')\s*(?:#.*)?$"
_ASSIGNMENT = re.compile(r"^\s*(?:export\s+|set\s+|ARG\s+|ENV\s+)?([A-Za-z_]\w*)\s?[:?]?=\s?" + _VALUE)
_TYPED_ASSIGNMENT = re.compile(r"^\s*(?:[$>]\s+)?(?:export\s+|set\s+)?([A-Za-z_]\w*)=" + _VALUE)
"""The same of a document's block, which may hold a program too: without blanks around the sign."""
_FOR = re.compile(r"^\s*for\s+(\w+)\s+in\s+([^\s;$`{]+)")
_NAMED = re.compile(r"<[^<>\s][^<>]*>")
_VARIABLE = re.compile(r"\$\{(\w+)(?::?[-=](?P<default>(?:[^${}]|\$\([^()]*\))*))?\}|\$\((\w+)\)|\$(\w+)|%(\w+)%")
_MORE = re.compile(r"\$\{[@*][^{}]*\}|\$[@*]")
"""What else a shell script is given."""
_HERE = {"pwd": ".", "PWD": "."}
_RUNS_SHELL = re.compile(
    r"(?:(?<![\w./-])(?:bash|sh|zsh|source)\s+(?:-\w+\s+)*|(?:^|\s)(?=\./))([\w./-]+\.sh)(?=\s|$)([^|&;<>]*)"
)
"""A shell script that is run, and what it is given."""
_WORDS = "PATH|TO|YOUR|MY|THE|DIR|DIRECTORY|FILE|FOLDER|NAME|ROOT|MODEL|DATA|DATASET|IMAGE|IMAGES|IMG|CONFIG|CFG|CHECKPOINT|CKPT|WEIGHTS|NUM|N|GPU|GPUS|VALUE|OUTPUT|INPUT|ARCH|ID"  # noqa: E501
_PLACEHOLDER = re.compile(
    rf"\.\.\.|…|[${{}}<>]|\bpaths?[/_-]to|\byour[/_-]|^your|^xx+$|^/path\b|(^|[=/])(?:(?:{_WORDS})[_-]?)+($|/)"
)
_NOTED = re.compile(r"(\s\\)\s+#[^\n]{,500}$")
"""A remark after the backslash, which a shell would take for words; people write it to say what an option is for."""
_SHARDS = re.compile(r"\{\d+\.\.\d+\}")
"""The numbers of files that a script goes through: `val-{0000..0007}.tar`."""
_WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")
"""Letters and punctuation that no option has: what follows is prose."""


def documented_commands(root: Path) -> tuple[Command, ...]:
    """The commands that run a Python file or module, in the order in which somebody reads them: the README's first."""
    paths = sorted(walk(root, _DOCUMENTS), key=_importance)[:_MOST_FILES]
    points = entry_points(root)
    return tuple(itertools.islice((command for path in paths for command in _commands(root, path, points)), _MOST_COMMANDS))


def _importance(path: str) -> tuple[bool, bool, int, str]:
    return path.endswith(_SHELL), not posixpath.basename(path).lower().startswith("readme"), path.count("/"), path


def _commands(root: Path, path: str, points: Mapping[str, str]) -> Iterator[Command]:
    yield from commands_in(root, path, _text(root, path), points)


def _text(root: Path, path: str) -> str:
    with contextlib.suppress(OSError):
        return head(root / path, _MOST_BYTES).decode(errors="replace")
    return ""


def commands_in(root: Path, path: str, text: str, points: Mapping[str, str], given: Sequence[str] = ()) -> Iterator[Command]:
    """The commands in a text that stands in a file: a shell script's lines, for which arguments may be `given`, or prose with
    commands in it, among them shell scripts that are run."""
    names = "|".join(map(re.escape, points))
    installed = re.compile(rf"^(\s*[$>]?\s*){_RUNNER}({names})(?=\s|$)") if points else None
    shell = path.endswith(_SHELL)
    variables = {**_HERE, **{str(number): word for number, word in enumerate(given, 1)}}
    fenced = False
    for number, line in _joined(text):
        if re.match(r"\s*(```|~~~)", line):
            fenced = not fenced
            continue
        if (shell or fenced) and line.lstrip().startswith("#"):
            continue  # explained, or left out
        filled = _filled(line, variables) if shell or fenced else line
        if shell and (found := _ASSIGNMENT.match(filled) or _FOR.match(filled)) is not None and OPEN not in found[2]:
            variables.setdefault(found[1], found[2].strip("\"'"))
        elif fenced and (found := _TYPED_ASSIGNMENT.match(filled)) is not None and OPEN not in found[2]:
            variables[found[1]] = found[2].strip("\"'")
        if installed is not None and (shell or fenced or _TYPED.match(line)):
            filled = installed.sub(lambda found: f"{found[1]}python -m {points[found[2]]} ", filled)
        for part, code in _parts(filled, shell or fenced):
            for typed in () if shell else (part,) if code else re.findall(r"`+([^`]+)`+", filled):
                yield from _of_shell_script(root, path, number, typed, points)
            for start in itertools.islice(_START.finditer(part), 4):
                command = _read(root, path, number, part[start.start() :], code=code)
                if command is not None:
                    yield command
                    break


def _of_shell_script(root: Path, path: str, number: int, line: str, points: Mapping[str, str]) -> Iterator[Command]:
    """The commands of a shell script that a document's line runs, with what it is given there."""
    found = _RUNS_SHELL.search(_NAMED.sub(OPEN, line))
    if found is None or found[1].startswith("/"):
        return
    given = opened(_words(found[2]))
    for folder in (posixpath.dirname(path), ""):
        place = posixpath.normpath(posixpath.join(folder, found[1]))
        if given and not place.startswith("..") and os.path.isfile(root / place):
            text = _text(root, place)
            for command in commands_in(root, place, text, points, given):
                yield replace(command, path=path, line=number, readme=not _importance(path)[1])
            return


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; one that ends in a backslash goes on in the next, and so does a command whose options stand
    on lines of their own."""
    begun, first = "", 0
    lines = [_NOTED.sub(r"\1", line) for line in text.splitlines()]
    for number, line in enumerate(lines, 1):
        first = first if begun else number
        goes_on = re.search(r"(?<!\\)[\\^]\s*$", line[-200:]) is not None
        if not goes_on and number < len(lines) and _OPTIONS.match(lines[number][:200]):
            goes_on = _START.match((begun + line).lstrip(" $>")) is not None
        if goes_on and len(begun) < _MOST_CHARACTERS:
            begun += line.rstrip().rstrip("\\^") + " "
            continue
        if len(begun + line) < 2 * _MOST_CHARACTERS:  # a longer line is no command, and none that expressions should search
            yield first, begun + line
        begun = ""
    if begun:
        yield first, begun


def _filled(line: str, variables: Mapping[str, str]) -> str:
    """A shell script's line with the values of its variables; JSON as what is typed."""
    if (found := re.match(r"\s*(?:CMD|ENTRYPOINT|(?:command|entrypoint):)\s*(\[.*\])\s*$", line)) is not None:
        with contextlib.suppress(ValueError, RecursionError):
            return shlex.join(str(word) for word in json.loads(found[1]))
    return _VARIABLE.sub(lambda found: _value(found, variables), _MORE.sub(OPEN, line))


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    default = found["default"]
    name = next(name for name in (found[1], *found.groups()[2:]) if name is not None)
    return variables.get(name, OPEN if default is None or "$(" in default else default)


def _parts(line: str, code: bool) -> Iterator[tuple[str, bool]]:
    """What of a line may hold a command, and whether it is code, not prose."""
    line = line.rstrip()
    if code or re.match(r"(\t| {4,})\S|\s*(\$|>|!|%|\(\w+\)|PS .*>|[A-Z]:\\.*>|[A-Z_]+=\S+ )", line):
        yield line, True
        return
    if re.match(r"\s*(?:[*+-]\s+|\d+[.)]\s+)?$", line[: getattr(_START.search(line), "start", lambda: 0)()]):
        yield line.replace("`", " "), re.match(r"\s*[\w./]", line) is not None and "`" not in line
        return
    inside = re.findall(r"`+([^`]+)`+", line)
    yield from ((text, True) for text in inside)
    if not inside:
        yield line, False


def _read(root: Path, path: str, number: int, text: str, *, code: bool) -> Command | None:
    """The command that a text begins with; None where no script or module is run."""
    if (wide := _WIDE.search(text)) is not None:
        before = text[: wide.start()]
        text = before + (OPEN if not before[-1:].isspace() or re.search(r"\s-\S+\s+$", before) else "")
    text = _NAMED.sub(OPEN, text)
    text = re.sub(r"(?<=\s)\[([^\[\]]*)\]", _bracketed, text)
    words = []
    for word in _words(text):
        if _END.match(word):
            break
        words.append(word.rstrip(";") if code else word)
        if word.endswith(";"):
            break
    found = _program(words)
    if found is None:
        return None
    script, arguments, module = found
    if not code:
        arguments = _of_prose(arguments)
    arguments = opened(arguments)
    seen_from = ["", posixpath.dirname(path)] if path.endswith(_SHELL) else [posixpath.dirname(path), ""]
    names = [script] if not module else [f"{folder}{script}{end}" for folder in ("", "src/") for end in (".py", "/__main__.py")]
    places = [posixpath.normpath(posixpath.join(folder, name)) for folder in seen_from for name in names]
    if script.startswith(("/", "~")):  # where its author has it: what that ends in may be here
        parts = script.split("/")
        places += ["/".join(parts[first:]) for first in range(1, len(parts))]
    place = next((place for place in places if not place.startswith(("..", "/")) and os.path.isfile(root / place)), None)
    if place is None and module:
        return None
    return Command(
        script=place or posixpath.normpath(script),
        is_file=place is not None,
        written="" if module or script.startswith(("/", "~")) else posixpath.normpath(script),
        arguments=tuple(arguments),
        path=path,
        line=number,
        readme=not _importance(path)[1],
    )


def opened(arguments: Iterable[str]) -> list[str]:
    """Arguments as a document writes them, with those left open that are to be filled in."""
    return [OPEN if OPEN in word or _is_open(word.partition("=")[2] or word) else word for word in arguments]


def _is_open(value: str) -> bool:
    return _PLACEHOLDER.search(_SHARDS.sub("", value)) is not None


def _bracketed(found: re.Match[str]) -> str:
    """Options that may be left out are; what else is named in brackets is a placeholder, and numbers are a list."""
    if found[1].lstrip().startswith("-"):
        return " "
    return OPEN if re.search("[A-Za-z]", found[1]) else found[0]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text.replace("\\", "/") if re.search(r"\.exe\b|\w\\\w+\.py\b", text) else text)
    except ValueError:  # an apostrophe of prose
        return [word.strip("\"'") for word in text.split()]


def _program(words: list[str]) -> tuple[str, list[str], bool] | None:
    """The script, or the module of `python -m`, and its arguments; what launches it and the launcher's own are left out."""
    rest = words[1:]
    index = 0
    while index < len(rest):
        word = rest[index]
        if word in ("-c", "-h", "--help"):
            return None
        if word in ("-m", "--module") and index + 1 < len(rest):
            name = rest[index + 1].rstrip(".,;:)")
            if name.partition(".")[0] not in _LAUNCHERS:
                return (name.replace(".", "/"), rest[index + 2 :], True) if _MODULE.match(name) else None
            index += 1
        elif _SCRIPT.match(name := word.rstrip(".,;:)'\"").removeprefix(f"{OPEN}/")):
            return name.replace("\\", "/"), rest[index + 1 :], False
        elif words[0].startswith(("python", "pypy")) and not word.startswith("-") and not _is_launched(rest[:index]):
            return None
        index += 1
    return None


def _is_launched(before: list[str]) -> bool:
    """Whether what stands before a word may have values of its own: `-m torch.distributed.launch --nproc 8`, `-W x`."""
    return "-m" in before or before[-1:] in (["-W"], ["-X"])


def _of_prose(arguments: list[str]) -> list[str]:
    """The arguments as far as they are surely that: options, each with at most one value."""
    found: list[str] = []
    for word in arguments:
        if not word.startswith("-") and not (found and found[-1].startswith("-")):
            break
        found.append(word.rstrip(".,;:)"))
    return found
