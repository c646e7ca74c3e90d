"""Jupyter notebooks (nbformat 3 and 4) as one Python module each, and back, without touching the JSON around edited code.

The code cells are joined in the order in which they stand, each below a marker line. IPython's own syntax (magics, shell
lines, help) is turned into comments that say how to turn it back, so that an edited module leads to edited cells:

    #headrace cell 3                         [3]  %matplotlib inline
    #headrace:%matplotlib inline                  model = Net()
    model = Net()
"""

import ast
import bisect
import difflib
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ..finding import Finding
from ..text_lines import split_lines
from .notebook_json import Source, code_sources, edit_source
from .notebook_magics import Magics, python_part

_INDENT = re.compile(r"(?:[ \t]*(?:\r?\n|\r))*([ \t]*)")
"""The empty lines before a cell's first one, and its indentation."""


@dataclass(frozen=True)
class Cell:
    """One code cell. `shown` is its part of the module; None for a cell that holds no Python, which is never edited, and for
    one that does not parse, whose `broken` form, with magics turned into comments, a repair may put there instead."""

    number: int
    """Position among all cells of the notebook, from 1."""
    source: Source = field(repr=False)
    shown: str | None = field(repr=False)
    broken: str | None = field(default=None, repr=False)
    indent: str = field(default="", repr=False)
    """What the cell's first line is indented by, and `shown` is not: IPython takes it away before it reads a cell."""


@dataclass(frozen=True)
class Notebook:
    """The cells of one notebook, and `text`, the module that they make."""

    raw: str = field(repr=False)
    cells: tuple[Cell, ...] = field(repr=False)
    magics: Magics
    text: str = field(repr=False)
    findings: tuple[Finding, ...] = ()
    """Remarks at lines of the module."""
    starts: tuple[int, ...] = field(default=(), repr=False)
    """The lines of the module at which the cells' markers stand."""

    def locate(self, line: int) -> tuple[int, int]:
        """The cell, and the line in it, of a line of the module."""
        index = max(0, bisect.bisect_right(self.starts, line) - 1)
        return (self.cells[index].number, max(1, line - self.starts[index])) if self.cells else (1, line)

    def broken_cells(self) -> Iterator[tuple[int, str]]:
        """The line of the module where each cell that does not parse begins, and its text; the module has blank lines there."""
        for start, cell in zip(self.starts, self.cells, strict=True):
            if cell.broken is not None:
                yield start + 1, cell.broken + _newline(cell.source.text)

    def encode(self, text: str) -> str:
        """The notebook's JSON with the module's text edited; cells that read as before stay as they are, byte for byte.

        Raises ValueError when the markers of the cells are gone.
        """
        before, *parts = re.split(rf"(?m)^{re.escape(self.magics.marker)} cell \d+\n", text)
        if len(parts) != len(self.cells):
            raise ValueError(f"the markers of {len(self.cells)} cells were expected in the edited module, found {len(parts)}")
        edits: list[tuple[int, int, str]] = []
        for cell, part in zip(self.cells, parts, strict=True):
            if cell.shown is None and (cell.broken is None or not part.strip()):
                continue
            new = self.magics.restore(before + part.removesuffix(_newline(cell.source.text)))
            before = ""
            new = _indented(cell, new)
            if new != cell.source.text:
                edits += edit_source(self.raw, cell.source, new)
        result = self.raw
        for start, end, replacement in sorted(edits, reverse=True):
            result = result[:start] + replacement + result[end:]
        return result


def read_notebook(path: str, raw: str) -> Notebook:
    """Read a notebook's JSON text. Raises ValueError, with the reason, for what is not a notebook."""
    data = _loaded(raw)
    language = _language(data)
    if not language.startswith(("python", "ipython")):
        left = Finding(path, 1, 0, "PS003", f"skipped: the notebook's language is {language}, not Python", "note")
        return Notebook(raw, (), Magics(""), "", (left,))
    sources = list(code_sources(raw, data))
    magics = Magics("\n".join(source.text for _, source in sources))
    cells: list[Cell] = []
    findings: list[Finding] = []
    starts: list[int] = []
    text: list[str] = []
    line = 1
    for number, source in sources:
        futures = "__future__" in source.text and _has_statements("".join(text))
        shown, problem = _python(source.text, magics, futures)
        indent = first[1] if problem is not None and (first := _INDENT.match(source.text)) is not None else ""
        if indent:
            plain, still = _python(_dedented(source.text, indent), magics, futures)
            shown, problem, indent = (plain, None, indent) if still is None else (shown, problem, "")
            if indent and not _all_indented(source.text, indent):
                message = "the cell's first line is indented and others are not, which newer IPython takes for an error"
                findings.append(Finding(path, line + 1, 0, "PS001", message, "note"))
        if problem is not None:
            message = f"the cell does not parse, and was left as it is: {problem[1]}"
            findings.append(Finding(path, line + problem[0], 0, "PS001", message, "warning"))
        body = shown + _newline(source.text) if shown is not None else "\n" * len(split_lines(source.text + "\n"))
        starts.append(line)
        broken = magics.comment_out(source.text, futures) if problem is not None else None
        cells.append(Cell(number, source, shown, broken, indent))
        text += [f"{magics.marker} cell {number}\n", body]
        line += 1 + len(split_lines(body))
    findings += _disorder(path, data)
    return Notebook(raw, tuple(cells), magics, "".join(text), tuple(findings), tuple(starts))


