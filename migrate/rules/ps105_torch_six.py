"""PS105: `torch._six`, which torch 1.13 removed."""

from __future__ import annotations

from ..rewriting.renames import Renames, table
from ..rewriting.rule import diff

_VALID_1 = """\
import torch
from collections import abc as container_abcs

string_classes = (str, bytes)
"""
_VALID_2 = """\
import torch
try:
    from torch._six import container_abcs
except ImportError:
    import collections.abc as container_abcs
"""
_VALID_3 = """\
import torch

if int(torch.__version__.split('.')[0]) < 1:
    from torch._six import inf
else:
    from torch import inf
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
_EXAMPLE_3 = diff("""\
import torch
-from torch._six import container_abcs as abcs, inf
-import torch._six
+from collections import abc as abcs
+from torch import inf

-x = torch._six.inf
+x = torch.inf
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
    VALID = (_VALID_1, _VALID_2, _VALID_3)
    INVALID = (
        ("import torch\nfrom torch._six import inf\n", "import torch\nfrom torch import inf\n"),
        _EXAMPLE_2,
        _EXAMPLE_3,
    )
