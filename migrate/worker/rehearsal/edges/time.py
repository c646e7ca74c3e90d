"""Time: a few small batches per pass over a loader, one epoch, no workers, no waiting, no compiling."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import itertools
import re
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ....proving.instrument import MODULE as RECORDER
from ..places import called_by_user
from ..stage import WHOLE, Enough, Stage

PASSES = 4
"""A loader may be gone through so often while one optimizer steps: more is a loop over epochs that was not seen as one."""
EVERY = "every_batch"
"""Learned: passes over a loader are not cut short, for a metric wants rows of all classes."""
LARGE = "large_batches"
"""Learned: batches are not made smaller, for the script takes more rows out of one, or of a pass, than there would be."""
_MOST_BATCHES = 100
"""Even then no pass is longer."""
_MOST_ROWS = 256
"""Even then no batch is larger."""
_BEYOND = re.compile(r"index \d+ is out of bounds for (?:dimension|axis) 0 with size (\d+)")
_UNLIKE = re.compile(
    r"broadcast input array from shape \((\d+)[,)].* into shape \((\d+)|broadcast together with shapes \((\d+)[,)].*? \((\d+)"
    r"|\((\d+)\) must match the (?:existing size|size of tensor b) \((\d+)\) at non-singleton dimension 0"
    r"|shape '\[(\d+), .*\]' is invalid for input of|input batch_size \((\d+)\) to match target batch_size \((\d+)\)"
    r"|shape of the mask \[(\d+).*\] at index 0 does not match"
)
"""What is said of rows that are not as many as the script's batches have."""
_EMPTY = "tensor of 0 elements"
"""What is said of the rows after the hundredth of a batch that has no hundred: those without labels, say."""
_CUT = re.compile(r"batches of \d+, not of (\d+)")
_UNEQUAL = re.compile(r"shape '\[-1, \d+, .*\]' is invalid for input of|not divisible|equal division")
"""What is said of rows of several batches side by side that are not as many times each other's as the script's are."""
_SMALLEST = "smallest_batch"
"""Learned: the smallest of the script's batch sizes, to which the others keep their proportion."""
_CLASSES_MISSED = re.compile(
    r"(number of (classes|labels)|FixedLocator locations).*(match|different|equal)|contains? only one label|is binary while"
    r"|y_true and y_prob contain different|Only one class.*present|Shape of passed values is .* indices imply",
    re.I | re.S,
)
"""What metrics and tables say of fewer classes than the script names: few batches seldom hold them all."""
_ROWS_MISSED = re.compile(
    r"length (of values \(\d+\)|\d+) does not match (length of index|index length)"
    r"|arrays must (all )?be (of )?(the )?same length",
    re.I,
)
"""What pandas says of a table that gets the answers to a part of its rows alone."""
STEPS = 200
"""Optimizer steps of one rehearsal, in all its loops."""
CALLS = 1000
"""Calls of a model at one line of the user's: more is a loop over what the script makes itself, such as noise; those that time
a model repeat it less often."""

WAITS = 200
"""Waits at one line of the user's in which no model is called: it waits for what does not come."""
_SHORT = 0.05
"""Seconds of a wait for what a thread does."""


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    _wait_less(stage)
    stage.when_imported("torch", lambda torch: _short(stage, torch))
    stage.when_imported(RECORDER, lambda recorder: recorder.ENOUGH.append((CALLS, Enough)))
    for name in ("pytorch_lightning", "lightning.pytorch"):
        stage.when_imported(name, lambda library: stage.wrap(library.Trainer, "__init__", _short_trainer(stage, library)))
    stage.when_imported("transformers", lambda library: _short_hugging_face(stage, library))
    yield


def _wait_less(stage: Stage) -> None:
    """Waits are left out, but for those of a thread and for one, and a script that only waits is ended."""
    waits, calls = Counter[str | None](), [0]

    def counted() -> None:
        if calls[0] != stage.count():
            calls[0] = stage.count()
            waits.clear()
        place = stage.place()
        waits[place] += 1
        if waits[place] > WAITS and threading.current_thread() is threading.main_thread():
            raise Enough(f"ended after {WAITS} waits at {place}")

    def sleep(original: Any, seconds: float) -> None:
        if not called_by_user(stage.root):
            original(seconds)
            return
        counted()
        if threading.active_count() > 1:
            original(min(seconds, _SHORT))

    def pause(original: Any, delay: float, *result: Any) -> Any:
        if not called_by_user(stage.root):
            return original(delay, *result)
        counted()
        return original(min(delay, _SHORT), *result)

    stage.wrap(time, "sleep", sleep)
    stage.wrap(asyncio, "sleep", pause)


