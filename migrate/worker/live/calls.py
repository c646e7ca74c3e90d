"""Sees a script's models at work: outermost calls of modules with batches of images, and what becomes of their outputs."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import os
import sys
import threading
import time
import types
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ...reading.recipe import Place
from ..recipe import unwrap
from . import pretrained_names
from .beside import varies
from .flow import Flow
from .joined import MOST_JOINED, MOST_PARTS, Joined, joined, takes
from .seen import Call, Seen, tensors_in

_CHANNELS = frozenset([1, 2, 3, 4])
_MOST_BANDS = 16
"""Channels of a satellite's images, and of slices and frames that are stacked."""
_LEAST_SIDE = 4
_PICTURES = 8
_LONGEST_CHAIN = 8  # functions between a model's output and what judges it
_CALLERS = ("_call_impl", "inner", "forward")
"""What calls `forward` on behalf of a call of the module, or of a module around it."""
_CLOCK = 0.05  # seconds by which the times of files may lag behind the clock


class ModuleCalls:
    """A context in which `seen` gathers what is called; `on_call` hears of each call, before it is made, and `on_pause` of each
    time that the script asks a loader for a batch, or is about to save something.

    `root` is the user's repository. Calls within calls do not count, nor those of modules without parameters. What is
    replaced in torch for this is put back at the end.
    """

    def __init__(
        self,
        root: Path,
        on_call: Callable[[Seen, Call], None] | None = None,
        on_pause: Callable[[], None] = lambda: None,
    ) -> None:
        self.root = str(root.resolve()) + "/"
        self.seen: dict[int, Seen] = {}
        self._numbers = itertools.count()  # one that turns out to give its loss is seen no more, and keeps its number
        self._on_call, self._on_pause = on_call, on_pause
        self._local = threading.local()
        self._flow = Flow(self.root)
        self._dataset: Any = None
        self._batch: tuple[int, ...] | None = None
        # What is called after a model may be given its features, which have as many channels.
        self._channels: Collection[int] = range(1, _MOST_BANDS + 1)
        self._pictures: dict[tuple[int, int, int], None] = {}
        """Channels, height and width of the pictures of Pillow's whose pixels were read last, the latest at the end."""
        self._transparent: set[int] = set()
        self._kept: list[Any] = []  # so that no other object gets the id of one that is remembered
        self._undo: list[Callable[[], None]] = []
        self._inside: types.FrameType | None = None
        self._trained: set[int] = set()
        self._joined: dict[tuple[int, int, Place, bool], Seen] = {}
        self._users_file = False
        self._began = time.time()

    def count(self) -> int:
        """How many calls were seen."""
        return sum(seen.sites.total() for seen in self.seen.values())

    def __enter__(self) -> ModuleCalls:
        plain = nn.Module.__call__
        calls = self

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return calls._noted(module, plain, args, kwargs)

        nn.Module.__call__ = call  # type: ignore[method-assign]
        self._undo.append(lambda: setattr(nn.Module, "__call__", plain))
        following = _BaseDataLoaderIter.__next__

        def batch(iterator: Any) -> Any:
            calls._on_pause()
            made = following(iterator)
            calls._dataset = iterator._dataset
            images = next((value for _, value in tensors_in(made) if _are_images(value, calls._channels)), None)
            calls._batch = tuple(images.shape) if images is not None else None
            return made

        _BaseDataLoaderIter.__next__ = batch  # type: ignore[method-assign]
        self._undo.append(lambda: setattr(_BaseDataLoaderIter, "__next__", following))
        plain_pixels = Image.Image.__array_interface__

        def pixels(picture: Image.Image) -> Any:
            size = len(picture.getbands()), picture.height, picture.width
            calls._pictures.pop(size, None)
            calls._pictures[size] = None
            if len(calls._pictures) > _PICTURES:
                del calls._pictures[next(iter(calls._pictures))]
            return plain_pixels.fget(picture)  # type: ignore[attr-defined]

        Image.Image.__array_interface__ = property(pixels)  # type: ignore[assignment]
        self._undo.append(lambda: setattr(Image.Image, "__array_interface__", plain_pixels))
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
        load, save, load_state_dict = torch.load, torch.save, nn.Module.load_state_dict

        @functools.wraps(save)
        def saved(*args: Any, **kwargs: Any) -> None:
            self._on_pause()
            save(*args, **kwargs)

        @functools.wraps(load)
        def loaded(file: Any, *args: Any, **kwargs: Any) -> Any:
            self._users_file = is_users(file, self._began)
            return load(file, *args, **kwargs)

        @functools.wraps(load_state_dict)
        def filled(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            made = load_state_dict(module, *args, **kwargs)
            pretrained_names.note(module, sys._getframe(1))
            if self._users_file:
                self._trained.difference_update(map(id, module.parameters()))
            return made

        torch.load, torch.save, nn.Module.load_state_dict = loaded, saved, filled  # type: ignore[method-assign]
        self._undo.append(lambda: setattr(torch, "load", load))
        self._undo.append(lambda: setattr(torch, "save", save))
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
            if (source := self._source(args, kwargs)) is not None:
                self._flow.note_module(module, args, kwargs)
                return self._record_joined(module, plain, args, *source)
            if (found := self._flattened(args, kwargs)) is None:
                self._flow.note_module(module, args, kwargs)
                return plain(module, *args, **kwargs)
        if (parent := self._called_by_name(module)) is not None:
            self._start_at_forward(*parent)
            if id(parent[0]) not in self._transparent:
                return plain(module, *args, **kwargs)
        return self._record(module, plain, args, kwargs, found)

    def _record(
        self,
        module: nn.Module,
        plain: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        found: tuple[Place, torch.Tensor, tuple[int, ...] | None],
    ) -> Any:
        inner = unwrap(module)
        seen = self.seen.get(id(inner))
        if seen is None:
            seen = self.seen[id(inner)] = Seen(module=inner, ordinal=next(self._numbers))
        slot, images, flattened = found
        frame = self._user_frame()
        site = self._site(frame)
        channels, height, width = flattened or images.shape[1:]
        row = int(channels), int(height), int(width)  # sizes are tensors while torch.jit traces
        grad = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        training = getattr(inner, "training", False)  # torch.jit.freeze leaves modules without it
        call = Call(images, slot, args, kwargs, site, training, grad, row, flattened is not None, self._dataset, frame)
        return self._made(seen, call, module, plain, args, kwargs)

    def _source(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Seen, Place, bool] | None:
        """The model whose output is all that a module is called with by the script itself, if it is one of a few parts."""
        value = takes(args, kwargs)
        source = self._flow.source(value) if value is not None else None
        if source is None or (isinstance(source[0].module, Joined) and len(source[0].module.parts()) >= MOST_PARTS):
            return None
        frame = self._user_frame()
        return source if frame is not None and frame.f_code.co_name != "forward" else None

    def _record_joined(
        self, module: nn.Module, plain: Callable[..., Any], args: tuple[Any, ...], first: Seen, place: Place, flat: bool
    ) -> Any:
        """Note a module that takes a model's output further as one model with it."""
        before, frame = first.latest, self._user_frame()
        assert before is not None
        key = id(first.module), id(unwrap(module)), place, flat
        if key not in self._joined:
            if len(self._joined) >= MOST_JOINED:
                return plain(module, *args)
            made = joined(first.module, module, place=place, flat=flat, frame=frame)
            self._joined[key] = self.seen[id(made)] = Seen(module=made, ordinal=next(self._numbers))
        call = replace(
            before,
            training=before.training or module.training,
            grad=before.grad or torch.is_grad_enabled(),
            site=self._site(frame),
            frame=frame,
            output=None,
        )
        return self._made(self._joined[key], call, module, plain, args, {})

    def _made(
        self,
        seen: Seen,
        call: Call,
        module: nn.Module,
        plain: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Note the call of a model, or of its last part, make it, and follow what it gives."""
        inner = seen.module
        seen.sites[call.site, call.evaluating] += 1
        seen.last = call.evaluating
        first = call.evaluating not in seen.first
        if first:
            seen.first[call.evaluating] = call
        if seen.settled is None and not call.training:
            seen.settled = call
        seen.beside |= varies(seen, call)
        # The first call itself may make its weights.
        lazy = seen.latest is None and any(map(nn.parameter.is_lazy, (*inner.parameters(), *inner.buffers())))
        if not lazy:
            self._heard(seen, call)
        self._local.depth = 1
        self._flow.running = seen
        try:
            output = plain(module, *args, **kwargs)
        finally:
            self._local.depth, self._flow.running = 0, None
        if first:
            call.output = output
        if lazy:
            self._heard(seen, call)
        leaves = list(tensors_in(output))
        if leaves and all(value.dim() == 0 for _, value in leaves):  # it gives its loss: what it calls itself is the model
            self._transparent.add(id(module))
            self._kept.append(module)
            self.seen.pop(id(inner), None)
        seen.latest = call
        self._flow.follow(seen, leaves)
        return output

    def _heard(self, seen: Seen, call: Call) -> None:
        if seen.initial is None and (call.training or call.grad):
            seen.initial = {name: value.detach().clone() for name, value in weights_of(seen.module).items()}
        if self._on_call is not None:
            self._on_call(seen, call)

    def _images(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Place, torch.Tensor, tuple[int, ...] | None] | None:
        """Where the images lie in a call's arguments, the images, and of flattened ones of the loader's batch what each was."""
        tensors = _arguments(args, kwargs)
        for path, value in tensors:
            if _are_images(value, self._channels):
                self._channels = _CHANNELS | {value.shape[1]}
                return path, value, None
        for path, value in tensors:
            if self._batch is not None and value.dim() == 2 and value.is_floating_point():
                rows, *row = self._batch
                if tuple(value.shape) == (rows, row[0] * row[1] * row[2]):
                    return path, value, tuple(row)
        return None

    def _flattened(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Place, torch.Tensor, tuple[int, ...]] | None:
        """The same of rows that have a number for each pixel of a picture that was read: of one channel, whose pixels have one
        order, or as what they are a view of has them."""
        for path, value in _arguments(args, kwargs):
            if value.dim() != 2 or not value.is_floating_point() or len(value) == 0:
                continue
            for size in reversed(self._pictures):
                base = value._base
                ordered = size[0] == 1 or (base is not None and tuple(base.shape[-3:]) == size)
                if math.prod(size) == value.shape[1] and size[0] in _CHANNELS and min(size[1:]) >= _LEAST_SIDE and ordered:
                    return path, value, size
        return None

    def _site(self, frame: types.FrameType | None) -> str:
        return f"{frame.f_code.co_filename.removeprefix(self.root)}:{frame.f_lineno}" if frame is not None else ""

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
        if not isinstance(parent, nn.Module) or parent is module or id(parent) in self._transparent:
            return None
        if unwrap(parent) is unwrap(module):  # which is called itself by DataParallel's
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
            seen = not getattr(self._local, "depth", 0) and id(module) not in self._transparent
            found = self._images(args, kwargs) if seen else None
            return self._record(module, plain, args, kwargs, found) if found is not None else plain(module, *args, **kwargs)

        owner.forward = forward  # type: ignore[attr-defined]
        self._undo.append(lambda: setattr(owner, "forward", plain))
        self._inside = frame
        code, given = frame.f_code, frame.f_locals
        args = tuple(given[name] for name in code.co_varnames[1 : code.co_argcount])
        if code.co_flags & inspect.CO_VARARGS:
            args += given[code.co_varnames[code.co_argcount + code.co_kwonlyargcount]]
        found = self._images(args, {})
        if found is not None:
            self._record(parent, plain, args, {}, found)
        if id(parent) in self._transparent:
            self._inside = None


def _lies_in(frame: types.FrameType | None, outer: types.FrameType) -> bool:
    """Whether a frame is another's, or one of the methods that it calls."""
    for _ in range(_LONGEST_CHAIN):
        if frame is None or frame is outer:
            break
        frame = frame.f_back
    return frame is outer


def is_users(file: Any, began: float) -> bool:
    """Whether a file was there before a run began: what is made in the run is nobody's."""
    if not isinstance(file, str | os.PathLike):
        return False
    return os.path.exists(file) and os.stat(file).st_mtime < began - _CLOCK


def weights_of(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Place, torch.Tensor]]:
    tensors = [((0, *path), value) for path, value in tensors_in(args)]
    return [*tensors, *(((1, *path), value) for path, value in tensors_in(kwargs))]


def _are_images(value: torch.Tensor, channels: Collection[int]) -> bool:
    return (
        value.dim() == 4
        and value.shape[1] in channels
        and min(value.shape[2:]) >= _LEAST_SIDE
        and len(value) > 0
        and (value.is_floating_point() or value.dtype == torch.uint8)
    )
