"""How a global tensor lies on the ranks of a placement: split, broadcast or partial_sum, for each axis of the mesh.

The words are those of OneFlow (Yuan et al. 2021); the values are torch's own `Shard`, `Replicate` and `Partial`, so what is
made with one can be given to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from torch.distributed.tensor import Partial, Placement, Replicate, Shard

from ...errors import InputError

__all__ = ["Sbp", "broadcast", "partial_sum", "placements_of", "split", "words"]

Sbp: TypeAlias = Placement | Sequence[Placement]

broadcast = Replicate()
"""Every rank holds the whole tensor."""

partial_sum = Partial()
"""Every rank holds a tensor of the whole shape; the value is their sum. Computations make these, `to_global` ends them."""


def split(dim: int) -> Shard:
    """Every rank holds a share of dimension `dim`, cut as `torch.chunk` cuts; the last ranks may hold less, or nothing.

    Raises InputError for a negative dimension.
    """
    if not isinstance(dim, int) or isinstance(dim, bool) or dim < 0:
        raise InputError(f"sbp.split takes a dimension counted from 0, got {dim!r}")
    return Shard(dim)


def placements_of(sbp: Sbp, axes: int) -> tuple[Placement, ...]:
    """One placement for each axis of the mesh. Raises InputError where as many are not given."""
    given: tuple[Any, ...] = tuple(sbp) if isinstance(sbp, tuple | list) else (sbp,)
    if stray := [value for value in given if not isinstance(value, Placement)]:
        raise InputError(f"sbp must be sbp.split(dim), sbp.broadcast or sbp.partial_sum, got {stray[0]!r}")
    if len(given) != axes:
        raise InputError(f"the mesh has {axes} axes and {len(given)} sbp are given; give one for each axis, as a tuple")
    return given


def words(placements: Sequence[Placement]) -> str:
    """As the user writes them: "sbp.split(0)", or "(sbp.split(0), sbp.broadcast)"."""
    found = [_word(placement) for placement in placements]
    return found[0] if len(found) == 1 else f"({', '.join(found)})"


def _word(placement: Placement) -> str:
    if placement.is_replicate():
        return "sbp.broadcast"
    if isinstance(placement, Shard):
        return f"sbp.split({placement.dim})"
    if isinstance(placement, Partial):
        return "sbp.partial_sum" if placement.reduce_op == "sum" else f"a partial {placement.reduce_op}"
    return str(placement)
