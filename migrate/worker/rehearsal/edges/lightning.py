"""What Lightning 2 no longer does: hooks at the end of an epoch with its outputs, loaders of the data module, a trainer's
arguments from a command line, loaders by their older names.

And its loggers for trackers that are not installed: they watch, and what they watch does not depend on them.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ....reading.lightning_2 import HOOKS, LOADERS
from ..silent import Silent
from ..stage import Stage

_LEFT_OUT = ("gpus", "tpu_cores", "num_processes", "progress_bar_refresh_rate", "checkpoint_callback", "weights_summary")
"""Options of a trainer's that a command line may still give."""
_OF_MODULE = ("train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader")


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    for name in ("pytorch_lightning", "lightning.pytorch"):
        stage.when_imported(name, lambda library: _trainer(stage, library))
        stage.when_imported(f"{name}.loggers", lambda loggers: _loggers(stage, loggers))
    yield


def _loggers(stage: Stage, loggers: Any) -> None:
    """Loggers whose tracker is not installed, and which Lightning refuses to make, do nothing."""
    for name, kind in list(vars(loggers).items()):
        module = sys.modules.get(getattr(kind, "__module__", ""))
        wanted = [item for item in vars(module).values() if type(item).__name__ == "RequirementCache"] if module else []
        if isinstance(kind, type) and issubclass(kind, loggers.Logger) and wanted and not any(wanted):
            made = _silent_logger(stage, loggers, kind, str(getattr(wanted[0], "requirement", name)))
            for owner in (loggers, module):
                stage.patch(owner, name, made)


def _silent_logger(stage: Stage, loggers: Any, kind: type, requirement: str) -> type:
    name = kind.__name__

    def start(own: Any, *_: Any, **__: Any) -> None:
        loggers.logger.DummyLogger.__init__(own)
        stage.note("libraries", f"{requirement} is not installed; a silent stub stood in for {name}")

    with contextlib.suppress(KeyError, TypeError, ValueError):  # a command line asks what may be told
        start.__signature__ = inspect.signature(vars(kind)["__init__"])  # type: ignore[attr-defined]
    experiment = property(lambda own: Silent(f"{name}.experiment"))
    return type(name, (loggers.logger.DummyLogger,), {"__init__": start, "experiment": experiment})


def _trainer(stage: Stage, library: Any) -> None:
    def run(original: Any, trainer: Any, model: Any = None, *args: Any, **named: Any) -> Any:
        old, new = LOADERS[original.__name__]
        if old in named and old not in inspect.signature(original).parameters:
            stage.note("libraries", f"{old} was {new}, as it is called since Lightning 2")
            named[new] = named.pop(old)
        if model is not None:
            for old, (step, hook) in HOOKS.items():
                _adapt(stage, library, type(model), old, step, hook)
        return original(trainer, model, *args, **named)

    for name in LOADERS:
        stage.wrap(library.Trainer, name, run)
    if not hasattr(library.Trainer, "from_argparse_args"):
        _arguments(stage, library.Trainer)
    for name in _OF_MODULE:
        stage.wrap(library.LightningModule, name, _loader(stage))


def _arguments(stage: Stage, trainer: Any) -> None:
    """A trainer's options on a command line, and a trainer made of them."""
    known = [name for name in inspect.signature(trainer).parameters if name != "self"]

    def add(parser: Any, *_: Any, **__: Any) -> argparse.ArgumentParser:
        if not isinstance(parser, argparse.ArgumentParser):  # a group, which shares the options of its parser
            parser = argparse.ArgumentParser(parents=[parser], add_help=False)
        stage.note("libraries", "Trainer.add_argparse_args, which Lightning 2 has no more, added a trainer's options")
        for name in (*known, *_LEFT_OUT):
            with contextlib.suppress(argparse.ArgumentError):  # the script has one of its own by that name
                parser.add_argument(f"--{name}", type=_literal)
        return parser

    def make(kind: type[Any], /, args: Any, **named: Any) -> Any:
        given = args if isinstance(args, dict) else vars(args)
        return kind(**{name: given[name] for name in known if given.get(name) is not None} | named)

    stage.patch(trainer, "add_argparse_args", staticmethod(add))
    stage.patch(trainer, "from_argparse_args", classmethod(make))


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _loader(stage: Stage) -> Any:
    """A module's loader where only the data module has one: `len(self.train_dataloader())` counts its batches."""

    def give(original: Any, own: Any) -> Any:
        data = getattr(getattr(own, "_trainer", None), "datamodule", None)
        if data is None:
            return original(own)
        stage.note("libraries", f"{type(own).__name__} had the data module's loaders, as in older versions of Lightning")
        return getattr(data, original.__name__)()

    return give


def _adapt(stage: Stage, library: Any, kind: type, old: str, step: str, hook: str) -> None:
    """Let a class of modules have its old hook called by the new one, with what its steps gave."""
    ends = getattr(kind, old, None)
    if not callable(ends) or hasattr(library.LightningModule, old):
        return
    stage.note("libraries", f"{kind.__name__}.{old} was called, as older versions of Lightning did")
    given: list[Any] = []

    def collect(original: Any, own: Any, *args: Any, **named: Any) -> Any:
        given.append(_detached(output := original(own, *args, **named), always=old == "training_epoch_end"))
        return output

    def end(original: Any, own: Any, *args: Any, **named: Any) -> Any:
        collected, given[:] = given[:], []
        ends(own, collected)
        return original(own, *args, **named)

    stage.wrap(kind, step, collect)
    stage.wrap(kind, hook, end)
    stage.patch(kind, old, None)  # Lightning refuses modules that have it


def _detached(output: Any, *, always: bool) -> Any:
    """What a step gave without its graph; of a training step always a mapping, as its hook was handed."""
    if hasattr(output, "detach"):
        return {"loss": output.detach()} if always else output.detach()
    if isinstance(output, Mapping):
        return {name: value.detach() if hasattr(value, "detach") else value for name, value in output.items()}
    return output
