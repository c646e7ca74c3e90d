"""Every use of torch's private interfaces for global tensors, in one place, with the versions that they were read in.

- `torch.distributed.tensor._utils.ExplicitRedistributionContext` (read in 2.13): DTensor tells it of each redistribution that
  an operator asks for by itself. It is told no argument, file or line, so ours is asked in its place and looks at its caller.
- `torch.distributed.tensor._dtensor_spec`, `_redistribute.redistribute_local_tensor` and the constructor of DTensor (read in
  2.13): a global tensor around a local one, and a conversion without autograd's steps.
- `torch.distributed._local_tensor.local_tensor_mode` (read in 2.13, in `shares`): whether ranks are simulated in one process.
- `DTensor._op_dispatcher._custom_op_handlers` (read in 2.13 and 2.14): who runs a mean loss, and a convolution, of which
  torch's own lets rows be split over one axis.
- `torch._C._current_autograd_node` and `torch.autograd._get_sequence_nr`: which operator's backward pass runs.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._redistribute import redistribute_local_tensor
from torch.distributed.tensor._utils import ExplicitRedistributionContext
from torch.overrides import TorchFunctionMode

from ...errors import PlacementError
from .sbp import words

_OWN = __name__.partition(".")[0]
# Arguments that are an operator's own account of its forward pass, which no line of the user's can reach, by their place: the
# weight of all rows that a mean loss is divided by. They are single numbers, and no gradients.
_ACCOUNTS = {"aten.nll_loss_backward.default": 6, "aten.nll_loss2d_backward.default": 6}
_located = threading.local()
_MEAN, _SUM = 1, 2  # at::Reduction
# What draws for a tensor that it is given: each rank would draw for its own share.
_DRAWS = {
    "alpha_dropout", "bernoulli", "bernoulli_", "dropout", "dropout_", "feature_alpha_dropout", "feature_dropout",
    "multinomial", "normal_", "rand_like", "randint_like", "randn_like", "random_", "rrelu",
    "scaled_dot_product_attention", "uniform_",
}  # fmt: skip


class _Guard(ExplicitRedistributionContext):  # type: ignore[misc]
    """Raises PlacementError, with all that is known, where torch's own raises a RuntimeError with the operator's name."""

    def __init__(self) -> None:
        self._strict = False  # what moves nothing (a whole tensor's own share) is no conversion

    @property
    def _enable(self) -> bool:
        asked = sys._getframe(2).f_locals
        return _ACCOUNTS.get(_operator(asked), -1) != asked.get("i")

    @property
    def _raise_on_redistribution(self) -> bool:
        told = sys._getframe(1).f_locals
        raise _error(told.get("src_spec"), told.get("dst_spec"), sys._getframe(2).f_locals)


def guard_thread() -> None:
    """From here on, no operator of this thread moves a global tensor by itself. Again is no harm."""
    if getattr(ExplicitRedistributionContext._local, "_active", None) is None:
        ExplicitRedistributionContext._local._active = _Guard()


class _Allowed(ExplicitRedistributionContext):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(enable=False)


@contextlib.contextmanager
def implicit() -> Iterator[None]:
    """Within it, operators move global tensors by themselves, as torch's DTensor does."""
    with _Allowed():
        yield


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Within it, none does; and an error in the backward pass names the line of the forward pass that it belongs to.

    The backward pass runs in this thread then, since the guard and the lines are the thread's.
    """
    lines = _Lines()
    before = getattr(ExplicitRedistributionContext._local, "_active", None)
    ExplicitRedistributionContext._local._active = before if isinstance(before, _Allowed) else _Guard()
    outer, _located.lines = getattr(_located, "lines", None), lines
    try:
        with lines, torch.autograd.set_multithreading_enabled(False):
            yield
    finally:
        _located.lines = outer
        ExplicitRedistributionContext._local._active = before


class _Lines(TorchFunctionMode):  # type: ignore[misc]
    """Remembers which of the user's lines made which nodes of autograd's graph, by their sequence numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []
        self.places: list[tuple[str, str]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _DRAWS:
            _check_draw(func, args, kwargs or {})
        before = torch.autograd._get_sequence_nr()
        result = func(*args, **(kwargs or {}))
        after = torch.autograd._get_sequence_nr()
        if after > before and (not self.numbers or after > self.numbers[-1]):
            self.numbers.append(after)
            self.places.append((getattr(func, "__name__", str(func)), _place(sys._getframe(1))))
        return result

    def of(self, number: int) -> tuple[str, str] | None:
        at = bisect.bisect_right(self.numbers, number)
        return self.places[at] if at < len(self.places) else None


def _check_draw(func: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Raise PlacementError where a draw of a global tensor on several ranks would be another than on one device."""
    given = [value for value in (*args, *kwargs.values()) if isinstance(value, DTensor)]
    if not given or given[0].device_mesh.size() == 1:
        return
    name = func.__name__
    if name == "scaled_dot_product_attention":
        share = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
    elif "dropout" in name:
        off = kwargs.get("train", kwargs.get("training", args[2] if len(args) > 2 else True)) is False
        share = 0.0 if off else kwargs.get("p", args[1] if len(args) > 1 else 0.5)
    else:
        share = 1.0
    if share:
        raise PlacementError(
            f"{_place(sys._getframe(2))}: {name} draws random numbers for a global tensor, and which depends on the ranks; "
            "draw them as a plain tensor and make that global, or leave dropout out"
        )


def _error(source: DTensorSpec | None, target: DTensorSpec | None, asked: dict[str, Any]) -> PlacementError:
    operator = _operator(asked)
    argument = f"argument {asked['i'] + 1} of " if "i" in asked else ""
    now = words(source.placements) if source is not None else "elsewhere"
    wanted = words(target.placements) if target is not None else "otherwise"
    node = torch._C._current_autograd_node()
    if node is None:
        place = _place(sys._getframe(3))
        return PlacementError(
            f"{place}: {argument}{operator} is {now}, and the operator takes it as {wanted}. No conversion is written; write "
            f"parallel.to_global(value, sbp={wanted}) before this line"
        )
    lines = getattr(_located, "lines", None)
    known = lines.of(node._sequence_nr()) if lines is not None else None
    where = f"{known[1]}: in the backward pass of {known[0]}" if known else f"{_place(sys._getframe(3))}: in {node.name()}"
    hint = "" if known else "; within parallel.guarded() the message names the line of the forward pass"
    return PlacementError(
        f"{where}: {argument}{operator} is {now}, and the operator takes it as {wanted}. It belongs to the gradient "
        "of a value whose conversion is not written; write parallel.to_global(value, sbp=...) where the forward pass hands the "
        f"value of this line on, with the sbp that it has: a gradient that comes back through it lies as the value does{hint}"
    )


def _operator(asked: dict[str, Any]) -> str:
    schema = getattr(asked.get("op_info"), "schema", None) or asked.get("suggested_input_schema")
    return str(getattr(schema, "op", "an operator"))


def _place(frame: Any) -> str:
    """The file and line of the nearest caller that belongs neither to torch nor to this package."""
    while frame is not None:
        name = frame.f_globals.get("__name__", "").partition(".")[0]
        if name not in ("torch", _OWN, "contextlib") and not frame.f_code.co_filename.startswith("<"):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown line"


def around(local: torch.Tensor, like: DTensorSpec, *, requires_grad: bool = False) -> DTensor:
    """The global tensor whose share on this rank is `local`, and which otherwise lies as `like` says."""
    meta = TensorMeta(like.tensor_meta.shape, like.tensor_meta.stride, local.dtype)
    spec = DTensorSpec(like.mesh, like.placements, tensor_meta=meta)
    return DTensor(local, spec, requires_grad=requires_grad)


def moved(value: DTensor, placements: tuple[Placement, ...]) -> DTensor:
    """The global tensor with those placements, by the collective that it takes, without a history: DTensor's `redistribute`
    without its two steps of autograd. With the placements that it has, it shares the memory."""
    spec, local = value._spec, value._local_tensor
    if spec.placements == placements:
        return DTensor(local.view_as(local), spec, requires_grad=False)
    target = DTensorSpec(spec.mesh, placements, tensor_meta=spec.tensor_meta)
    return DTensor(redistribute_local_tensor(local, spec, target), target, requires_grad=False)


def spec_like(
    mesh: DeviceMesh, placements: tuple[Placement, ...], shape: torch.Size, strides: tuple[int, ...], dtype: torch.dtype
) -> DTensorSpec:
    """How a global tensor of that shape lies; what `around` takes."""
    return DTensorSpec(mesh, placements, tensor_meta=TensorMeta(shape, strides, dtype))


def spec_of(value: DTensor) -> DTensorSpec:
    return value._spec


def share(value: DTensor) -> torch.Tensor:
    """This rank's part, without a history, sharing its memory."""
    return value._local_tensor


def set_share(value: DTensor, local: torch.Tensor) -> None:
    """Let this rank's part be another tensor, also of another shape; what is said of the whole value stays."""
    value._local_tensor = local


def split_convolutions() -> None:
    """Let rows of a convolution be split over several axes of a mesh, each rank with its own; once is enough. Where a version
    of torch keeps its convolutions elsewhere, they remain torch's."""
    handlers = getattr(getattr(DTensor, "_op_dispatcher", None), "_custom_op_handlers", {})
    for operator, number, own in (
        (torch.ops.aten.convolution.default, 0, _convolved),
        (torch.ops.aten.convolution_backward.default, 1, _convolved_back),
    ):
        if operator in handlers:
            handlers[operator] = functools.partial(_convolution, handlers[operator], number, own)


def exact_losses() -> None:
    """Let a mean loss over rows that are split be the sum of all of them by the weights of all of them; once is enough.

    Torch until 2.13 took the average of the ranks' means, which is another number where labels are ignored or classes have
    weights, and lets such rows not be split since 2.14.
    """
    handlers = getattr(getattr(DTensor, "_op_dispatcher", None), "_custom_op_handlers", {})
    for operator in (torch.ops.aten.nll_loss_forward.default, torch.ops.aten.nll_loss2d_forward.default):
        handlers[operator] = functools.partial(_mean_loss, handlers)


def _mean_loss(handlers: dict[Any, Any], operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Ours for a mean over rows that are split, and nothing else is; torch's elsewhere."""
    values, labels, weights, reduction, *rest = args
    rows = values.placements if isinstance(values, DTensor) else ()
    alike = isinstance(labels, DTensor) and labels.placements == rows
    whole = weights is None or (isinstance(weights, DTensor) and all(one.is_replicate() for one in weights.placements))
    over = {placement for placement in rows if not placement.is_replicate()}
    if reduction != _MEAN or not (alike and whole) or values.ndim < 2 or over != {Shard(0)}:
        own = handlers.pop(operator)
        try:
            return operator(*args, **kwargs)
        finally:
            handlers[operator] = own
    mesh, sums = values.device_mesh, tuple(Replicate() if one.is_replicate() else Partial() for one in rows)
    local = (share(values), share(labels), None if weights is None else share(weights))
    summed, total = operator(*local, _SUM, *rest, **kwargs)
    total = moved(_around(total, mesh, sums, ()), (Replicate(),) * len(rows))
    return _around(summed / share(total), mesh, sums, ()), total


def _convolution(torchs: Any, number: int, own: Any, operator: Any, args: Any, kwargs: Any) -> Any:
    """Ours where rows, argument `number`, are split and nothing else is, over several axes or on a mesh of several, where torch
    2.14 fails for want of a bias; torch's elsewhere."""
    rows, weight = args[number : number + 2]
    over = [placement for placement in rows.placements if placement != Replicate()] if isinstance(rows, DTensor) else []
    whole = isinstance(weight, DTensor) and all(placement.is_replicate() for placement in weight.placements)
    if not whole or not over or any(placement != Shard(0) for placement in over):
        return torchs(operator, args, kwargs)
    if len(over) == 1 and (rows.device_mesh.ndim == 1 or args[0].placements != rows.placements):
        return torchs(operator, args, kwargs)
    return own(operator, *args, **kwargs)


def _convolved(operator: Any, rows: DTensor, weight: DTensor, bias: DTensor | None, *rest: Any) -> DTensor:
    local = operator(share(rows), share(weight), None if bias is None else share(bias), *rest)
    return _around(local, rows.device_mesh, rows.placements, (rows.shape[0], *local.shape[1:]))


def _convolved_back(operator: Any, gradient: DTensor, rows: DTensor, weight: DTensor, *rest: Any) -> tuple[Any, ...]:
    locals_ = operator(share(moved(gradient, rows.placements)), share(rows), share(weight), *rest)
    sums = tuple(Replicate() if placement.is_replicate() else Partial() for placement in rows.placements)
    lies = ((rows.placements, rows.shape), (sums, weight.shape), (sums, rest[0]))
    return tuple(
        None if local is None else _around(local, rows.device_mesh, placements, shape)
        for local, (placements, shape) in zip(locals_, lies, strict=True)
    )


def _around(local: torch.Tensor, mesh: DeviceMesh, placements: tuple[Placement, ...], shape: Sequence[int]) -> DTensor:
    meta = TensorMeta(torch.Size(shape), local.stride(), local.dtype)
    return DTensor(local, DTensorSpec(mesh, placements, tensor_meta=meta), requires_grad=False)
