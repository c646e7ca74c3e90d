"""PS133: arguments and hooks that Lightning removed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar, Literal

from ..call_edits import calls_of
from ..names import uses
from ..rule import Context, Fix, Rule

_ARGUMENTS = {
    "gpus": 'write accelerator="gpu", devices=...',
    "tpu_cores": 'write accelerator="tpu", devices=...',
    "num_processes": 'write accelerator="cpu", devices=...',
    "distributed_backend": "write strategy=...",
    "weights_summary": "write enable_model_summary=...",
    "checkpoint_callback": "write enable_checkpointing=..., and pass a ModelCheckpoint in callbacks",
    "progress_bar_refresh_rate": "pass TQDMProgressBar(refresh_rate=...) in callbacks",
    "resume_from_checkpoint": "write ckpt_path=... in fit()",
    "auto_lr_find": "use Tuner.lr_find",
    "auto_scale_batch_size": "use Tuner.scale_batch_size",
    "terminate_on_nan": "write detect_anomaly=...",
    "flush_logs_every_n_steps": "leave it out",
    "log_gpu_memory": "pass a DeviceStatsMonitor in callbacks",
}
_HOOKS = frozenset(["training_epoch_end", "validation_epoch_end", "test_epoch_end"])

_VALID_1 = """\
import torch
from pytorch_lightning import Trainer

x = Trainer(accelerator='gpu', devices=1)
"""
_BEFORE_1 = """\
import torch
import pytorch_lightning as pl

x = pl.Trainer(gpus=1, weights_summary=None)


class Net(pl.LightningModule):
    def training_epoch_end(self, outputs):
        pass
"""


class LightningArguments(Rule):
    """What it does: says which arguments of Trainer and which hooks of a module Lightning 2 no longer knows, and what they
    are today.

    Why: Trainer raises TypeError for the arguments; the hooks are refused or never called.

    Example: `Trainer(gpus=1)` is `Trainer(accelerator="gpu", devices=1)` today.

    Fix safety: there is no fix: several arguments turn into one, or into callbacks.
    """

    code = "PS133"
    name = "lightning-arguments"
    safety: ClassVar[Literal["safe", "unsafe", "manual"]] = "manual"
    stage = "repair"
    VALID = (
        _VALID_1,
        "import torch\nfrom mine import Trainer\n\nx = Trainer(gpus=1)\n",
    )
    INVALID = ((_BEFORE_1, None),)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for package in ("pytorch_lightning", "lightning", "lightning.pytorch"):
            for call in calls_of(context, f"{package}.Trainer"):
                for item in call.keywords:
                    if item.arg in _ARGUMENTS:
                        message = f"Trainer has no {item.arg} in Lightning 2; {_ARGUMENTS[item.arg]}"
                        yield self.fix(context, item, message, severity="error")
            for base in uses(module, f"{package}.LightningModule"):
                parent = module.parents[base]
                for hook in parent.body if isinstance(parent, ast.ClassDef) else []:
                    if isinstance(hook, ast.FunctionDef) and hook.name in _HOOKS:
                        message = f"Lightning 2 does not call {hook.name}; collect the outputs and use on_{hook.name}"
                        yield self.fix(context, hook, message, severity="error")
