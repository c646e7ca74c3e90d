"""PS102: `print` as a statement of Python 2."""

from collections.abc import Iterator, Sequence

from ..reading.edits import Edit, Positions
from ..reading.lexer import Token, split, statements
from ..rewriting.rule import Fix, TextRule, diff

_EXAMPLE = diff("""\
import sys

import torch

-for i in range(3): print i, "of", 3,
-print
-print "loss %.3f" % 0.5  # print x
-print("a") + "b"
-print >>sys.stderr, "done"
+for i in range(3): print(i, "of", 3, end=" ")
+print()
+print("loss %.3f" % 0.5)  # print x
+print(("a") + "b")
+print("done", file=sys.stderr)
print("already a call")
""")


class PrintStatement(TextRule):
    """What it does: makes the print statement of Python 2 a call.

    Why: a file with it does not parse, so nothing of it can run.

    Example: `print "loss", loss` becomes `print("loss", loss)`; `print >>f, x` becomes `print(x, file=f)`.

    Fix safety: safe; the text that is printed stays the same, but for blanks at the end of a line that a comma kept open.
    """

    safety = "safe"
    VALID = ("import torch\n\nprint(torch.ones(2))\nprint('print x')  # print x\n",)
    INVALID = (_EXAMPLE,)

    def check_text(self, path: str, text: str) -> Iterator[Fix]:
        positions = Positions(text)
        for statement in statements(text):
            first = statement[0]
            if first.kind == "name" and first.text == "print" and not _is_call(statement):
                message = "print has been a function since Python 3; write print(...)"
                yield self.fix_at(path, positions, first.start, message, _edits(text, statement))


def _is_call(statement: Sequence[Token]) -> bool:
    """Whether it is none of Python 2: `print(...)` and nothing after it but a bracket too many, or `print` used as a value."""
    if len(statement) < 2 or statement[1].text != "(":
        return len(statement) > 1 and statement[1].text in ("=", ".", ":", ",")
    closing = next((index for index, token in enumerate(statement) if index > 1 and token.depth == 0), len(statement) - 1)
    return all(token.text in (")", "]", "}") for token in statement[closing:])


def _edits(text: str, statement: Sequence[Token]) -> list[Edit]:
    first, rest = statement[0], list(statement[1:])
    if not rest:
        return [Edit(first.end, first.end, "()")]
    extra = ""
    start = rest[0].start
    if rest[0].text == ">>":
        parts = split(rest[1:])
        extra = f"file={text[parts[0][0].start : parts[0][-1].end]}"
        rest = [token for token in rest if token.start > parts[0][-1].end - 1][1:]
    if rest and rest[-1].text == ",":
        extra = ", ".join(filter(None, ['end=" "', extra]))
        rest.pop()
    if not rest:
        return [Edit(first.end, statement[-1].end, f"({extra})")]
    opening = Edit(first.end, max(start, rest[0].start), "(")
    end = rest[-1].end
    return [opening, Edit(end, statement[-1].end, f"{', ' if extra else ''}{extra})")]