def lesson(stage: Stage, error: BaseException) -> bool:
    """A metric that wants rows of every class, or a share for each, sees all batches in the next attempt; one of so many images
    of a batch, or of all that a pass gave, gets as many."""
    missed = isinstance(error, ValueError) and _CLASSES_MISSED.search(str(error)) is not None
    short = isinstance(error, ZeroDivisionError) or (isinstance(error, ValueError) and _ROWS_MISSED.search(str(error)))
    if missed or (short and _is_shortened(stage, "loops over data")):
        return stage.learn(EVERY, True)
    if isinstance(error, RuntimeError) and _EMPTY in str(error) and _is_shortened(stage, "batches of"):
        return stage.learn(LARGE, True)
    beyond = _BEYOND.search(str(error)) if isinstance(error, IndexError) else None
    given = {str(count * stage.request.batch_size) for count in range(1, stage.request.batches + 1)}  # of one batch or several
    small = beyond is not None and beyond[1] in given and _is_shortened(stage, "batches of")
    unlike = _UNLIKE.search(str(error)) if isinstance(error, RuntimeError | ValueError | IndexError) else None
    sizes = [int(found[1]) for item in stage.standins if item.edge == "time" and (found := _CUT.match(item.what))]
    apart = isinstance(error, RuntimeError | ValueError) and _UNEQUAL.search(str(error)) is not None
    if apart and sizes and max(sizes) > min(sizes):
        return stage.learn(_SMALLEST, min(sizes))
    cut = {str(views * size) for size in sizes for views in (1, 2)}  # contrastive learning has two views of each image
    return (small or (unlike is not None and not cut.isdisjoint(unlike.groups()))) and stage.learn(LARGE, True)


def _is_shortened(stage: Stage, what: str) -> bool:
    """Whether passes or batches were made smaller in this attempt."""
    return any(item.edge == "time" and item.what.startswith(what) for item in stage.standins)


