"""PS105: `torch._six`, which torch 1.13 removed."""

from ..rewriting.renames import Renames, table
from ..rewriting.rule import diff

_VALID_1 = """\
import torch
from collections import abc as container_abcs

string_classes = (str, bytes)
"""
_EXAMPLE_2 = diff("""\
import torch
-from torch._six import string_classes, int_classes
-import torch._six as six
+string_classes = (str, bytes)
+int_classes = int

-x = isinstance('', six.string_classes)
+x = isinstance('', (str, bytes))
""")


class TorchSix(Renames):
    """What it does: replaces what `torch._six` offered for Python 2 by what Python 3 has.

    Why: the import fails since torch 1.13.

    Example: `from torch._six import inf` becomes `from torch import inf`.

    Fix safety: safe; `torch._six` held the same values. Imports with a fallback of their own, or under a test of
    versions, stay.
    """

    safety = "safe"
    reason = "was removed in torch 1.13"
    gone = frozenset(["torch._six"])
    names = table("""
        torch._six -> torch: inf nan
        torch._six.string_classes -> (str, bytes)
        torch._six.int_classes -> int
        torch._six.container_abcs -> collections.abc
    """)
    VALID = (_VALID_1,)
    INVALID = (("import torch\nfrom torch._six import inf\n", "import torch\nfrom torch import inf\n"), _EXAMPLE_2)
