"""Note what a script feeds its model and what comes out: the child side of `instrument`.

Copied as `_headrace_record.py` beside an instrumented script. Standard library and numpy only, and it knows tensors by what
they can do. At most ROWS rows and BYTES bytes per call site are kept; the file appears when the script ends or the
site is full.  HEADRACE_RECORD names the file: "<site>/inputs", "/outputs", "/targets", "/classes" (a JSON text), "/losses".
HEADRACE_RANKS, where it is set, is how many processes run the script; those after the first write to "<file>.rank<number>".
HEADRACE_SLICE, where it is set, is how many rows stand for all that a loader of torch gives: "/slice" has how many of how many.
HEADRACE_NUDGE, where it is set, is by how much the script gets each output changed, up or down: one number, or a JSON object of
numbers by site. Noted is the output itself. "/calls" has for each row which of all recorded calls, from 0, it belongs to,
"/models" which of the models that the site called, from 0, and "/kinds" (a JSON text) their classes. Of a model in a
lower precision, as torch.autocast has it, the outputs are those in float32, and "/own" those that the script had.
"""

from __future__ import annotations

import atexit
import copy
import importlib.util
import itertools
import json
import math
import os
import random
import socket
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from typing import Any

import numpy as np

ROWS = 1024
BYTES = 512 * 2**20


class Site:
    """One call of a model in the source."""

    def __init__(self) -> None:
        self.inputs: list[np.ndarray] = []
        self.outputs: list[np.ndarray] = []
        self.targets: list[np.ndarray | None] = []
        self.calls: list[np.ndarray] = []
        self.models: list[np.ndarray] = []
        self.known: dict[tuple[str, float], int] = {}  # which models were called, and their numbers
        self.classes: list[str] | None = None
        self.bytes = 0
        self.made = 0  # calls
        self.own: list[np.ndarray] = []
        self.precision: str | None = None  # where it is not the models' own

    @property
    def full(self) -> bool:
        return self.bytes >= BYTES or sum(len(batch) for batch in self.inputs) >= ROWS

    def add(self, given: np.ndarray | None, own: Any, outputs: Any, targets: Any, call: int, model: Any) -> None:
        made = as_array(first(outputs))
        if given is None or made is None or given.ndim < 2 or made.ndim < 1 or len(given) != len(made) or not len(given):
            return
        if self.inputs and (given.shape[1:], made.shape[1:]) != (self.inputs[0].shape[1:], self.outputs[0].shape[1:]):
            return
        labels = as_array(targets)
        fits = labels is not None and labels.ndim > 0 and len(labels) == len(given) and _are_classes(labels)
        self.inputs.append(given)
        self.outputs.append(made)
        had = as_array(first(own))
        self.own.append(made if had is None or had.shape != made.shape else had)
        self.calls.append(np.full(len(given), call, np.int64))
        number = self.known.setdefault(identity(model), len(self.known))
        self.models.append(np.full(len(given), number, np.int64))
        self.targets.append(labels if fits else None)
        self.bytes += given.nbytes + made.nbytes

    def arrays(self) -> dict[str, np.ndarray]:
        if not self.inputs:
            return {}
        found = {"inputs": np.concatenate(self.inputs)[:ROWS], "outputs": np.concatenate(self.outputs)[:ROWS]}
        found["calls"], found["models"] = np.concatenate(self.calls)[:ROWS], np.concatenate(self.models)[:ROWS]
        found["kinds"] = np.array(json.dumps([kind for kind, _ in self.known]))
        known = [labels for labels in self.targets if labels is not None]
        if len(known) == len(self.targets):
            found["targets"] = np.concatenate(known)[:ROWS].astype(np.int64)
        if self.classes is not None:
            found["classes"] = np.array(json.dumps(self.classes))
        if self.precision is not None:
            found["precision"], found["own"] = np.array(self.precision), np.concatenate(self.own)[:ROWS]
        return found


