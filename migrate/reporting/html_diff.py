"""Two versions of a file side by side, with syntax colours and the changed words marked, as rows of an HTML table."""

from __future__ import annotations

import difflib
import html
import re
from collections.abc import Iterator, Sequence

from pygments import lex
from pygments.lexers.python import PythonLexer
from pygments.lexers.special import TextLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

CONTEXT = 3
_COLOURS = (
    (Comment, "c"), (String, "s"), (Number, "n"), (Keyword, "k"), (Name.Function, "f"), (Name.Class, "f"),
    (Name.Decorator, "f"), (Name.Builtin, "b"), (Operator.Word, "k"),
)  # fmt: skip
# Characters that change the order or the visibility of others, with which code can be made to look like other code.
_TRICKS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
Fragment = tuple[str, str]
"""A CSS class, or "", and text."""


def safe(text: object) -> str:
    """Text for HTML: markup escaped, invisible and reordering characters spelt out."""
    return html.escape(_TRICKS.sub(lambda found: f"\\u{ord(found[0]):04x}", str(text)), quote=True)


def side_by_side(old: str, new: str, *, python: bool) -> str:
    """A change as an HTML table: old line, old code, new line, new code; far from any change, lines are left out."""
    before, after = (_lines(text, python) for text in (old, new))
    rows: list[str] = []
    plain = [["".join(text for _, text in line) for line in lines] for lines in (before, after)]
    groups = difflib.SequenceMatcher(a=plain[0], b=plain[1], autojunk=False).get_grouped_opcodes(CONTEXT)
    for number, group in enumerate(groups):
        if number or group[0][1]:
            rows.append('<tr class="gap"><td colspan="4">&#8943;</td></tr>')
        for kind, i1, i2, j1, j2 in group:
            rows += _rows(kind, i1, before[i1:i2], j1, after[j1:j2])
    return f'<table class="diff"><colgroup><col class="no"><col><col class="no"><col></colgroup>{"".join(rows)}</table>'


def _rows(
    kind: str, first: int, before: Sequence[list[Fragment]], second: int, after: Sequence[list[Fragment]]
) -> Iterator[str]:
    for index in range(max(len(before), len(after))):
        old = before[index] if index < len(before) else None
        new = after[index] if index < len(after) else None
        if kind == "equal":
            assert old is not None
            assert new is not None
            cells = [_cell(first + index, old, "", ()), _cell(second + index, new, "", ())]
        else:
            gone, come = _changed(old, new) if old is not None and new is not None else ((), ())
            cells = [_cell(first + index, old, "del", gone), _cell(second + index, new, "ins", come)]
        yield f"<tr>{''.join(cells)}</tr>"


def _cell(line: int, fragments: list[Fragment] | None, kind: str, marked: Sequence[tuple[int, int]]) -> str:
    if fragments is None:
        return '<td class="no none"></td><td class="none"></td>'
    return f'<td class="no {kind}">{line + 1}</td><td class="{kind}"><code>{"".join(_marked(fragments, marked))}</code></td>'


def _changed(old: list[Fragment], new: list[Fragment]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The parts of two lines that differ; none where the lines have little in common, for then all of it does."""
    texts = ["".join(text for _, text in line) for line in (old, new)]
    matcher = difflib.SequenceMatcher(a=texts[0], b=texts[1], autojunk=False)
    if len(texts[0]) + len(texts[1]) > 2000 or matcher.ratio() < 0.5:
        return [], []
    codes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    return [(i1, i2) for _, i1, i2, _, _ in codes], [(j1, j2) for _, _, _, j1, j2 in codes]


def _marked(fragments: list[Fragment], marked: Sequence[tuple[int, int]]) -> Iterator[str]:
    """The fragments as HTML, cut where a mark begins or ends."""
    edges = sorted({edge for span in marked for edge in span})
    position = 0
    for kind, text in fragments:
        cuts = [edge - position for edge in edges if position < edge < position + len(text)]
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            inside = any(low <= position + start and position + end <= high for low, high in marked)
            classes = " ".join(filter(None, [kind, "mark" if inside else ""]))
            piece = safe(text[start:end])
            yield f'<span class="{classes}">{piece}</span>' if classes else piece
        position += len(text)


def _lines(text: str, python: bool) -> list[list[Fragment]]:
    """The lines of a source as coloured fragments."""
    lexer = (PythonLexer if python else TextLexer)(stripnl=False, ensurenl=False)
    lines: list[list[Fragment]] = [[]]
    for kind, value in lex(text, lexer):
        first, *more = value.split("\n")
        lines[-1] += [(_colour(kind), first)] if first else []
        lines += [[(_colour(kind), piece)] if piece else [] for piece in more]
    return lines if lines[-1] else lines[:-1]


def _colour(kind: _TokenType) -> str:
    return next((name for parent, name in _COLOURS if kind in parent), "")
