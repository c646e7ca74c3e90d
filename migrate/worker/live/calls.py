"""Sees a script's models at work: outermost calls of modules with batches of images, and what becomes of their outputs."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ...reading.recipe import Place
from ..recipe import unwrap

_CHANNELS = (1, 2, 3, 4)
_LEAST_SIDE = 4
_LONGEST_CHAIN = 8  # functions between a model's output and what judges it
_CALLERS = ("_call_impl", "inner", "forward")
"""What calls `forward` on behalf of a call of the module, or of a module around it."""
_IGNORED = ("__get__", "__set__")
_COMPARISONS = frozenset({"gt", "ge", "lt", "le", "greater", "greater_equal", "less", "less_equal"})
PAIRINGS = frozenset({"cosine_similarity", "matmul", "mm", "bmm", "rmatmul", "cdist", "pairwise_distance", "einsum"})
"""What holds vectors against others: what is read of that is said of both."""
_CLOCK = 0.05  # seconds by which the times of files may lag behind the clock


@dataclass(frozen=True)
class Limit:
    """Numbers that an output was compared with, one or one for each of its columns, before or after a sigmoid."""

    values: tuple[float, ...]
    after_sigmoid: bool


@dataclass(eq=False)
class Call:
    """One call of a module with images. `slot` is where these lie in (args, kwargs); `flat`: as rows of their pixels."""

    images: torch.Tensor
    slot: Place
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    site: str
    training: bool
    grad: bool
    row: tuple[int, int, int]
    flat: bool = False
    dataset: Any = None
    frame: types.FrameType | None = None
    output: Any = None

    @property
    def evaluating(self) -> bool:
        """Whether nothing is learned from it, as far as the call itself tells; `Seen.learned` has what came after."""
        return not self.training or not self.grad


@dataclass(eq=False)
class Seen:
    """A module that a script calls with images: how often from where, and which functions read each part of its outputs."""

    module: nn.Module
    ordinal: int
    sites: Counter[tuple[str, bool]] = field(default_factory=Counter)
    first: dict[bool, Call] = field(default_factory=dict)
    """The first call while evaluating, and the first of the others."""
    reads: dict[Place, Counter[str]] = field(default_factory=dict)
    feeds: set[tuple[str, bool]] = field(default_factory=set)
    """Classes of the modules with parameters that take its outputs further, and whether those of a call while evaluating."""
    evaluated: dict[Place, Counter[str]] = field(default_factory=dict)
    """Those of the functions that read what a call while evaluating gave."""
    limits: dict[Place, Counter[Limit]] = field(default_factory=dict)
    """What each part of its outputs was compared with."""
    last: bool = False
    """Whether the latest call was one while evaluating."""
    learned: set[bool] = field(default_factory=set)
    """Of which kinds the calls were after which an optimizer changed its parameters."""
    initial: dict[str, torch.Tensor] | None = None
    """A copy of its weights as they were before the first call that may train it."""


class ModuleCalls:
    """A context in which `seen` gathers what is called; `on_call` hears of each call, before it is made.

    `root` is the user's repository. Calls within calls do not count, nor those of modules without parameters. What is
    replaced in torch for this is put back at the end.
    """

    def __init__(self, root: Path, on_call: Callable[[Seen, Call], None] | None = None) -> None:
        self.root = str(root.resolve()) + "/"
        self.seen: dict[int, Seen] = {}
        self._on_call = on_call
        self._local = threading.local()
        self._flow = _Flow()
        self._dataset: Any = None
        self._batch: tuple[int, ...] | None = None
        self._transparent: set[int] = set()
        self._kept: list[Any] = []  # so that no other object gets the id of one that is remembered
        self._undo: list[Callable[[], None]] = []
        self._inside: types.FrameType | None = None
        self._trained: set[int] = set()
        self._users_file = False
        self._began = time.time()

    def __enter__(self) -> ModuleCalls:
        plain = nn.Module.__call__
        calls = self

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return calls._noted(module, plain, args, kwargs)

        nn.Module.__call__ = call  # type: ignore[method-assign]
        self._undo.append(lambda: setattr(nn.Module, "__call__", plain))
        following = _BaseDataLoaderIter.__next__

        def batch(iterator: Any) -> Any:
            made = following(iterator)
            calls._dataset = iterator._dataset
            images = next((value for _, value in tensors_in(made) if _are_images(value)), None)
            calls._batch = tuple(images.shape) if images is not None else None
            return made

        _BaseDataLoaderIter.__next__ = batch  # type: ignore[method-assign]
        self._undo.append(lambda: setattr(_BaseDataLoaderIter, "__next__", following))
        self._follow_training()
        self._flow.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._flow.__exit__(None, None, None)
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _follow_training(self) -> None:
        """Which parameters an optimizer changed, and no file of the user's gave back since."""

        def stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            changed = {id(value) for group in optimizer.param_groups for value in group["params"]}
            self._trained |= changed
            for seen in self.seen.values():
                if not changed.isdisjoint(map(id, seen.module.parameters())):
                    seen.learned.add(seen.last)

        self._undo.append(register_optimizer_step_post_hook(stepped).remove)
        load, load_state_dict = torch.load, nn.Module.load_state_dict

        @functools.wraps(load)
        def loaded(file: Any, *args: Any, **kwargs: Any) -> Any:
            self._users_file = is_users(file, self._began)
            return load(file, *args, **kwargs)

        @functools.wraps(load_state_dict)
        def filled(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            made = load_state_dict(module, *args, **kwargs)
            if self._users_file:
                self._trained.difference_update(map(id, module.parameters()))
            return made

        torch.load, nn.Module.load_state_dict = loaded, filled  # type: ignore[method-assign]
        self._undo.append(lambda: setattr(torch, "load", load))
        self._undo.append(lambda: setattr(nn.Module, "load_state_dict", load_state_dict))

    def own_weights(self, seen: Seen) -> dict[str, torch.Tensor]:
        """A model's weights as they are, but as they were where this run trained it."""
        trained = any(id(value) in self._trained for value in seen.module.parameters())
        return seen.initial if trained and seen.initial is not None else weights_of(seen.module)

    # -- one call

    def _noted(self, module: nn.Module, plain: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if getattr(self._local, "depth", 0):
            return plain(module, *args, **kwargs)
        if self._inside is not None and _lies_in(sys._getframe(2), self._inside):
            self._local.depth = 1
            try:
                return plain(module, *args, **kwargs)
            finally:
                self._local.depth = 0
        if next(module.parameters(), None) is None or id(module) in self._transparent:
            return plain(module, *args, **kwargs)
        found = self._images(args, kwargs)
        if found is None:
            self._flow.note_module(module, args, kwargs)
            return plain(module, *args, **kwargs)
        if (parent := self._called_by_name(module)) is not None:
            self._start_at_forward(*parent)
            return plain(module, *args, **kwargs)
        return self._record(module, plain, args, kwargs, found)

    def _record(
        self,
        module: nn.Module,
        plain: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        found: tuple[Place, torch.Tensor, bool],
    ) -> Any:
        inner = unwrap(module)
        seen = self.seen.get(id(inner))
        if seen is None:
            seen = self.seen[id(inner)] = Seen(module=inner, ordinal=len(self.seen))
        slot, images, flat = found
        frame = self._user_frame()
        site = f"{frame.f_code.co_filename.removeprefix(self.root)}:{frame.f_lineno}" if frame is not None else ""
        channels, height, width = self._batch[1:] if flat and self._batch is not None else images.shape[1:]
        row = int(channels), int(height), int(width)  # sizes are tensors while torch.jit traces
        grad = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        call = Call(images, slot, args, kwargs, site, inner.training, grad, row, flat, self._dataset, frame)
        seen.sites[site, call.evaluating] += 1
        seen.last = call.evaluating
        if seen.initial is None and (call.training or call.grad):
            seen.initial = {name: value.detach().clone() for name, value in weights_of(inner).items()}
        first = call.evaluating not in seen.first
        if first:
            seen.first[call.evaluating] = call
        if self._on_call is not None:
            self._on_call(seen, call)
        self._local.depth = 1
        try:
            output = plain(module, *args, **kwargs)
        finally:
            self._local.depth = 0
        if first:
            call.output = output
        leaves = list(tensors_in(output))
        if leaves and all(value.dim() == 0 for _, value in leaves):  # it gives its loss: what it calls itself is the model
            self._transparent.add(id(module))
            self._kept.append(module)
            del self.seen[id(inner)]
        self._flow.follow(seen, leaves)
        return output

    def _images(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Place, torch.Tensor, bool] | None:
        """Where the images lie in a call's arguments, the images, and whether they are flattened ones of the loader's batch."""
        tensors = [((0, *path), value) for path, value in tensors_in(args)]
        tensors += [((1, *path), value) for path, value in tensors_in(kwargs)]
        for path, value in tensors:
            if _are_images(value):
                return path, value, False
        for path, value in tensors:
            if self._batch is not None and value.dim() == 2 and value.is_floating_point():
                rows, *row = self._batch
                if tuple(value.shape) == (rows, row[0] * row[1] * row[2]):
                    return path, value, True
        return None

    def _user_frame(self) -> types.FrameType | None:
        """The innermost frame of the repository's own code, the models' apart."""
        frame: types.FrameType | None = sys._getframe(2)
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(self.root) and "site-packages" not in name:
                return frame
            frame = frame.f_back
        return None

    # -- model.forward(images), which does without the call

    def _called_by_name(self, module: nn.Module) -> tuple[nn.Module, types.FrameType] | None:
        """The module whose `forward` was called as a plain method, and calls `module` now, with its frame."""
        frame = sys._getframe(3)
        parent = frame.f_locals.get("self")
        if not isinstance(parent, nn.Module) or parent is module:
            return None
        while (
            frame.f_code.co_name != "forward" and (outer := frame.f_back) is not None and outer.f_locals.get("self") is parent
        ):
            frame = outer  # torchvision's forward calls a method that calls the layers
        caller = frame.f_back.f_code.co_name if frame.f_back is not None else ""
        return (parent, frame) if frame.f_code.co_name == "forward" and caller not in _CALLERS else None

    def _start_at_forward(self, parent: nn.Module, frame: types.FrameType) -> None:
        """Note this call by making it once more from its beginning, and later ones where `forward` starts."""
        owner = next(kind for kind in type(parent).__mro__ if "forward" in vars(kind))
        plain = vars(owner)["forward"]

        def forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            found = self._images(args, kwargs) if not getattr(self._local, "depth", 0) else None
            return self._record(module, plain, args, kwargs, found) if found is not None else plain(module, *args, **kwargs)

        owner.forward = forward  # type: ignore[attr-defined]
        self._undo.append(lambda: setattr(owner, "forward", plain))
        self._inside = frame
        names = frame.f_code.co_varnames[1 : frame.f_code.co_argcount]
        args = tuple(frame.f_locals[name] for name in names)
        found = self._images(args, {})
        if found is not None:
            self._record(parent, plain, args, {}, found)


def _lies_in(frame: types.FrameType | None, outer: types.FrameType) -> bool:
    """Whether a frame is another's, or one of the methods that it calls."""
    for _ in range(_LONGEST_CHAIN):
        if frame is None or frame is outer:
            break
        frame = frame.f_back
    return frame is outer


class _Flow(TorchFunctionMode):  # type: ignore[misc]
    """Follows the outputs of the last call of each model through torch's functions."""

    def __init__(self) -> None:
        super().__init__()
        self._tracked: dict[int, _Followed] = {}

    def follow(self, seen: Seen, leaves: list[tuple[Place, torch.Tensor]]) -> None:
        self._tracked = {key: entry for key, entry in self._tracked.items() if entry.seen is not seen}
        for path, value in leaves:
            self._tracked[id(value)] = _Followed(value, seen, path)

    def note_module(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for _, value in (*tensors_in(args), *tensors_in(kwargs)):
            if (entry := self._tracked.get(id(value))) is not None:
                entry.seen.feeds.add((type(module).__name__, entry.seen.last))

    def __torch_function__(
        self, function: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if self._tracked:
            for value in (*args, *(kwargs or {}).values()):
                for item in value if isinstance(value, list | tuple) else (value,):
                    entry = self._tracked.get(id(item)) if isinstance(item, torch.Tensor) else None
                    if entry is not None:
                        self._note(entry, getattr(function, "__name__", ""), args, kwargs or {}, result)
        return result

    def _note(
        self,
        entry: _Followed,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> None:
        seen, path = entry.seen, entry.path
        if name == "max" and len(args) + len(kwargs) > 1:
            name = "argmax"  # the largest of each row, and where it stands
        if name not in _IGNORED:
            seen.reads.setdefault(path, Counter())[name] += 1
            if seen.last:
                seen.evaluated.setdefault(path, Counter())[name] += 1
        if name.strip("_") in _COMPARISONS or name == "round":
            other = 0.5 if name == "round" else next((value for value in args if value is not entry.value), None)
            if (values := _numbers(other, entry.value)) is not None:
                seen.limits.setdefault(path, Counter())[Limit(values, entry.after_sigmoid)] += 1
        if entry.length < _LONGEST_CHAIN and name.strip("_") not in PAIRINGS:
            after = entry.after_sigmoid or name == "sigmoid"
            for value in result if isinstance(result, list | tuple) else (result,):
                if isinstance(value, torch.Tensor):
                    self._tracked.setdefault(id(value), _Followed(value, seen, path, entry.length + 1, after))


@dataclass(frozen=True, eq=False)
class _Followed:
    """A value that a model gave or that became of one, so many functions later."""

    value: torch.Tensor
    seen: Seen
    path: Place
    length: int = 0
    after_sigmoid: bool = False


def _numbers(value: Any, compared: torch.Tensor) -> tuple[float, ...] | None:
    """One number, or one for each column of what is compared with them; None for anything else."""
    try:
        numbers = torch.as_tensor(value, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        return None
    if numbers.dim() == 0:
        return (float(numbers),)
    columns = compared.shape[-1] if compared.dim() == 2 else 0
    return tuple(numbers.flatten().tolist()) if numbers.numel() == columns > 1 else None


def is_users(file: Any, began: float) -> bool:
    """Whether a file was there before a run began: what is made in the run is nobody's."""
    if not isinstance(file, str | os.PathLike):
        return False
    return os.path.exists(file) and os.stat(file).st_mtime < began - _CLOCK


def weights_of(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}


def _are_images(value: torch.Tensor) -> bool:
    return (
        value.dim() == 4
        and value.shape[1] in _CHANNELS
        and min(value.shape[2:]) >= _LEAST_SIDE
        and len(value) > 0
        and (value.is_floating_point() or value.dtype == torch.uint8)
    )


def tensors_in(value: Any, path: Place = (), depth: int = 0) -> Iterator[tuple[Place, torch.Tensor]]:
    """The tensors in what a call takes or gives, with where they lie."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif depth > 3 or value is None or isinstance(value, str | bytes | int | float):
        return
    elif isinstance(value, Mapping):  # transformers' outputs and batches too
        for key, item in value.items():
            yield from tensors_in(item, (*path, key), depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value[:64]):
            yield from tensors_in(item, (*path, index), depth + 1)
    elif is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            yield from tensors_in(getattr(value, item.name, None), (*path, f".{item.name}"), depth + 1)


def value_at(value: Any, path: Place) -> Any:
    """What lies there in a nested value."""
    for step in path:
        value = getattr(value, step[1:]) if isinstance(step, str) and step.startswith(".") else value[step]
    return value