SITES: dict[str, Site] = {}
LOSSES: dict[str, list[float]] = {}
LONGEST = 120.0
"""Seconds after its first step that a training script may go on."""
STARTED: list[float] = []
OWNER = os.getpid()
LISTEN = socket.socket.listen
SIGNS = np.random.default_rng(0)
WRAPPERS = ("DataParallel", "DistributedDataParallel")
IDENTITIES: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
WIDENED: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""Copies in float32 of models in a lower precision."""
CALLS = itertools.count()
"""Those of all sites, in their order."""
ENOUGH: list[tuple[int, type[BaseException]]] = []
"""In a rehearsal: after how many calls of one site the script has been run far enough, and what ends it then."""
SLICES: list[tuple[int, int]] = []
"""Rows that were taken, of how many, for each pass over a loader that was not gone through whole."""


def seed() -> None:
    """Start both runs from the same random numbers, so that shuffled data comes in the same order; a service ends as it begins
    to wait for requests, since nobody will send one."""
    if "HEADRACE_RECORD" in os.environ:
        socket.socket.listen = listen  # type: ignore[assignment,method-assign]
    seed_later_generators()
    random.seed(0)
    np.random.seed(0)
    torch = sys.modules.get("torch")
    if torch is not None:
        seed_torch(torch)
    else:
        sys.meta_path.insert(0, SeededImport())


def seed_torch(torch: Any) -> None:
    """Torch's part of it, as soon as torch is there."""
    torch.manual_seed(0)
    if "HEADRACE_SLICE" in os.environ:
        slice_loaders(torch.utils.data.DataLoader, int(os.environ["HEADRACE_SLICE"]))


class SeededImport:
    """Has torch start alike where the script imports it later, as after a change of the import path."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            seed_torch(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def seed_later_generators() -> None:
    """Let generators that would draw their seed from the system, as each pipeline of albumentations does, start alike too."""
    start = random.Random.seed

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        start(self, 0 if a is None else a, version)

    np.random.bit_generator.randbits = lambda bits: 0  # type: ignore[attr-defined]  # what NumPy's draw their seed with
    random.Random.seed = seed  # type: ignore[method-assign]


def slice_loaders(loader: Any, rows: int) -> None:
    """Let torch's loaders go through so many rows of a longer data set, and say that they are as long as that."""
    whole = loader._index_sampler

    def sampler(self: Any) -> Any:
        batches = whole.fget(self)
        # Those of the user's own may have any reason for what they put together, and data sets without a length end anywhere.
        if type(batches).__module__ != "torch.utils.data.sampler" or not hasattr(batches, "batch_size"):
            return batches
        if not hasattr(batches.sampler, "__len__"):
            return batches
        part = Slice(batches, rows)
        return part if part.rows < part.of else batches

    loader._index_sampler = property(sampler)


