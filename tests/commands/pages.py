"""What the pages tell a reader to type, and the files that they tell to write first."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page.relative_to(ROOT)
    for pattern in ("README.md", "docs/**/*.md", "docker/README.md", "examples/*/README.md")
    for page in ROOT.glob(pattern)
)
# What a fenced block may be called: commands, or what only a title makes a file of the reader's.
COMMANDS = ("console", "sh")
OTHERS = ("diff", "dockerfile", "http", "json", "protobuf", "python", "text", "toml", "yaml")
_FENCE = re.compile(r"(`{3,})(\w*)(?: title=\"([^\"]+)\")?")
_ITEM = re.compile(r"(-|\*|\d+\.) ")


@dataclass(frozen=True)
class Command:
    """A command as it is typed, and the lines that the page shows as its answer."""

    page: Path
    line: int
    text: str
    answer: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class File:
    """A block with a title: the reader writes it to a file of that name."""

    page: Path
    line: int
    name: str
    text: str


def steps(page: Path, text: str | None = None) -> list[Command | File]:
    """The commands and files of a page, from its top to its end.

    A block that is indented by four spaces, or fenced as `console` or `sh`, has commands. Where one of its lines begins with
    `$ `, those do that are commands, and what follows one is its answer. Raises ValueError for a fence that does not say what
    its block is: it might be commands that nobody runs.
    """
    found: list[Command | File] = []
    fence: re.Match[str] | None = None
    block: list[str] = []
    start, before, inside = 0, "", False  # `inside`: of a list, whose paragraphs are indented, too
    for number, line in enumerate([*(text or (ROOT / page).read_text()).splitlines(), ""], 1):
        if fence is not None:
            if line.startswith(fence[1]):
                found += _block(page, start, block, fence[2], fence[3])
                fence, block, before = None, [], ""
            else:
                block.append(line)
            continue
        if line.startswith("    ") and not inside and (block or not before or before.startswith("#")):
            start = start if block else number
            block.append(line[4:])
            continue
        if block:  # an empty line ends it: what follows that is a block of its own
            found += _block(page, start, block, "console", None)
            block = []
        if (fence := _FENCE.match(line)) is not None:
            if fence[2] not in (*COMMANDS, *OTHERS):
                what = fence[2] or "nothing"
                raise ValueError(f"{page}:{number}: the fence says {what}, not what it is: console, text, json, ...")
            start = number + 1
        elif line and not line.startswith(" "):
            inside = _ITEM.match(line) is not None
        before = line
    return found


def _block(page: Path, start: int, lines: list[str], language: str, title: str | None) -> list[Command | File]:
    if title is not None:
        return [File(page, start, title, textwrap.dedent("\n".join(lines)) + "\n")]
    if language not in COMMANDS:
        return []
    told = any(line.startswith("$ ") for line in lines)
    commands: list[Command] = []
    going_on = False
    for number, line in enumerate(lines, start):
        if going_on:
            commands[-1] = replace(commands[-1], text=f"{commands[-1].text}\n{line}")
        elif told and not line.startswith("$ "):
            if commands:
                commands[-1] = replace(commands[-1], answer=(*commands[-1].answer, line))
            continue
        elif line.strip():
            commands.append(Command(page, number, line.removeprefix("$ ")))
        going_on = line.endswith("\\")
    return list(commands)


def has_form(shown: tuple[str, ...], answered: str) -> bool:
    """Whether the lines stand in the answer in this order, whatever the numbers and the texts in quotes are.

    `...` in a line is anything, as a line of its own any number of lines; columns may be as wide as they like.
    """
    lines = iter(answered.splitlines())
    return all(
        any(_form(line).fullmatch(" ".join(other.split())) for other in lines) for line in shown if line.strip() != "..."
    )


# What may differ: a number, and a text in quotes that is no key. Keys and the rest stand as they are.
_VARIES = re.compile(r"(?P<key>\"[^\"]*\":)|(?P<any> ?(?:\.\.\.|…))|(?P<text>\"[^\"]*\")|(?P<number>-?\d[\d,.]*(?:e-?\d+)?)")
_FORMS = {"any": ".*", "text": r'"[^"]*"', "number": r"-?\d[\d,.]*(?:e-?\d+)?"}


def _form(line: str) -> re.Pattern[str]:
    line = " ".join(line.split())
    parts, end = [], 0
    for found in _VARIES.finditer(line):
        parts += [re.escape(line[end : found.start()]), _FORMS.get(found.lastgroup or "", re.escape(found[0]))]
        end = found.end()
    return re.compile("".join([*parts, re.escape(line[end:])]))
