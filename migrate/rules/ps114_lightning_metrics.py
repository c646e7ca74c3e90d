"""PS114: metrics that Lightning gave to a package of their own."""

from ..rewriting.renames import Renames, table
from ..rewriting.rule import diff

_EXAMPLE_2 = diff("""\
+import torchmetrics
import torch
import pytorch_lightning as pl

-x = pl.metrics.Accuracy()
+x = torchmetrics.Accuracy()
""")


class LightningMetrics(Renames):
    """What it does: imports metrics from torchmetrics.

    Why: `pytorch_lightning.metrics` was removed in Lightning 1.5.

    Example: `from pytorch_lightning.metrics import Accuracy` becomes `from torchmetrics import Accuracy`.

    Fix safety: unsafe: torchmetrics is a package to install, and since 0.11 its classification metrics want to be told
    the `task` and `num_classes`.
    """

    safety = "unsafe"
    reason = "was removed from Lightning"
    modules = table("""
        pytorch_lightning.metrics.functional -> torchmetrics.functional
        pytorch_lightning.metrics -> torchmetrics
    """)
    VALID = ("import torch\nfrom torchmetrics import Accuracy\n",)
    INVALID = (
        ("import torch\nfrom pytorch_lightning.metrics import Accuracy\n", "import torch\nfrom torchmetrics import Accuracy\n"),
        _EXAMPLE_2,
    )