class Slice:
    """Rows of a sampler's, spread evenly over all, in batches of the same size, the last as small as it is of all."""

    def __init__(self, batches: Any, rows: int) -> None:
        self.batches, self.size, self.of = batches, batches.batch_size, len(batches.sampler)
        last = 0 if batches.drop_last else self.of % self.size
        self.rows = last + self.size * max(1, math.ceil((rows - last) / self.size))

    def __iter__(self) -> Iterator[list[Any]]:
        every = list(self.batches.sampler)
        draw = random.Random(0)  # noqa: S311 - within its share: data that come in turns would all be of one kind
        at = [draw.randrange(row * len(every) // self.rows, (row + 1) * len(every) // self.rows) for row in range(self.rows)]
        SLICES.append((self.rows, self.of))
        for first in range(0, self.rows, self.size):
            yield [every[index] for index in at[first : first + self.size]]

    def __len__(self) -> int:
        return math.ceil(self.rows / self.size)


def listen(waiting: socket.socket, *backlog: int) -> None:
    """`socket.listen` of the script's own process: on a network it ends the script, between its own processes it does not."""
    if os.getpid() == OWNER and waiting.family in (socket.AF_INET, socket.AF_INET6):
        save()
        sys.stdout.flush()
        sys.stderr.write("it is a service, which waits for requests\n")
        sys.stderr.flush()
        os._exit(1)
    LISTEN(waiting, *backlog)


def wrap(
    site: str, model: Callable[..., Any], targets: Callable[[], Any], loaders: Callable[[], Any], *, graded: bool = True
) -> Callable[..., Any]:
    """A stand-in for `model` in one call: the same call, noted; not `graded`, only where no gradients are wanted."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if not graded and sys.modules["torch"].is_grad_enabled():
            return model(*args, **kwargs)
        notes = SITES.setdefault(site, Site())
        for most, end in ENOUGH:
            if notes.made >= most:
                raise end(f"ended after {most} calls of the model at {site}")
        notes.made += 1
        fed = [*args, *kwargs.values()]
        noting = bool(fed) and not notes.full and os.getpid() == OWNER
        number = next(CALLS)
        given = as_array(fed[0]) if noting else None  # before the call, which may change it in place
        result = model(*args, **kwargs)
        if noting:
            if notes.classes is None:
                notes.classes = class_names(value_of(loaders) or ())
            outputs = result
            if (precision := reduced_precision(model, fed[0])) is not None:
                notes.precision = precision
                outputs = in_full_precision(model, args, kwargs, fed[0].device.type, result)
            notes.add(given, result, outputs, value_of(targets), number, model)
            if notes.full:
                save()
        return nudged(result, nudge_of(site))

    return call


def reduced_precision(model: Any, given: Any) -> str | None:
    """In which lower precision an evaluated module computes, by torch.autocast or by its own weights; None in float32. Twice
    called, a module that trains would learn twice, and of another callable nobody knows."""
    torch = sys.modules.get("torch")
    module = getattr(model, "__self__", model)
    if torch is None or not isinstance(given, torch.Tensor) or not isinstance(module, torch.nn.Module):
        return None
    if getattr(module, "training", False):  # torch.jit.freeze leaves modules without it
        return None
    device = given.device.type
    if torch.is_autocast_enabled(device):
        return str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    return str(given.dtype).removeprefix("torch.") if _is_lower(given) else None


def in_full_precision(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], device: str, reduced: Any) -> Any:
    """What a call gives in float32, since a graph computes in the precision of its plan whatever stands around the call;
    `reduced`, where it gives nothing in it."""
    torch = sys.modules["torch"]
    module = getattr(model, "__self__", model)
    if any(map(_is_lower, module.parameters())):
        if module not in WIDENED:
            _forget_when_loaded()
            WIDENED[module] = copy.deepcopy(module).float()
        model = WIDENED[module]
        args = tuple(value.float() if _is_lower(value) else value for value in args)
        kwargs = {name: value.float() if _is_lower(value) else value for name, value in kwargs.items()}
    try:
        with torch.autocast(device, enabled=False), torch.no_grad(), torch.random.fork_rng():
            return model(*args, **kwargs)
    except RuntimeError:  # what it is fed is of a lower precision than its weights
        return reduced


def _is_lower(value: Any) -> bool:
    return str(getattr(value, "dtype", "")) in ("torch.bfloat16", "torch.float16")


def identity(model: Any) -> tuple[str, float]:
    """The class of a model and a sum of its weights when it was first called since a file filled it: a script may load the same
    one for each image, or call another at the same place, or one with other weights. What is no module has its class alone."""
    try:
        model = getattr(model, "__self__", model)  # of `model.forward`
        while type(model).__name__ in WRAPPERS:
            model = model.module
        _forget_when_loaded()
        if model not in IDENTITIES:
            IDENTITIES[model] = float(sum(value.detach().double().sum() for value in model.parameters()))
        return type(model).__name__, IDENTITIES[model]
    except Exception:  # noqa: BLE001 - a callable may be anything, and raise what it likes
        return type(model).__name__, 0.0


def _forget_when_loaded() -> None:
    module = sys.modules["torch"].nn.Module
    plain = module.load_state_dict
    if plain.__name__ == "forgetting":
        return

    def forgetting(self: Any, *args: Any, **kwargs: Any) -> Any:
        for model in [known for known in {*IDENTITIES, *WIDENED} if any(part is self for part in known.modules())]:
            IDENTITIES.pop(model, None)
            WIDENED.pop(model, None)
        return plain(self, *args, **kwargs)

    module.load_state_dict = forgetting


def nudge_of(site: str) -> float:
    told = json.loads(os.environ.get("HEADRACE_NUDGE", "0"))
    return float(told.get(site, 0.0) if isinstance(told, dict) else told)


def nudged(result: Any, by: float) -> Any:
    """An output of a model, changed by so little; of several that stand together, each in the same proportion to its values as
    the first. The script's own random numbers stay as they are."""
    if not by:
        return result
    if isinstance(result, (list, tuple)) and result:
        largest = [_largest(item) for item in result]
        items = [
            nudged(item, by * size / largest[0] if largest[0] else 0.0) for item, size in zip(result, largest, strict=True)
        ]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    if type(result) is dict and result:
        names = sorted(result, key=lambda name: name != "logits")
        return {**result, **dict(zip(names, nudged([result[name] for name in names], by), strict=True))}
    if not _is_tensor(result) and _is_tensor(getattr(result, "logits", None)):
        result.logits = _nudged_tensor(result.logits, by)
        return result
    return _nudged_tensor(result, by)


def _is_tensor(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("is_floating_point", "new_tensor")) and bool(value.is_floating_point())


def _largest(value: Any) -> float:
    return float(value.detach().abs().max()) if _is_tensor(value) and value.numel() else 0.0


def _nudged_tensor(value: Any, by: float) -> Any:
    if not by or not _is_tensor(value):
        return value
    return value + value.new_tensor(np.where(SIGNS.random(tuple(value.shape)) < 0.5, -by, by))


def note_loss(site: str, loss: Any, steps: int) -> None:
    """Keep the loss of one training step. After so many of them, in all loops together, the script has been run far enough."""
    if os.getpid() != OWNER:
        return
    value = as_array(loss) if not isinstance(loss, (int, float)) else np.array(loss)
    if value is None or value.size != 1:
        return
    STARTED[:] = STARTED or [time.monotonic()]
    LOSSES.setdefault(site, []).append(float(value.reshape(())))
    if sum(map(len, LOSSES.values())) >= steps or time.monotonic() - STARTED[0] > LONGEST:
        save()
        sys.stdout.flush()
        sys.stderr.flush()
        wait_for_other_ranks()
        os._exit(0)  # nothing of what follows is to be run, not even `finally`


def wait_for_other_ranks() -> None:
    """Of several ranks none ends before all have done as much: one that waits for another's part of a sum would fail."""
    ranks, own = int(os.environ.get("HEADRACE_RANKS", "1")), os.environ.get("HEADRACE_RECORD")
    if ranks == 1 or own is None:
        return
    first = own.rpartition(".rank")[0] or own
    ends = time.monotonic() + LONGEST / 2
    while time.monotonic() < ends:
        if all(os.path.exists(f"{first}.rank{rank}" if rank else first) for rank in range(ranks)):
            return
        time.sleep(0.02)


def value_of(thunk: Callable[[], Any]) -> Any:
    try:
        return thunk()
    except (NameError, AttributeError, KeyError, IndexError, TypeError):  # not bound yet at this call
        return None


def as_array(value: Any) -> np.ndarray | None:
    """A copy of a tensor or an array: the script may go on to change its own in place."""
    if all(hasattr(value, name) for name in ("detach", "cpu", "numpy")):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()
    return np.array(value) if isinstance(value, np.ndarray) else None  # what stands in for a library can do everything


def first(outputs: Any) -> Any:
    if isinstance(outputs, (list, tuple)) and outputs:
        return outputs[0]
    if isinstance(outputs, dict) and outputs:
        return outputs["logits"] if "logits" in outputs else next(iter(outputs.values()))
    return getattr(outputs, "logits", outputs)


def _are_classes(labels: np.ndarray) -> bool:
    """A class number for each row, or zeros and ones for each label of a row."""
    return (labels.ndim == 1 and labels.dtype.kind in "iu") or (labels.ndim == 2 and bool(np.isin(labels, (0, 1)).all()))


def class_names(loaders: Any) -> list[str] | None:
    """The dataset's own class names, through loaders and subsets."""
    for loader in loaders:
        dataset = getattr(loader, "dataset", loader)
        for _ in range(4):
            index = getattr(dataset, "class_to_idx", None)
            if isinstance(index, dict) and sorted(index.values()) == list(range(len(index))):
                return [str(name) for name in sorted(index, key=index.__getitem__)]
            names = getattr(dataset, "classes", None)
            if isinstance(names, (list, tuple)) and names and all(isinstance(name, (str, int)) for name in names):
                return [str(name) for name in names]
            dataset = getattr(dataset, "dataset", None)
    return None


def save() -> None:
    if os.getpid() != OWNER or "HEADRACE_RECORD" not in os.environ:
        return
    found = {f"{site}/{name}": array for site, notes in SITES.items() for name, array in notes.arrays().items()}
    found |= {f"{site}/losses": np.array(losses, np.float64) for site, losses in LOSSES.items()}
    if SLICES:
        found["/slice"] = np.array(max(SLICES, key=lambda taken: taken[1]))
    target = os.environ["HEADRACE_RECORD"]
    # A process that only helps the script, as Python 3.14's server of forks does, may end after the one that did the work.
    if not found and os.path.exists(target):
        return
    part = f"{target}.{OWNER}.part"
    with open(part, "wb") as file:
        np.savez(file, **found)  # type: ignore[arg-type]
    os.replace(part, target)


def finish() -> None:
    if os.getpid() == OWNER:  # not a fork of what imported this
        save()
        wait_for_other_ranks()


atexit.register(finish)
