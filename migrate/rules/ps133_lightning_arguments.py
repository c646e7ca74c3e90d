"""PS133: arguments and hooks that Lightning removed."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.lightning_2 import HOOKS, LOADERS, NOT_HANDED, WITHOUT_INDEX
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
    "replace_sampler_ddp": "write use_distributed_sampler=...",
    "track_grad_norm": "log lightning.pytorch.utilities.grad_norm in on_before_optimizer_step",
    "stochastic_weight_avg": "pass a StochasticWeightAveraging in callbacks",
    "weights_save_path": "pass a ModelCheckpoint with dirpath=... in callbacks",
    "amp_backend": 'write precision="16-mixed"',
    "amp_level": 'write precision="16-mixed"',
    "auto_select_gpus": "leave it out",
    "process_position": "leave it out",
    "prepare_data_per_node": "leave it out",
    "move_metrics_to_cpu": "leave it out",
}
_PACKAGES = ("pytorch_lightning", "lightning", "lightning.pytorch")

_VALID_1 = """\
import torch
from pytorch_lightning import Trainer

x = Trainer(accelerator='gpu', devices=1)
net = skorch.NeuralNet(Net)
net.fit(train_dataloader=loader)
"""
_BEFORE_1 = """\
import torch
import pytorch_lightning as pl

x = pl.Trainer(gpus=choose(), checkpoint_callback=args.save, resume_from_checkpoint=None)


class Net(pl.LightningModule):
    def training_epoch_end(self, outputs):
        self.last = outputs


more = pl.Trainer.from_argparse_args(args)
"""
_EXAMPLE_3 = diff("""\
import torch
import pytorch_lightning as pl


class Net(pl.LightningModule):
-    def validation_epoch_end(self, outputs):
+    def on_validation_epoch_end(self):
        self.log("rate", self.rate)

-    def lr_scheduler_step(self, scheduler, optimizer_idx, metric):
+    def lr_scheduler_step(self, scheduler, metric):
        scheduler.step(metric)


