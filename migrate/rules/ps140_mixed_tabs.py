"""PS140: tabs and blanks mixed in one block's indentation."""

import re
from collections.abc import Iterator

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
        fresh = True
        for token in tokens(text):
            if fresh and token.kind != "newline":
                line = positions.place(token.start)[0]
                start, indent = positions.starts[line - 1], positions.indent(line)
                if "\t" in indent and start + len(indent) == token.start:
                    message = "tabs and blanks are mixed in this file's indentation; write blanks"
                    edit = Edit(start, token.start, re.sub("[^\f]+", lambda part: part[0].expandtabs(_TAB), indent))
                    yield self.fix_at(path, positions, token.start, message, [edit])
            fresh = token.kind == "newline"