def _short(stage: Stage, torch: Any) -> None:
    loader = torch.utils.data.DataLoader
    few = _MOST_BATCHES if stage.learned.get(EVERY) else stage.request.batches
    most = _MOST_ROWS if stage.learned.get(LARGE) else stage.request.batch_size
    passes = weakref.WeakKeyDictionary[Any, int]()
    steps = itertools.count(1)
    taken, called = [0], [0]
    optimizers = weakref.WeakSet[Any]()

    def start(original: Any, self: Any, dataset: Any, *args: Any, **named: Any) -> None:
        names = ("batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory", "drop_last",
                 "timeout", "worker_init_fn", "multiprocessing_context", "generator")  # fmt: skip
        named |= dict(zip(names, args, strict=False))
        size = named.get("batch_size", 1)
        if isinstance(size, int) and size > most:
            smallest = stage.learned.get(_SMALLEST, size)
            named["batch_size"] = rows = min(max(most, most * size // smallest), _MOST_ROWS, size)
            stage.note("time", f"batches of {rows}, not of {size}")
        for name in ("num_workers", "multiprocessing_context", "persistent_workers", "prefetch_factor", "timeout", "pin_memory",
                     "pin_memory_device"):  # fmt: skip
            named.pop(name, None)
        original(self, dataset, **named)

    def iterate(original: Any, self: Any) -> Any:
        passes[self] = passes.get(self, 0) + 1
        if torch.is_grad_enabled() and taken[0] and passes[self] > PASSES * stage.request.epochs:
            raise Enough(f"ended at pass {passes[self]} over a loader that is trained on")
        return few_of(original(self), _count(self))

    def few_of(batches: Any, count: int | None) -> Iterator[Any]:
        before = called[0]
        for number in itertools.count():
            if number >= few and (called[0] != before or not stage.learned.get(WHOLE)):
                # None is taken that is not given: the images that were opened last are to be those of the model.
                if (number < count) if count is not None else (next(batches, None) is not None):
                    stage.note("time", f"loops over data ended after {few} batches")
                return
            if (batch := next(batches, batches)) is batches:
                return
            yield batch

    def length(original: Any, self: Any) -> int:
        return min(few, int(original(self)))

    def stepped(optimizer: Any, *_: Any) -> None:
        if optimizer not in optimizers:  # another training, of the next model that a script compares, say
            optimizers.add(optimizer)
            passes.clear()
        taken[0] = next(steps)
        if taken[0] >= STEPS:
            raise Enough(f"ended after {STEPS} optimizer steps")

    stage.wrap(loader, "__init__", start)
    stage.wrap(loader, "__iter__", iterate)
    stage.wrap(loader, "__len__", length)

    # The recorder counts at the calls that are compared, which are of no module once they are of a graph: there both runs end
    # at the same call. Here the others are counted.
    places, depth = Counter[str](), [0]

    def computes(module: Any) -> bool:
        return next(module.parameters(), None) is not None  # a transform of images may be a module, too

    def heard(module: Any, *_: Any) -> None:
        if not computes(module):
            return
        stage.computed = True
        called[0] += 1
        depth[0] += 1
        if depth[0] == 1 and (place := stage.place()) is not None:
            places[place] += 1
            if places[place] > CALLS:
                raise Enough(f"ended after {CALLS} calls of a model at {place}")

    def left(module: Any, *_: Any) -> None:
        depth[0] -= computes(module)

    handle = importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(stepped)
    stage.on_exit(handle.remove)
    modules = torch.nn.modules.module
    stage.on_exit(modules.register_module_forward_pre_hook(heard).remove)
    stage.on_exit(modules.register_module_forward_hook(left, always_call=True).remove)
    stage.wrap(torch, "compile", lambda original, *args, **named: _compiled(stage, original, args, named))


def _count(loader: Any) -> int | None:
    """The batches of a pass over a loader; None where nobody knows, as of a stream."""
    try:
        return len(loader._index_sampler)
    except TypeError:
        return None


def _compiled(stage: Stage, original: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The user's own `torch.compile` takes longer than all that follows, and changes no result."""
    if not called_by_user(stage.root):
        return original(*args, **named)
    stage.note("time", "torch.compile was left out")
    return args[0] if args and args[0] is not None else named.get("model") or (lambda function: function)


_REPORTERS = ("ProgressBar", "LearningRateMonitor", "DeviceStatsMonitor")
"""Callbacks of Lightning's that a trainer without loggers and progress bars refuses."""


def _short_trainer(stage: Stage, library: Any) -> Any:
    few = stage.request.batches

    def start(original: Any, self: Any, *args: Any, **named: Any) -> None:
        stage.note("time", f"Lightning's trainer: {stage.request.epochs} epoch of {few} batches, on the CPU, logging nothing")
        named |= {f"limit_{part}_batches": few for part in ("train", "val", "test", "predict")}
        named |= {"max_epochs": stage.request.epochs, "max_steps": -1, "accelerator": "cpu", "devices": 1, "strategy": "auto"}
        named |= {
            "logger": named.get("logger") is not False and _silent_logger(library),
            "enable_progress_bar": False,
            "num_sanity_val_steps": 0,
            "num_nodes": 1,
            "precision": 32,
        }
        for name in ("gpus", "tpu_cores", "num_processes", "min_epochs", "min_steps"):
            named.pop(name, None)
        reporters = tuple(getattr(library.callbacks, name) for name in _REPORTERS if hasattr(library.callbacks, name))
        callbacks = named.get("callbacks") or []
        callbacks = callbacks if isinstance(callbacks, Sequence) else [callbacks]  # also a list of OmegaConf's
        named["callbacks"] = [callback for callback in callbacks if not isinstance(callback, reporters)]
        known = inspect.signature(original).parameters
        for name in [name for name in named if name not in known]:
            stage.note("time", f"Lightning's trainer: {name} is an argument of other versions, and was left out")
            del named[name]
        original(self, *args, **named)

    return start


def _silent_logger(library: Any) -> Any:
    """What takes whatever a script logs: it may ask for `trainer.logger`, which is None without one, as of an empty list."""
    with contextlib.suppress(ImportError, AttributeError):
        return importlib.import_module(f"{library.__name__}.loggers.logger").DummyLogger()
    return False


def _short_hugging_face(stage: Stage, library: Any) -> None:
    few = stage.request.batches

    def start(original: Any, self: Any, *args: Any, **named: Any) -> None:
        stage.note("time", f"Hugging Face's trainer: {few} steps on the CPU, reporting to nobody")
        named |= {"max_steps": few, "report_to": [], "use_cpu": True, "dataloader_num_workers": 0, "push_to_hub": False}
        for name in ("per_device_train_batch_size", "per_device_eval_batch_size"):
            named[name] = min(named.get(name, stage.request.batch_size), stage.request.batch_size)
        named |= {"fp16": False, "bf16": False, "tf32": None}
        original(self, *args, **named)

    with contextlib.suppress(ImportError, AttributeError):
        stage.wrap(library.TrainingArguments, "__init__", start)
