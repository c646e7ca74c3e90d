"""What a model is called with beside its images: the package gives it images alone, and what it was called with otherwise."""

from __future__ import annotations

import inspect
import linecache
from typing import Any

import torch
from torch import nn

from ....errors import SandboxError
from ....runtime.capture.state_guard import state_guard
from .scores import beside_images, with_item
from .seen import Call, Seen, tensors_in, value_at

_FEW = 1024  # numbers of a tensor that may be made of one image
_CLOSE = 1e-4


def varies(seen: Seen, call: Call) -> dict[str, str]:
    """The arguments beside the images that one call of a model has otherwise than the first from the same line, in words."""
    first = seen.first.get(True)
    if first is None or not call.evaluating or call.site != first.site:
        return {}
    one, other = (beside_images(one, of_batch=False) for one in (first, call))
    return {
        _name(seen.module, place): f"{_shown(value)} for one image and {_shown(other[place])} for another"
        for place, value in one.items()
        if place in other and not _same(value, other[place])
    }


def said_of_beside(seen: Seen, call: Call) -> tuple[tuple[str, str], ...]:
    """By line, which arguments vary."""
    return tuple(
        (call.site, f"{name} of its call is {values}; the package has the first") for name, values in seen.beside.items()
    )


def numbers_beside(seen: Seen, call: Call) -> tuple[str, ...]:
    """The numbers beside the images of a model's only call, which its line does not state: other images may have others."""
    if seen.sites.total() > 1:
        return ()
    file = call.frame.f_code.co_filename if call.frame is not None else ""
    line = linecache.getline(file, int(call.site.rpartition(":")[2] or 0))
    return tuple(
        f"{_name(seen.module, place)}={_shown(value)}"
        for place, value in beside_images(call, of_batch=False).items()
        if isinstance(value, int | float | torch.Tensor) and not isinstance(value, bool) and repr(value) not in line
    )


def left_out(module: nn.Module, model: nn.Module, call: Call, output: Any) -> str | None:
    """What `module` is called with of each image beside the images, where it answers otherwise without; `model` is as it is
    packaged, and takes the images alone, `output` is where its scores lie.

    Raises SandboxError where these are numbers that tell of the image, or the model needs them: whole ones may be its class,
    which is known in training and in evaluation alone.
    """
    cut = beside_images(call, of_batch=True)
    if not cut:
        return None
    names = ", ".join(f"{_name(module, place)} {list(value.shape)}" for place, value in cut.items())
    given = (call.args, call.kwargs)
    others = given
    for place, value in cut.items():  # what is zero for this image need not be for another
        others = with_item(others, place, value + 1 if value.is_floating_point() else value)
    with state_guard(module), torch.no_grad():
        try:
            wanted, again, changed = (
                _numbers(value_at(module(*args, **named), output or ())) for args, named in (given, given, others)
            )
        except Exception:  # noqa: BLE001 - whatever the user's model raises; capture says where
            return None
        try:
            found, why = _numbers(model(call.images)), ""
        except Exception as error:  # noqa: BLE001 - it needs what it is not given, which is told
            found, why = [], f" ({type(error).__name__}: {error})"
    if not _alike(again, wanted) or (_alike(found, wanted) and _alike(changed, wanted)):
        return None
    said = f"it is called with {names} of each image beside the images, and answers by these"
    if why or any(value.is_floating_point() for value in cut.values()):
        raise SandboxError(
            f"{said}{why}; a package is given images alone: have its forward() make the rest of these, or do without"
        )
    return f"{said}; the package calls it without"


def _numbers(made: Any) -> list[torch.Tensor]:
    return [value.detach() for _, value in tensors_in(made)]


def _alike(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> bool:
    return len(found) == len(wanted) and all(
        one.numel() == other.numel()
        and torch.allclose(one.flatten().double(), other.flatten().double(), rtol=_CLOSE, atol=_CLOSE, equal_nan=True)
        for one, other in zip(found, wanted, strict=True)
    )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape != other.shape or one.numel() > _FEW or bool(torch.equal(one, other))
    return type(one) is not type(other) or bool(one == other)


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.flatten()[:4].tolist()}"
    return f"{value:.4g}" if isinstance(value, float) else repr(value)


def _name(module: nn.Module, place: tuple[Any, ...]) -> str:
    """The name of an argument of `forward`."""
    where, which = place[:2]
    if where == 1:
        return str(which)
    names = [name for name, item in inspect.signature(module.forward).parameters.items() if item.kind is not item.VAR_KEYWORD]
    return names[which] if which < len(names) else f"argument {which + 1}"
