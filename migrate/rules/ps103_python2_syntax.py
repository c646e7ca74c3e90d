"""PS103: other syntax of Python 2: `except E, e`, `raise E, text`, `<>`, backquotes, octal numbers, `ur''`, `exec`."""

import re
from collections.abc import Iterator, Sequence

from ..reading.edits import Edit, Positions
from ..reading.lexer import Token, split, statements
from ..rewriting.rule import Fix, TextRule, diff

_EXAMPLE = diff("""\
import os

import torch

try:
-    os.makedirs("out", 0755)
-except OSError, error:
-    raise ValueError, "no: %s" % `error`
-if 1 <> 2:
-    exec "x = 1"
+    os.makedirs("out", 0o755)
+except OSError as error:
+    raise ValueError("no: %s" % repr(error))
+if 1 != 2:
+    exec("x = 1")
""")


class Python2Syntax(TextRule):
    """What it does: brings syntax that only Python 2 has into the form that both have.

    Why: a file with it does not parse, so nothing of it can run.

    Example: `except IOError, error:` becomes `except IOError as error:`.

    Fix safety: safe; each form has exactly one counterpart.
    """

    safety = "safe"
    VALID = (
        "import torch\n\ntry:\n    pass\nexcept (OSError, ValueError) as error:\n    raise ValueError('<> 0755') from error\n",
    )
    INVALID = (_EXAMPLE,)

    def check_text(self, path: str, text: str) -> Iterator[Fix]:
        positions = Positions(text)
        for statement in statements(text):
            for start, message, edits in [*_clauses(text, statement), *_tokens(statement)]:
                yield self.fix_at(path, positions, start, message, edits)


def _clauses(text: str, statement: Sequence[Token]) -> Iterator[tuple[int, str, list[Edit]]]:
    first = statement[0]
    body = [token for token in statement[1:] if not (token.text == ":" and token is statement[-1])]
    if first.kind != "name" or not body:
        return
    parts = split(body)
    if first.text == "except" and len(parts) == 2 and parts[0] and len(parts[1]) == 1 and not parts[1][0].text[0].isupper():
        # With a class there, it is Python 3.14's tuple without brackets.
        edits = [Edit(parts[0][-1].end, parts[1][0].start, " as ")]
        yield first.start, "except takes the name after `as` in Python 3", edits
    elif first.text == "raise" and len(parts) == 2 and all(parts) and body[0].text != "(":
        end = parts[1][-1].end
        edits = [Edit(parts[0][-1].end, parts[1][0].start, "("), Edit(end, end, ")")]
        yield first.start, "raise takes one exception in Python 3; put the message in brackets", edits
    elif first.text == "exec" and body[0].text != "(" and body[0].text not in ("=", ".") and not _has_in(body):
        start, end = body[0].start, body[-1].end
        edits = [Edit(first.end, start, "("), Edit(end, end, ")")]
        yield first.start, "exec is a function in Python 3; write exec(...)", edits


def _has_in(body: Sequence[Token]) -> bool:
    return any(token.text == "in" and token.kind == "name" for token in body)


def _tokens(statement: Sequence[Token]) -> Iterator[tuple[int, str, list[Edit]]]:
    quotes: list[Token] = []
    for token in statement:
        if token.kind == "operator" and token.text == "<>":
            yield token.start, "Python 3 has no <>; write !=", [Edit(token.start, token.end, "!=")]
        elif token.kind == "operator" and token.text == "`":
            quotes.append(token)
            if len(quotes) == 2:
                opening, closing = quotes
                edits = [Edit(opening.start, opening.end, "repr("), Edit(closing.start, closing.end, ")")]
                yield opening.start, "Python 3 has no backquotes; write repr()", edits
                quotes = []
        elif token.kind == "number" and re.fullmatch(r"0[0-7]+[lL]?", token.text) and token.text.strip("0lL"):
            number = "0o" + token.text[1:].rstrip("lL")
            yield token.start, "octal numbers begin with 0o in Python 3", [Edit(token.start, token.end, number)]
        elif token.kind == "number" and re.fullmatch(r"(\d+|0[xX][\da-fA-F]+)[lL]", token.text):
            yield token.start, "integers have no suffix in Python 3; leave the L out", [Edit(token.end - 1, token.end, "")]
        elif token.kind == "string" and token.text[:2].lower() == "ur":
            yield token.start, "every string is Unicode in Python 3; leave the u out", [Edit(token.start, token.start + 1, "")]