def cell_sources(raw: str) -> dict[int, str]:
    """The code of each code cell, by the cell's number."""
    return {number: source.text for number, source in code_sources(raw, _loaded(raw))}


def _loaded(raw: str) -> Mapping[str, Any]:
    try:
        data = json.loads(raw)
    except RecursionError as error:
        raise ValueError("its JSON is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"it is not valid JSON: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("worksheets", data.get("cells")), list):
        raise ValueError("its JSON is no notebook of nbformat 3 or 4, which has a list of cells")
    return data


def _language(data: Mapping[str, Any]) -> str:
    """What the notebook says of its language; notebooks that say nothing are Python's."""
    metadata = data.get("metadata")
    if not isinstance(metadata, dict):
        return "python"
    declared = [metadata.get("kernelspec"), metadata.get("language_info")]
    names = [item.get(key) for item, key in zip(declared, ("language", "name"), strict=True) if isinstance(item, dict)]
    return next((name.lower() for name in names if isinstance(name, str) and name), "python")


def _has_statements(module: str) -> bool:
    return bool(ast.parse(module).body)


def _python(source: str, magics: Magics, futures: bool) -> tuple[str | None, tuple[int, str] | None]:
    """A cell as Python of as many lines, or None; and the line and the reason where Python is expected but does not parse."""
    hidden = futures or any(map(magics.is_unsigned, source.splitlines()))
    if not hidden and _parse_error(source) is None:
        return source, None
    if not python_part(source):
        return None, None
    shown = magics.comment_out(source, futures)
    problem = _parse_error(shown)
    return (None, problem) if problem is not None else (shown, None)


def _dedented(source: str, indent: str) -> str:
    """The cell without the indentation of its first line, which IPython takes from each line that begins with it."""
    return "".join(line.removeprefix(indent) for line in split_lines(source))


def _all_indented(source: str, indent: str) -> bool:
    return all(line.startswith(indent) for line in split_lines(source) if line.strip())


def _indented(cell: Cell, new: str) -> str:
    """An edited cell with the indentation that its text had; new lines have it too, so that IPython takes it away again."""
    if not cell.indent:
        return new
    old, lines = split_lines(cell.source.text), split_lines(new)
    plain = [line.removeprefix(cell.indent) for line in old]
    if not plain[-1] and new.endswith(("\n", "\r")):
        lines.append("")  # a last line of the indentation alone, of which nothing is left that could be edited
    result: list[str] = []
    for what, begin, end, first, last in difflib.SequenceMatcher(None, plain, lines, autojunk=False).get_opcodes():
        kept = (
            old[begin:end] if what == "equal" else [cell.indent + line if line.strip() else line for line in lines[first:last]]
        )
        result += kept
    return "".join(result)


def _parse_error(source: str) -> tuple[int, str] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the user's strings are not ours to print
            ast.parse(source)
    except SyntaxError as error:
        return error.lineno or 1, error.msg
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL, half of a surrogate pair, or deep nesting
        return 1, f"{type(error).__name__}: {error}"
    return None


def _newline(source: str) -> str:
    """What a line added below the last one is parted from it by."""
    return "\r\n" if "\r\n" in source else "\n"


def _disorder(path: str, data: Mapping[str, Any]) -> Iterator[Finding]:
    """A note where the cells were last run in another order than they stand in."""
    sheets = [sheet for sheet in data.get("worksheets", [data]) if isinstance(sheet, dict)]
    cells = [cell for sheet in sheets if isinstance(sheet.get("cells"), list) for cell in sheet["cells"]]
    counts = [cell.get("execution_count", cell.get("prompt_number")) for cell in cells if isinstance(cell, dict)]
    run = [count for count in counts if isinstance(count, int)]
    for one, next_one in pairwise(run):
        if next_one < one:
            message = (
                f"its cells were last run in another order than they stand in (In [{one}] stands before In [{next_one}]); "
                "they are taken in the order in which they stand"
            )
            yield Finding(path, 1, 0, "PS006", message, "note")
            return
