"""PS101: `async` is a keyword, not the name of an argument."""

from collections.abc import Iterator
from itertools import pairwise

from ..reading.edits import Edit, Positions
from ..reading.lexer import tokens
from ..rewriting.rule import Fix, TextRule


class AsyncArgument(TextRule):
    """What it does: `async=True` in a call becomes `non_blocking=True`.

    Why: since Python 3.7 `async` is a keyword, so a file with it does not parse; torch renamed the argument in 0.4.

    Example: `target.cuda(async=True)` becomes `target.cuda(non_blocking=True)`.

    Fix safety: safe; it is the same argument under its new name.
    """

    safety = "safe"
    VALID = ("import torch\n\nx = torch.ones(2).cuda(non_blocking=True)  # async=True\n",)
    INVALID = (
        (
            "import torch\n\nx = torch.ones(2).cuda(async=True)  # async=True\ns = 'async=True'\ny = x.cuda(0, async = True)\n",
            "import torch\n\nx = torch.ones(2).cuda(non_blocking=True)  # async=True\n"
            "s = 'async=True'\ny = x.cuda(0, non_blocking = True)\n",
        ),
    )

    def check_text(self, path: str, text: str) -> Iterator[Fix]:
        positions = Positions(text)
        for token, following in pairwise(tokens(text)):
            if token.kind == "name" and token.text == "async" and token.depth and following.text == "=":
                message = "async has been a keyword since Python 3.7; write non_blocking"
                yield self.fix_at(path, positions, token.start, message, [Edit(token.start, token.end, "non_blocking")])
