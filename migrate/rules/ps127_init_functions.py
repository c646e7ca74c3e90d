"""PS127: functions of torch that work in place and say so by a final underscore today."""

from ..rewriting.renames import Renames, table
from ..rewriting.rule import diff

_VALID_1 = """\
import torch.nn as nn


def f(init, weight):
    nn.init.normal_(weight)
    init.normal(weight)
"""
_EXAMPLE_1 = diff("""\
import torch
from torch import nn
from torch.nn import init


def f(m):
-    nn.init.kaiming_normal(m.weight, mode='fan_out')
-    init.constant(m.bias, 0)
-    torch.nn.utils.clip_grad_norm(m.parameters(), 1)
+    nn.init.kaiming_normal_(m.weight, mode='fan_out')
+    init.constant_(m.bias, 0)
+    torch.nn.utils.clip_grad_norm_(m.parameters(), 1)
""")


class InPlaceNames(Renames):
    """What it does: uses the names with an underscore of initializers and gradient clipping.

    Why: the names without one are deprecated since torch 0.4 and warn at each call.

    Example: `nn.init.kaiming_normal(m.weight)` becomes `nn.init.kaiming_normal_(m.weight)`.

    Fix safety: safe; the old name only calls the new one.
    """

    safety = "safe"
    reason = "is deprecated"
    names = table("""
        torch.nn.init.uniform -> torch.nn.init.uniform_
        torch.nn.init.normal -> torch.nn.init.normal_
        torch.nn.init.constant -> torch.nn.init.constant_
        torch.nn.init.eye -> torch.nn.init.eye_
        torch.nn.init.dirac -> torch.nn.init.dirac_
        torch.nn.init.xavier_uniform -> torch.nn.init.xavier_uniform_
        torch.nn.init.xavier_normal -> torch.nn.init.xavier_normal_
        torch.nn.init.kaiming_uniform -> torch.nn.init.kaiming_uniform_
        torch.nn.init.kaiming_normal -> torch.nn.init.kaiming_normal_
        torch.nn.init.orthogonal -> torch.nn.init.orthogonal_
        torch.nn.init.sparse -> torch.nn.init.sparse_
        torch.nn.utils.clip_grad_norm -> torch.nn.utils.clip_grad_norm_
    """)
    VALID = (_VALID_1,)
    INVALID = (_EXAMPLE_1,)
