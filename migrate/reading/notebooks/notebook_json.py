"""The places of code in a notebook's JSON text, and edits of that text that leave everything else as it is.

nbformat 4 has `cells[].source`, nbformat 3 `worksheets[].cells[].input`; both are a string or a list of strings.
See https://nbformat.readthedocs.io/en/latest/format_description.html
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from ..text_lines import split_lines

MAX_COMPARED = 4_000_000
"""Characters before times characters after, up to which a change is taken apart."""
RawEdit = tuple[int, int, str]
_SPACE = re.compile(r"[ \t\r\n]*")
_CHARACTER = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.", re.S)
_DECODER = json.JSONDecoder()
Span = tuple[int, int]


@dataclass(frozen=True)
class Source:
    """The code of one cell: its text, the span of its value in the JSON text, and the spans of the strings that make it."""

    text: str = field(repr=False)
    span: Span
    strings: tuple[Span, ...] = field(repr=False)
    listed: bool
    """Whether the value is a list of strings."""


def code_sources(raw: str, data: Mapping[str, Any]) -> Iterator[tuple[int, Source]]:
    """The code cells of a notebook, whose JSON is `data`, with their positions among all cells, from 1."""
    top = _members(raw, _after_space(raw, 0))
    number = 0
    sheets = [_members(raw, start) for start, _ in _elements(raw, top["worksheets"][0])] if "worksheets" in data else [top]
    for sheet in sheets:
        if "cells" not in sheet or raw[sheet["cells"][0]] != "[":
            continue
        for start, _ in _elements(raw, sheet["cells"][0]):
            number += 1
            cell = _members(raw, start)
            kind = cell.get("cell_type")
            value = cell.get("source", cell.get("input"))
            if kind is None or value is None or json.loads(raw[slice(*kind)]) != "code":
                continue
            source = _source(raw, value)
            if source is not None:
                yield number, source


def _source(raw: str, span: Span) -> Source | None:
    opening = raw[span[0]]
    if opening == '"':
        return Source(json.loads(raw[slice(*span)]), span, (span,), False)
    if opening != "[":
        return None
    strings = tuple(_elements(raw, span[0]))
    parts = [json.loads(raw[slice(*place)]) for place in strings]
    return Source("".join(parts), span, strings, True) if all(isinstance(part, str) for part in parts) else None


def _members(raw: str, start: int) -> dict[str, Span]:
    """The spans of an object's values; empty for anything else. The text is valid JSON."""
    found: dict[str, Span] = {}
    if raw[start] != "{":
        return found
    at = _after_space(raw, start + 1)
    while raw[at] != "}":
        key, at = scanstring(raw, at + 1)
        at = _after_space(raw, _after_space(raw, at) + 1)
        _, end = _DECODER.raw_decode(raw, at)
        found[key] = (at, end)
        at = _after_comma(raw, end)
    return found


def _elements(raw: str, start: int) -> Iterator[Span]:
    """The spans of an array's values."""
    at = _after_space(raw, start + 1)
    while raw[at] != "]":
        _, end = _DECODER.raw_decode(raw, at)
        yield at, end
        at = _after_comma(raw, end)


def _after_space(raw: str, at: int) -> int:
    found = _SPACE.match(raw, at)
    assert found is not None
    return found.end()


def _after_comma(raw: str, at: int) -> int:
    at = _after_space(raw, at)
    return _after_space(raw, at + 1) if raw[at] == "," else at


def edit_source(raw: str, source: Source, new: str) -> list[RawEdit]:
    """The edits of the JSON text that make `new` of a cell's code, in the form (one string, or one per line) that it has."""
    ascii_only = raw.isascii()

    def encode(text: str) -> str:
        return json.dumps(text, ensure_ascii=ascii_only)[1:-1]

    if not source.text:
        value: str | list[str] = split_lines(new) if source.listed else new
        return [(*source.span, json.dumps(value, ensure_ascii=ascii_only))]
    places = [
        (start + 1 + found.start(), index)
        for index, (start, end) in enumerate(source.strings)
        for found in _CHARACTER.finditer(raw[start + 1 : end - 1])
    ]
    assert len(places) == len(source.text)
    places.append((source.strings[-1][1] - 1, len(source.strings) - 1))
    between = _between(raw, source)
    edits: list[RawEdit] = []
    for start, end, text in _differences(source.text, new):
        pieces = split_lines(text)
        if text.endswith("\n") and end < len(source.text):
            pieces.append("")
        joined = f'"{between}"'.join(map(encode, pieces)) if source.listed else encode(text)
        edits.append((places[start][0], places[end][0], joined))
    return edits


def _between(raw: str, source: Source) -> str:
    """What stands between the strings of a list."""
    if len(source.strings) > 1:
        return raw[source.strings[0][1] : source.strings[1][0]]
    return "," + raw[source.span[0] + 1 : source.strings[0][0]]


def _differences(old: str, new: str) -> Iterator[tuple[int, int, str]]:
    """old[start:end] becomes text, so that what both have stays: by lines, and by characters within changed lines."""
    before, after = split_lines(old), split_lines(new)
    starts = [0]
    for line in before:
        starts.append(starts[-1] + len(line))
    for tag, i, j, k, m in _opcodes(before, after):
        if tag == "equal":
            continue
        one, other = "".join(before[i:j]), "".join(after[k:m])
        if len(one) * len(other) > MAX_COMPARED:
            yield starts[i], starts[j], other
            continue
        for kind, a, b, c, d in _opcodes(one, other):
            if kind != "equal":
                yield starts[i] + a, starts[i] + b, other[c:d]


def _opcodes(old: Sequence[str], new: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
    return difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
