"""Edits of a file's text, at positions that `ast` gives; everything between them stays as it is, byte for byte."""

import ast
import bisect
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from .source import split_lines

Spanned = ast.expr | ast.stmt | ast.keyword | ast.alias | ast.arg


@dataclass(frozen=True, order=True)
class Edit:
    """Replace text[start:end], in characters, by `text`."""

    start: int
    end: int
    text: str


class Positions:
    """Character offsets of `ast` positions in one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = split_lines(text)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def offset(self, line: int, column: int) -> int:
        """`line` counts from 1; `column` is in UTF-8 bytes, as `ast` has it."""
        text = self.lines[line - 1]
        return self.starts[line - 1] + (column if text.isascii() else len(text.encode()[:column].decode(errors="replace")))

    def place(self, offset: int) -> tuple[int, int]:
        """The line, from 1, and the column, in characters from 0, of a character."""
        line = max(1, min(bisect.bisect_right(self.starts, offset), len(self.lines) or 1))
        return line, offset - self.starts[line - 1]

    def span(self, node: Spanned) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def sign_between(self, left: Spanned, right: Spanned, sign: str) -> int | None:
        """Where a sign stands between two nodes; None where it stands there twice, or a comment does."""
        start, end = self.span(left)[1], self.span(right)[0]
        between = self.text[start:end]
        return start + between.index(sign) if between.count(sign) == 1 and "#" not in between else None

    def indent(self, line: int) -> str:
        text = self.lines[line - 1]
        return text[: len(text) - len(text.lstrip(" \t\f"))]

    def newline(self, line: int) -> str:
        """The line ending in use at a line, or in the file, or "\\n"."""
        for text in (self.lines[line - 1 : line] or []) + self.lines:
            for ending in ("\r\n", "\n", "\r"):
                if text.endswith(ending):
                    return ending
        return "\n"

    def starts_line(self, node: ast.stmt) -> bool:
        """Whether nothing but blanks stands before a statement on its line."""
        return not self.lines[node.lineno - 1].encode()[: node.col_offset].strip()

    def continues(self, line: int) -> bool:
        """Whether a line, if there is one of that number, goes on in the next by a backslash."""
        return line >= 1 and self.lines[line - 1].rstrip("\r\n").endswith("\\")

    def leave_out(self, items: Sequence[Spanned], gone: Container[Spanned]) -> list[Edit]:
        """Take some of a list's items out, not all, each with its comma: the next one, or for the last items the one before."""
        spans = [self.span(item) for item in items]
        last = max(index for index, item in enumerate(items) if item not in gone)
        return [
            Edit(start, spans[index + 1][0], "") if index < last else Edit(spans[index - 1][1], end, "")
            for index, (start, end) in enumerate(spans)
            if items[index] in gone
        ]

    def insert_after(self, node: ast.stmt, text: str) -> Edit:
        """A new line below the last line of a statement, indented like its first."""
        assert node.end_lineno is not None
        line, newline = node.end_lineno, self.newline(node.end_lineno)
        place = self.starts[line]
        added = f"{self.indent(node.lineno)}{text}{newline}"
        if not self.lines[line - 1].endswith(("\n", "\r")):
            added = newline + added.removesuffix(newline)
        return Edit(place, place, added)

    def insert_before(self, node: ast.stmt, text: str) -> Edit:
        """A new line above a statement (and its decorators), indented like it."""
        line = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))])
        place = self.starts[line - 1]
        return Edit(place, place, f"{self.indent(line)}{text}{self.newline(line)}")


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text after the edits, which must not overlap; insertions at one place keep the order in which they are given."""
    result: list[str] = []
    position = 0
    for edit in sorted(dict.fromkeys(edits), key=lambda item: (item.start, item.end)):
        if edit.start < position:
            raise ValueError(f"edits overlap at character {edit.start}")
        result += [text[position : edit.start], edit.text]
        position = edit.end
    return "".join([*result, text[position:]])


def trace_back(edits: Iterable[Edit], offset: int) -> int:
    """Where a character of the edited text stood before the edits; what an edit wrote stood where the edit begins."""
    shift = 0
    for edit in sorted(dict.fromkeys(edits), key=lambda item: (item.start, item.end)):
        begins = edit.start + shift
        if offset < begins:
            break
        if offset < begins + len(edit.text):
            return edit.start
        shift += len(edit.text) - (edit.end - edit.start)
    return offset - shift
