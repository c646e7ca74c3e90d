"""PS114: metrics that Lightning gave to a package of their own."""

from __future__ import annotations

from ..rewriting.renames import Renames, table

_AFTER_2 = """\
import torchmetrics
import torch
import pytorch_lightning as pl

x = torchmetrics.Accuracy()
"""


class LightningMetrics(Renames):
    """What it does: imports metrics from torchmetrics.

    Why: `pytorch_lightning.metrics` was removed in Lightning 1.5.

    Example: `from pytorch_lightning.metrics import Accuracy` becomes `from torchmetrics import Accuracy`.

    Fix safety: unsafe: torchmetrics is a package to install, and since 0.11 its classification metrics want to be told
    the `task` and `num_classes`.
    """

    code = "PS114"
    name = "lightning-metrics"
    safety = "unsafe"
    reason = "was removed from Lightning"
    modules = table("""
        pytorch_lightning.metrics.functional -> torchmetrics.functional
        pytorch_lightning.metrics -> torchmetrics
    """)
    VALID = ("import torch\nfrom torchmetrics import Accuracy\n",)
    INVALID = (
        ("import torch\nfrom pytorch_lightning.metrics import Accuracy\n", "import torch\nfrom torchmetrics import Accuracy\n"),
        ("import torch\nimport pytorch_lightning as pl\n\nx = pl.metrics.Accuracy()\n", _AFTER_2),
    )