-trainer = pl.Trainer(gpus=args.gpus, progress_bar_refresh_rate=args.rate, replace_sampler_ddp=False)
-trainer.fit(Net(), train_dataloader=train, val_dataloaders=val)
-trainer.test(test_dataloaders=test)
-quiet = pl.Trainer(gpus=torch.cuda.device_count(), progress_bar_refresh_rate=0, callbacks=[])
+trainer = pl.Trainer(accelerator="gpu" if args.gpus else "cpu", devices=args.gpus or 1, callbacks=[pl.callbacks.TQDMProgressBar(refresh_rate=args.rate)], use_distributed_sampler=False)
+trainer.fit(Net(), train_dataloaders=train, val_dataloaders=val)
+trainer.test(dataloaders=test)
+quiet = pl.Trainer(accelerator="gpu" if torch.cuda.device_count() else "cpu", devices=torch.cuda.device_count() or 1, enable_progress_bar=False, callbacks=[])
""")  # noqa: E501
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
    """What it does: writes the arguments of Trainer and of its fit() and test() that Lightning 2 no longer knows as they are
    written today, names the removed hooks, and leaves out parameters that hooks are no longer handed (`optimizer_idx`).

    Why: Trainer raises TypeError for the arguments; the hooks are refused or never called; `self.hparams` cannot be assigned.

    Example: `Trainer(gpus=1)` becomes `Trainer(accelerator="gpu", devices=1)`, and `self.hparams = hparams` becomes
    `self.save_hyperparameters(hparams)`.

    Fix safety: safe, where the argument's value can be written twice: a constant, a variable, a call of torch's. There is no
    fix for hooks that use the outputs of their steps, and for what became a callback where there are others.
    """

    safety = "safe"
    VALID = (_VALID_1,)
    INVALID = ((_BEFORE_1, None), _EXAMPLE_2, _EXAMPLE_3)

    def check(self, context: Context) -> Iterator[Fix]:
        for package in _PACKAGES:
            for call in calls_of(context, f"{package}.Trainer"):
                for item in call.keywords:
                    if item.arg in _ARGUMENTS:
                        message = f"Trainer has no {item.arg} in Lightning 2; {_ARGUMENTS[item.arg]}"
                        yield self.fix(context, item, message, _edits(context, call, item), severity="error")
            for made in calls_of(context, f"{package}.Trainer.from_argparse_args"):
                message = "Lightning 2 has no Trainer.from_argparse_args; write Trainer(max_epochs=args.max_epochs, ...)"
                yield self.fix(context, made, message, severity="error")
            for base in uses(context.module, f"{package}.LightningModule"):
                parent = context.module.parents[base]
                if isinstance(parent, ast.ClassDef):
                    yield from self._check_class(context, parent)

        if any(uses(context.module, f"{package}.Trainer") for package in _PACKAGES):
            yield from self._check_loaders(context)

    def _check_loaders(self, context: Context) -> Iterator[Fix]:
        for call in context.module.of_kind(ast.Call):
            if not isinstance(call.func, ast.Attribute) or call.func.attr not in LOADERS:
                continue
            if not _is_trainer(context, call.func.value):
                continue
            old, new = LOADERS[call.func.attr]
            for item in call.keywords:
                if item.arg == old and new not in {other.arg for other in call.keywords}:
                    message = f"{call.func.attr}() has no {old} in Lightning 2; write {new}=..."
                    start = context.positions.span(item)[0]
                    edit = Edit(start, start + len(old), new)
                    yield self.fix(context, item, message, [edit], severity="error")

    def _check_class(self, context: Context, owner: ast.ClassDef) -> Iterator[Fix]:
        for method in owner.body:
            if not isinstance(method, Function):
                continue
            if method.name in HOOKS:
                message = f"Lightning 2 does not call {method.name}; collect the outputs and use {HOOKS[method.name][1]}"
                yield self.fix(context, method, message, _renamed(context, method), severity="error")
            if method.name in WITHOUT_INDEX and (gone := _not_handed(method)):
                named = ", ".join(item.arg for item in gone)
                message = f"Lightning 2 hands {method.name} no {named}, so its call fails; leave it out"
                read = {node.id for node in ast.walk(method) if isinstance(node, ast.Name)}
                edits = (
                    context.positions.leave_out(method.args.args, gone) if read.isdisjoint(item.arg for item in gone) else []
                )
                yield self.fix(context, method, message, edits, severity="error")
            for statement in method.body:
                if isinstance(statement, ast.Assign) and [dotted(item) for item in statement.targets] == ["self.hparams"]:
                    given = ast.unparse(statement.value)
                    edit = Edit(*context.positions.span(statement), f"self.save_hyperparameters({given})")
                    edits = [edit] if isinstance(statement.value, ast.Name) else []
                    message = "Lightning fails on an assignment to self.hparams; call self.save_hyperparameters"
                    yield self.fix(context, statement, message, edits, severity="error")


def _not_handed(method: Function) -> list[ast.arg]:
    """The parameters that a hook must be given and is not."""
    given = method.args.args[: len(method.args.args) - len(method.args.defaults)]
    return [item for item in given if item.arg in NOT_HANDED]


def _edits(context: Context, call: ast.Call, item: ast.keyword) -> list[Edit]:
    """The argument as it is written today, where that can be told from the call."""
    taken = {keyword.arg for keyword in call.keywords}
    text = _today(context, call, item)
    if text is None or None in taken or any(name in taken for name in _named(text)):
        return []
    return [Edit(*context.positions.span(item), text)]


def _is_trainer(context: Context, node: ast.expr) -> bool:
    """Whether an expression is a Trainer, or is called like one where nothing tells what it is."""
    made: list[ast.expr] = [node] if isinstance(node, ast.Call) else []
    made = values_of(context.module.tree, node.id) if isinstance(node, ast.Name) else made
    if made:
        return all(isinstance(item, ast.Call) and "Trainer" in (dotted(item.func) or "") for item in made)
    return "trainer" in last_name(node).lower()


def _renamed(context: Context, hook: Function) -> list[Edit]:
    """A hook as it is called today, where it uses no outputs and nothing else calls it."""
    name, given = hook.name, hook.args
    start, end = context.positions.span(hook)
    named = any(isinstance(node, ast.Name) and len(given.args) == 2 and node.id == given.args[1].arg for node in ast.walk(hook))
    others = given.posonlyargs or given.vararg or given.kwonlyargs or given.kwarg or given.defaults
    text = context.positions.text
    if len(given.args) != 2 or others or named or text.count(name) != 1 or HOOKS[name][1] in text:
        return []
    at = text.index(name, start, end)
    own, outputs = (context.positions.span(arg)[1] for arg in given.args)
    return [Edit(at, at + len(name), HOOKS[name][1]), Edit(own, outputs, "")]


def _repeats(value: ast.expr) -> bool:
    """Whether an expression may be written twice: names, constants, and what torch says of the machine."""
    kinds = ast.Name | ast.Attribute | ast.Subscript | ast.Constant | ast.IfExp | ast.Compare | ast.BoolOp
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    parts = [node for node in ast.walk(value) if isinstance(node, ast.expr) and node not in calls]
    of_torch = all((dotted(call.func) or "").startswith("torch.") for call in calls)
    return of_torch and all(isinstance(node, kinds) for node in parts)


def _today(context: Context, call: ast.Call, item: ast.keyword) -> str | None:
    value, known = item.value, isinstance(item.value, ast.Constant | ast.UnaryOp | ast.List)
    text = ast.unparse(value)
    if item.arg == "gpus" and known:
        return 'accelerator="cpu"' if text in ("0", "None") else f'accelerator="gpu", devices={text}'
    if item.arg == "gpus" and _repeats(value):
        text = text if isinstance(value, ast.Name | ast.Attribute | ast.Subscript | ast.Call) else f"({text})"
        return f'accelerator="gpu" if {text} else "cpu", devices={text} or 1'
    if item.arg == "replace_sampler_ddp":
        return f"use_distributed_sampler={text}"
    if item.arg == "progress_bar_refresh_rate":
        if text == "0":
            return "enable_progress_bar=False"
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        others = any(other.arg == "checkpoint_callback" for other in call.keywords)
        made = f"callbacks=[{ast.unparse(owner)}.callbacks.TQDMProgressBar(refresh_rate={text})]" if owner else None
        return None if others else made
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
