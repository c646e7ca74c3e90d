"""PS122: `functional.upsample`, which is `interpolate` today."""

from ..rewriting.renames import Renames, table


class Upsample(Renames):
    """What it does: calls `interpolate` where a model calls `upsample`.

    Why: `upsample` is deprecated since torch 0.4.1 and warns at each call.

    Example: `F.upsample(x, scale_factor=2)` becomes `F.interpolate(x, scale_factor=2)`.

    Fix safety: safe; the old function only calls the new one.
    """

    safety = "safe"
    reason = "is deprecated"
    names = table("""
        torch.nn.functional.upsample -> torch.nn.functional.interpolate
    """)
    VALID = ("import torch.nn as nn\n\nx = nn.Upsample(2)  # F.upsample\n",)
    INVALID = (
        (
            "import torch.nn.functional as F\n\nx = F.upsample(a, scale_factor=2)\n",
            "import torch.nn.functional as F\n\nx = F.interpolate(a, scale_factor=2)\n",
        ),
    )
