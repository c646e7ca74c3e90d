"""How an operator may run along one axis of a mesh: how its inputs must lie, how its result then lies, and what is summed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .operators import Operator

WHOLE = -1
"""The layout of what every rank has whole; another number is the dimension over which a value is split."""


@dataclass(frozen=True)
class Option:
    """`needs` are the layouts of the inputs, `out` that of the result, `weight` that of the first parameter. With `shared` each
    rank does its part of the work, else all do the same. `sums` says that the results are partial sums, which become `out`;
    `sums_back` that the inputs' gradients are."""

    needs: tuple[int, ...]
    out: int
    weight: int = WHOLE
    shared: bool = False
    sums: bool = False
    sums_back: bool = False


def options(operator: Operator, inputs: Sequence[Operator], layouts: Sequence[int]) -> list[Option]:
    """All that are worth trying where the inputs lie so along the axis; never none. Sizes are not looked at."""
    if operator.kind in ("linear", "conv"):
        return list(_weighted(operator))
    found: dict[int, Option] = {}
    for tried in dict.fromkeys((*_as_results(operator, inputs, layouts), WHOLE, 0)):
        if found and tried in (WHOLE, 0) and tried not in layouts:
            continue  # nothing asks for it
        needs = _needs(operator, inputs, tried)
        if needs is not None:
            found[tried] = Option(needs, tried, shared=tried != WHOLE)
    return list(found.values())


def _weighted(operator: Operator) -> Iterator[Option]:
    feature = len(operator.shape) - 1
    for kept in (WHOLE, 0):
        yield Option((kept,), kept, shared=kept != WHOLE)
    if not operator.direct or operator.kind == "conv":  # DTensor has no rule for convolutions whose channels are split
        return
    yield Option((WHOLE,), feature, 0, shared=True, sums_back=True)
    for out in (WHOLE, 0):
        yield Option((feature,), out, 1, shared=True, sums=True)


def _as_results(operator: Operator, inputs: Sequence[Operator], layouts: Sequence[int]) -> list[int]:
    """How the result would lie if it followed each input."""
    found = []
    for value, layout in zip(inputs, layouts, strict=True):
        if layout == WHOLE:
            found.append(WHOLE)
            continue
        for dim in range(len(operator.shape)):
            if _source(operator, value, dim) == layout:
                found.append(dim)
                break
    return found


def _needs(operator: Operator, inputs: Sequence[Operator], out: int) -> tuple[int, ...] | None:
    """How the inputs must lie for the result to lie so without communication; None where there is no such way."""
    if out == WHOLE:
        return (WHOLE,) * len(inputs)
    if out >= len(operator.shape):
        return None
    needs = []
    for value in inputs:
        source = _source(operator, value, out)
        if source is None:
            return None
        needs.append(source)
    return tuple(needs) if any(need != WHOLE for need in needs) else None


def _source(operator: Operator, value: Operator, dim: int) -> int | None:
    """Which dimension of an input becomes `dim` of the result and is worked on independently; WHOLE where the input is the same
    for all of it, None where there is none."""
    kind, rank = operator.kind, len(value.shape)
    if kind in ("pointwise", "dropout", "batch_norm"):
        if kind == "batch_norm" and dim:
            return None
        at = dim - (len(operator.shape) - rank)
        return WHOLE if at < 0 or (value.shape[at] == 1 and operator.shape[dim] > 1) else at
    if kind == "last_dim":
        return None if dim in operator.dims else dim
    if kind == "view":
        return _viewed(value.shape, operator.shape, dim)
    if kind == "permute":
        return operator.dims[dim] if len(operator.dims) == rank else None
    if kind in ("cut", "pool"):
        kept = [at for at in range(rank) if at not in operator.dims]
        source = dim if len(operator.shape) == rank else kept[dim] if dim < len(kept) else None
        return None if source in operator.dims else source
    if kind == "item":
        return dim if rank == len(operator.shape) else None
    if kind == "attention":
        return dim if dim < rank - 2 else None
    if kind == "matmul":
        return dim if rank == len(operator.shape) and dim < rank - 2 else None
    same = rank and value.shape[0] == operator.shape[0]  # anything else: the rows of a batch do not know of each other
    return 0 if dim == 0 and same else None


def _viewed(before: Sequence[int], after: Sequence[int], dim: int) -> int | None:
    """A dimension of the result that begins where one of the source does is split alike: what comes first of several."""
    if after[dim] == 1:
        return None
    ahead = math.prod(after[:dim])
    for at in range(len(before)):
        if math.prod(before[:at]) == ahead and before[at] > 1:
            return at
    return None
