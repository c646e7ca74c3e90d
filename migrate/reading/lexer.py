"""Tokens of Python text of any version: for files that today's parser refuses, and so may today's tokenizer."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"(?P<string>[rRbBuUfF]{0,3}(?:'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^\\'\r\n])*'|\"(?:\\.|[^\\\"\r\n])*\"))"
    r"|(?P<comment>\#[^\r\n]*)"
    r"|(?P<joined>\\(?:\r\n|\r|\n))"
    r"|(?P<newline>\r\n|\r|\n)"
    r"|(?P<blank>[ \t\f]+)"
    r"|(?P<number>\.?\d(?:[\w.]|(?<=[eE])[+-])*)"
    r"|(?P<name>\w+)"
    r"|(?P<operator>\*\*=?|//=?|>>=?|<<=?|<>|[!=<>]=|->|[-+*/%&|^@:]=|.)",
    re.DOTALL,
)
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")


@dataclass(frozen=True)
class Token:
    """text[start:end]; `depth` counts the brackets around it, an opening bracket and its closing one excluded."""

    kind: str
    text: str
    start: int
    end: int
    depth: int


def tokens(text: str) -> Iterator[Token]:
    """Every token but blanks, comments and joined lines; a "newline" inside of brackets is left out, too."""
    depth = 0
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "operator"
        if kind in ("blank", "comment", "joined") or (kind == "newline" and depth):
            continue
        found = match.group()
        if kind == "operator" and found in _CLOSE:
            depth = max(0, depth - 1)
        yield Token(kind, found, match.start(), match.end(), depth)
        if kind == "operator" and found in _OPEN:
            depth += 1


def statements(text: str) -> Iterator[list[Token]]:
    """Simple statements and headers of compound ones, as lists of tokens; what follows a header's colon stands alone."""
    current: list[Token] = []
    lambdas = 0
    for token in tokens(text):
        at_end = token.depth == 0 and token.kind == "operator"
        lambdas += token.kind == "name" and token.text == "lambda" and token.depth == 0
        if token.kind == "newline" or (at_end and token.text == ";"):
            if current:
                yield current
            current, lambdas = [], 0
        elif at_end and token.text == ":" and not lambdas and current and current[0].text in _COMPOUND:
            yield [*current, token]
            current = []
        else:
            lambdas -= at_end and token.text == ":" and lambdas > 0
            current.append(token)
    if current:
        yield current


_COMPOUND = frozenset(["if", "elif", "else", "for", "while", "try", "except", "finally", "with", "def", "class"])


def split(items: Sequence[Token], separator: str = ",") -> list[list[Token]]:
    """The tokens between separators at the depth of the first one."""
    parts: list[list[Token]] = [[]]
    for token in items:
        if token.text == separator and token.kind == "operator" and token.depth == items[0].depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
