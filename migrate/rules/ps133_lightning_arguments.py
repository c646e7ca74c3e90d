"""PS133: arguments and hooks that Lightning removed."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.names import uses
from ..reading.nodes import values_of
from ..reading.scopes import Function, dotted, last_name
from ..rewriting.call_edits import calls_of
from ..rewriting.rule import Context, Fix, Repair, diff

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

_PACKAGES = ("pytorch_lightning", "lightning", "lightning.pytorch")

_VALID_1 = """\
import torch
from pytorch_lightning import Trainer

x = Trainer(accelerator='gpu', devices=1)
"""
_BEFORE_1 = """\
import torch
import pytorch_lightning as pl

x = pl.Trainer(gpus=args.gpus, checkpoint_callback=args.save, resume_from_checkpoint=None)


class Net(pl.LightningModule):
    def training_epoch_end(self, outputs):
        pass
"""
_EXAMPLE_2 = diff("""\
import torch
import pytorch_lightning as pl


class Net(pl.LightningModule):
    def __init__(self, hparams):
        super().__init__()
-        self.hparams = hparams
+        self.save_hyperparameters(hparams)


checkpoint = pl.callbacks.ModelCheckpoint(monitor="acc")
trainer = pl.Trainer(
-    gpus=-1,  # all
-    weights_summary=None,
-    checkpoint_callback=checkpoint,
+    accelerator="gpu", devices=-1,  # all
+    enable_model_summary=False,
+    callbacks=[checkpoint],
)
-plain = pl.Trainer(gpus=0, checkpoint_callback=False)
+plain = pl.Trainer(accelerator="cpu", enable_checkpointing=False)
""")


class LightningArguments(Repair):
    """What it does: writes the arguments of Trainer that Lightning 2 no longer knows as they are written today, and names the
    removed hooks.

    Why: Trainer raises TypeError for the arguments; the hooks are refused or never called; `self.hparams` cannot be assigned.

    Example: `Trainer(gpus=1)` becomes `Trainer(accelerator="gpu", devices=1)`, and `self.hparams = hparams` becomes
    `self.save_hyperparameters(hparams)`.

    Fix safety: safe, where the value is written there. There is no fix where it depends on a variable, for hooks, and for
    arguments that became callbacks.
    """

    safety = "safe"
    VALID = (_VALID_1,)
    INVALID = ((_BEFORE_1, None), _EXAMPLE_2)

    def check(self, context: Context) -> Iterator[Fix]:
        for package in _PACKAGES:
            for call in calls_of(context, f"{package}.Trainer"):
                for item in call.keywords:
                    if item.arg in _ARGUMENTS:
                        message = f"Trainer has no {item.arg} in Lightning 2; {_ARGUMENTS[item.arg]}"
                        yield self.fix(context, item, message, _edits(context, call, item), severity="error")
            for base in uses(context.module, f"{package}.LightningModule"):
                parent = context.module.parents[base]
                if isinstance(parent, ast.ClassDef):
                    yield from self._check_class(context, parent)

    def _check_class(self, context: Context, owner: ast.ClassDef) -> Iterator[Fix]:
        for method in owner.body:
            if not isinstance(method, Function):
                continue
            if method.name in _HOOKS:
                message = f"Lightning 2 does not call {method.name}; collect the outputs and use on_{method.name}"
                yield self.fix(context, method, message, severity="error")
            for statement in method.body:
                if isinstance(statement, ast.Assign) and [dotted(item) for item in statement.targets] == ["self.hparams"]:
                    given = ast.unparse(statement.value)
                    edit = Edit(*context.positions.span(statement), f"self.save_hyperparameters({given})")
                    edits = [edit] if isinstance(statement.value, ast.Name) else []
                    message = "Lightning fails on an assignment to self.hparams; call self.save_hyperparameters"
                    yield self.fix(context, statement, message, edits, severity="error")


def _edits(context: Context, call: ast.Call, item: ast.keyword) -> list[Edit]:
    """The argument as it is written today, where that can be told from the call."""
    taken = {keyword.arg for keyword in call.keywords}
    text = _today(context, item)
    if text is None or None in taken or any(name in taken for name in _named(text)):
        return []
    return [Edit(*context.positions.span(item), text)]


def _today(context: Context, item: ast.keyword) -> str | None:
    value, known = item.value, isinstance(item.value, ast.Constant | ast.UnaryOp | ast.List)
    text = ast.unparse(value)
    if item.arg == "gpus" and known:
        return 'accelerator="cpu"' if text in ("0", "None") else f'accelerator="gpu", devices={text}'
    if item.arg == "weights_summary" and known:
        return f"enable_model_summary={text != 'None'}"
    if item.arg == "checkpoint_callback":
        if text in ("True", "False"):
            return f"enable_checkpointing={text}"
        return f"callbacks=[{text}]" if _is_checkpoint(context, value) else None
    return None


def _is_checkpoint(context: Context, value: ast.expr) -> bool:
    """Whether an expression makes a ModelCheckpoint, or is a name that is only bound to what does."""
    if isinstance(value, ast.Call):
        return "Checkpoint" in last_name(value.func)
    made = values_of(context.module.tree, value.id) if isinstance(value, ast.Name) else []
    return bool(made) and all(_is_checkpoint(context, item) for item in made)


def _named(text: str) -> list[str]:
    return [part.partition("=")[0].strip() for part in text.split(", ") if "=" in part]
