"""PS141: f-strings that hold their own quotes, backslashes or line breaks in braces, as Python 3.12 takes them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..reading.edits import Edit, Positions
from ..rewriting.rule import Fix, TextRule, diff

_START = re.compile(r"(?<!\w)([rRbBuUfF]{0,2})('''|\"\"\"|'|\")")
_ESCAPES = {"\\n": "chr(10)", "\\t": "chr(9)", "\\r": "chr(13)", "\\\\": "chr(92)"}
_NUMBERED = r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
_VALID = """\
import torch

print(f"{torch.ones(1)['a']:>{4}} {{"no"}}
"""
_EXAMPLE = diff("""\
import torch

-print(f"{names["best"]:.3f} of {f"{names["all"]}"}, {"it's"}")
-print(f"{"\\n- ".join(lines)}{"\\n".join(lines)}")
+print(f\"\"\"{names["best"]:.3f} of {f"{names['all']}"}, {"it's"}\"\"\")
+print(f"{(chr(10) + '- ').join(lines)}{chr(10).join(lines)}")
-print(f"{now("%H")} {"{"}{"\\u2500" * 3}")
+print(f"{now('%H')} {'{'}{chr(9472) * 3}")
""")


class NestedQuotes(TextRule):
    """What it does: writes f-strings in a way that Python before 3.12 reads too.

    Why: since Python 3.12 the expressions in an f-string may hold its own quotes, backslashes and line breaks; an older
    Python, which is what the models are run with here, takes the file for broken.

    Example: `f"{now("%H")}"` becomes `f"{now('%H')}"`.

    Fix safety: safe; the strings stay the same. Other quotes are written inside where the text there has none of them, else
    three outside, and `chr(10)` for a line break.
    """

    safety = "safe"
    VALID = (_VALID,)
    INVALID = (_EXAMPLE,) if sys.version_info < (3, 12) else ()

    def check_text(self, path: str, text: str) -> Iterator[Fix]:
        positions = Positions(text)
        for literal in _strings(text):
            if edits := _mended(text, literal):
                message = "before Python 3.12 an f-string's expressions hold none of its own quotes and no backslashes"
                yield self.fix_at(path, positions, literal.start, message, edits)


@dataclass
class _String:
    """A string literal, text[start:end], and those that stand in its braces."""

    start: int
    quote: str
    prefix: str
    end: int = 0
    inner: list[_String] = field(default_factory=list)
    broken: bool = False
    """Whether a line ends in its braces."""

    @property
    def body(self) -> tuple[int, int]:
        return self.start + len(self.prefix) + len(self.quote), self.end - len(self.quote)


class _UnclearError(Exception):
    """The text is no string of any version."""


def _strings(text: str) -> Iterator[_String]:
    """The strings of a text that stand in no other one; what is not understood is passed over."""
    at = 0
    while at < len(text):
        if text[at] == "#":
            at = _line_end(text, at)
        elif start := _START.match(text, at):
            try:
                literal = _read(text, start)
            except (_UnclearError, RecursionError):
                at = start.end()
                continue
            yield literal
            at = literal.end
        else:
            at += 1


def _line_end(text: str, at: int) -> int:
    found = re.compile(r"[\r\n]").search(text, at)
    return found.start() if found else len(text)


def _read(text: str, start: re.Match[str]) -> _String:
    literal = _String(start.start(), start[2], start[1])
    formatted, at = "f" in start[1].lower(), start.end()
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text.startswith(literal.quote, at):
            literal.end = at + len(literal.quote)
            return literal
        elif formatted and text.startswith(("{{", "}}"), at):
            at += 2
        elif formatted and text[at] == "{":
            at = _field(text, at + 1, literal)
        elif text[at] in "\r\n" and len(literal.quote) == 1:
            break
        else:
            at += 1
    raise _UnclearError


def _field(text: str, at: int, literal: _String) -> int:
    """The end of a replacement field that begins at `at`, behind its closing brace."""
    depth = 0
    while at < len(text):
        char = text[at]
        if start := _START.match(text, at):
            inner = _read(text, start)
            literal.inner.append(inner)
            at = inner.end
            continue
        if char == "}" and not depth:
            return at + 1
        if char == ":" and not depth and not text.startswith(":=", at):
            return _specification(text, at + 1, literal)
        depth += (char in "([{") - (char in ")]}")
        literal.broken |= char in "\r\n"
        if depth < 0 or char in "\\#":
            break
        at += 1
    raise _UnclearError


def _specification(text: str, at: int, literal: _String) -> int:
    while at < len(text) and text[at] not in "\r\n" and not text.startswith(literal.quote, at):
        if text[at] == "}":
            return at + 1
        at = _field(text, at + 1, literal) if text[at] == "{" else at + 1
    raise _UnclearError


def _mended(text: str, literal: _String, *, within: str = "") -> list[Edit]:
    """What makes a string one of Python 3.11; `within` are the kinds of quotes that are taken around it."""
    edits: list[Edit] = []
    taken = within + literal.quote[0] if len(literal.quote) == 1 else within
    swap = {'"': "'", "'": '"'}
    conflict = [inner for inner in literal.inner if inner.quote[0] in taken and not _escaped(text, inner)]
    fits = all(
        len(inner.quote) == 1
        and not inner.inner
        and swap[inner.quote] not in taken
        and not re.search(r"[\\'\"]", text[slice(*inner.body)])
        for inner in conflict
    )
    if len(literal.quote) == 1 and not within and (literal.broken or not fits):
        begin, end = literal.body
        edits += [Edit(begin - 1, begin, literal.quote * 3), Edit(end, literal.end, literal.quote * 3)]
        conflict, taken = [], ""
    for inner in literal.inner:
        if _escaped(text, inner):
            edits += [Edit(inner.start, inner.end, spelled)] if (spelled := _spelled(text, inner, taken)) else []
        elif inner in conflict and fits:
            begin, end = inner.body
            edits += [Edit(begin - 1, begin, swap[inner.quote]), Edit(end, inner.end, swap[inner.quote])]
        elif inner.inner:
            edits += _mended(text, inner, within=taken or within)
    return edits


def _escaped(text: str, literal: _String) -> bool:
    return "\\" in text[literal.start : literal.end] and not literal.inner


def _spelled(text: str, literal: _String, taken: str) -> str | None:
    """An expression without a backslash for a string with some, where each stands for one character that is known."""
    if literal.prefix or len(literal.quote) > 1:
        return None
    quote = next((mark for mark in "'\"" if mark not in taken), None)
    parts = []
    for part in re.findall(rf"{_NUMBERED}|\\.|[^\\]+", text[slice(*literal.body)], re.DOTALL):
        plain = quote is not None and not part.startswith("\\") and not re.search("['\"]", part)
        spelled = f"{quote}{part}{quote}" if plain else _ESCAPES.get(part) or _numbered(part)
        if spelled is None:
            return None
        parts.append(spelled)
    return parts[0] if len(parts) == 1 else f"({' + '.join(parts)})"


def _numbered(part: str) -> str | None:
    """`chr(9472)` of the escape with that number."""
    return f"chr({int(part[2:], 16)})" if re.fullmatch(_NUMBERED, part) else None
