"""PS107: layers of apex that torch has itself."""

from ..rewriting.renames import Renames, table
from ..rewriting.rule import diff

_EXAMPLE_1 = diff("""\
import torch
-from apex.normalization import FusedLayerNorm
+from torch.nn import LayerNorm as FusedLayerNorm

norm = FusedLayerNorm(8)
""")
_EXAMPLE_2 = diff("""\
import torch
import apex

-model = apex.parallel.DistributedDataParallel(model)
+model = torch.nn.parallel.DistributedDataParallel(model)
""")


class ApexLayers(Renames):
    """What it does: takes from torch what apex was needed for once.

    Why: apex is no package of the index, has to be compiled, and needs a GPU.

    Example: `from apex.normalization import FusedLayerNorm` becomes `from torch.nn import LayerNorm as FusedLayerNorm`.

    Fix safety: unsafe: torch's layers and optimizers compute the same up to rounding, with the same names of weights, but
    some have other defaults. Imports with a fallback of their own stay.
    """

    safety = "unsafe"
    reason = "needs a compiled apex"
    names = table("""
        apex.normalization.FusedLayerNorm -> torch.nn.LayerNorm
        apex.normalization.fused_layer_norm.FusedLayerNorm -> torch.nn.LayerNorm
        apex.parallel.SyncBatchNorm -> torch.nn.SyncBatchNorm
        apex.optimizers.FusedAdam -> torch.optim.AdamW
        apex.optimizers.FusedSGD -> torch.optim.SGD
        apex.parallel.DistributedDataParallel -> torch.nn.parallel.DistributedDataParallel
    """)
    VALID = ("import torch\nfrom torch.nn import LayerNorm\n",)
    INVALID = (_EXAMPLE_1, _EXAMPLE_2)
