"""PS142: things of Lightning that are imported from elsewhere today."""

from ..rewriting.renames import Renames, table
from ..rewriting.rule import diff

_EXAMPLE_1 = diff("""\
import torch
-from pytorch_lightning.core.lightning import LightningModule
-from pytorch_lightning.callbacks.base import Callback
-from pytorch_lightning.callbacks import EarlyStopping, LearningRateLogger
+from pytorch_lightning import LightningModule
+from pytorch_lightning import Callback
+from pytorch_lightning.callbacks import EarlyStopping, LearningRateMonitor as LearningRateLogger
""")
_EXAMPLE_2 = diff("""\
import torch
import pytorch_lightning as pl


-class Net(pl.core.lightning.LightningModule):
+class Net(pl.LightningModule):
    pass
""")


class LightningModules(Renames):
    """What it does: imports from where Lightning 2 has its classes and helpers.

    Why: the old modules are gone, and so the file that imports them ends there.

    Example: `from pytorch_lightning.core.lightning import LightningModule` becomes
    `from pytorch_lightning import LightningModule`.

    Fix safety: safe; the same things moved. DDPPlugin is unsafe: the strategy that stands for it is passed as another argument.
    """

    safety = "safe"
    reason = "moved"
    inexact = frozenset(["pytorch_lightning.plugins.DDPPlugin"])
    modules = table("""
        pytorch_lightning.utilities.cli -> pytorch_lightning.cli
        pytorch_lightning.profiler -> pytorch_lightning.profilers
    """)
    names = table("""
        pytorch_lightning.core.lightning.LightningModule -> pytorch_lightning.LightningModule
        pytorch_lightning.callbacks.base.Callback -> pytorch_lightning.Callback
        pytorch_lightning.callbacks.LearningRateLogger -> pytorch_lightning.callbacks.LearningRateMonitor
        pytorch_lightning.callbacks.lr_logger.LearningRateLogger -> pytorch_lightning.callbacks.LearningRateMonitor
        pytorch_lightning.callbacks.GPUStatsMonitor -> pytorch_lightning.callbacks.DeviceStatsMonitor
        pytorch_lightning.loggers.base.LightningLoggerBase -> pytorch_lightning.loggers.Logger
        pytorch_lightning.loggers.base.rank_zero_experiment -> pytorch_lightning.loggers.logger.rank_zero_experiment
        pytorch_lightning.loggers.LightningLoggerBase -> pytorch_lightning.loggers.Logger
        pytorch_lightning.core.memory.ModelSummary -> pytorch_lightning.utilities.model_summary.ModelSummary
        pytorch_lightning.trainer.supporters.CombinedLoader -> pytorch_lightning.utilities.combined_loader.CombinedLoader
        pytorch_lightning.plugins.DDPPlugin -> pytorch_lightning.strategies.DDPStrategy
        pytorch_lightning.utilities.distributed -> pytorch_lightning.utilities: rank_zero_only rank_zero_info rank_zero_warn
    """)
    VALID = ("import torch\nfrom pytorch_lightning import LightningModule\n",)
    INVALID = (_EXAMPLE_1, _EXAMPLE_2)
