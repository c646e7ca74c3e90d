"""PS140: tabs and blanks mixed in one block's indentation."""

from collections.abc import Iterator, Sequence

from ..reading.edits import Edit, Positions
from ..reading.lexer import tokens
from ..rewriting.rule import Fix, TextRule

_TAB = 8
"""The columns that Python 2 gave a tab at most."""
_TEXT = "import torch\n\nif torch:\n\tx = '''\n\ta'''\n        y = (1,  # eight blanks\n\t2)\n"


class MixedTabs(TextRule):
    """What it does: writes blanks in place of the tabs in a file's indentation, up to the next eighth column.

    Why: Python 3 refuses a block whose lines are indented by tabs here and by blanks there; Python 2 took them as a terminal
    shows them.

    Example: a line indented by a tab, below one indented by eight blanks, is indented by eight blanks too.

    Fix safety: safe; it is what Python 2 read. Lines inside of strings and brackets stay.
    """

    safety = "safe"
    VALID = ("import torch\n\nif torch:\n\tx = 1\n\tif x:\n\t        y = 2\n",)
    INVALID = ((_TEXT, _TEXT.replace("\tx", "        x")),)

    def check_text(self, path: str, text: str) -> Iterator[Fix]:
        positions = Positions(text)
        indents: list[tuple[int, str]] = []
        fresh = True
        for token in tokens(text):
            if fresh and token.kind != "newline":
                indent = positions.indent(positions.place(token.start)[0])
                indents.append((token.start, indent))
            fresh = token.kind == "newline"
        for start, indent in indents if _is_mixed([indent for _, indent in indents]) else ():
            if "\t" in indent:
                message = "tabs and blanks are mixed in this file's indentation; write blanks"
                edit = Edit(start - len(indent), start, indent.lstrip("\f").expandtabs(_TAB))
                yield self.fix_at(path, positions, start, message, [edit])


def _is_mixed(indents: Sequence[str]) -> bool:
    """Whether lines are as deep as each other, or deeper, for one width of a tab alone, which Python 3 refuses."""
    blocks = [(0, 0)]
    for indent in indents:
        wide, narrow = (len(indent.lstrip("\f").expandtabs(width)) for width in (_TAB, 1))
        while wide < blocks[-1][0]:
            blocks.pop()
        if (wide == blocks[-1][0]) != (narrow == blocks[-1][1]) or narrow < blocks[-1][1]:
            return True
        if wide > blocks[-1][0]:
            blocks.append((wide, narrow))
    return False
