"""Collectives over many tensors at once: one for a bucket of them, however small each is.

A collective costs about the same for ten numbers and for ten thousand, so what a step exchanges for parameters goes together.
The tensors of a call have the same shapes and dtypes in the same order on every rank of the group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist

# In bytes of the whole values. DistributedDataParallel's: larger ones gain nothing, and a bucket is a copy of what is in it.
BUCKET_BYTES = 25 * 2**20
Item = TypeVar("Item")
# Their names since torch 2.13, and before.
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def buckets(items: Iterable[Item], value: Callable[[Item], torch.Tensor]) -> Iterator[list[Item]]:
    """The items in parts whose values have one dtype and BUCKET_BYTES together, or one value that has more."""
    open_ones: dict[tuple[torch.dtype, torch.device], tuple[list[Item], int]] = {}
    for item in items:
        tensor = value(item)
        kind, size = (tensor.dtype, tensor.device), tensor.numel() * tensor.element_size()
        bucket, held = open_ones.get(kind, ([], 0))
        if bucket and held + size > BUCKET_BYTES:
            yield bucket
            bucket, held = [], 0
        bucket.append(item)
        open_ones[kind] = bucket, held + size
    for bucket, _ in open_ones.values():
        yield bucket


def summed(values: Sequence[torch.Tensor], group: dist.ProcessGroup) -> list[torch.Tensor]:
    """The sum of each over the ranks, in the order of the values, in new memory that those of a bucket share."""
    found: dict[int, torch.Tensor] = {}
    for bucket in buckets(range(len(values)), values.__getitem__):
        flat = torch.cat([values[at].reshape(-1) for at in bucket])
        dist.all_reduce(flat, group=group)
        for at, piece in zip(bucket, flat.split([values[at].numel() for at in bucket]), strict=True):
            found[at] = piece.view(values[at].shape)
    return [found[at] for at in range(len(values))]


@dataclass(frozen=True)
class Cut:
    """How a value is dealt out over `ranks` by its dimension `dim`: each has `length` of it, the last ones less or nothing, as
    DTensor's Shard has it. `rank` is this one."""

    shape: torch.Size
    dim: int
    ranks: int
    rank: int

    @property
    def length(self) -> int:
        return -(-self.shape[self.dim] // self.ranks)

    @property
    def even(self) -> bool:
        """Whether each rank's part lies in one piece of a contiguous value, and all are as long."""
        return self.dim == 0 and self.shape[0] % self.ranks == 0

    @property
    def share(self) -> int:
        """Numbers in a part, with what it is filled up with."""
        return self.length * math.prod(size for at, size in enumerate(self.shape) if at != self.dim)

    def of(self, value: torch.Tensor) -> torch.Tensor:
        """This rank's part, a view."""
        begin = min(self.rank * self.length, self.shape[self.dim])
        return value.narrow(self.dim, begin, min(self.length, self.shape[self.dim] - begin))

    def rows(self, value: torch.Tensor) -> torch.Tensor:
        """[ranks, share]: what each rank has, filled up with zeros."""
        if self.even:
            return value.reshape(self.ranks, self.share)
        filled = self._filled(value.movedim(self.dim, 0), self.length * self.ranks)
        return filled.reshape(self.ranks, self.share)

    def flat(self, part: torch.Tensor) -> torch.Tensor:
        """[share]: a part as it is sent."""
        return part.reshape(-1) if self.even else self._filled(part.movedim(self.dim, 0), self.length).reshape(-1)

    def part(self, flat: torch.Tensor) -> torch.Tensor:
        """This rank's part of [share], contiguous."""
        rest = [size for at, size in enumerate(self.shape) if at != self.dim]
        whole = flat.view(self.length, *rest)
        if self.even:
            return whole
        begin = self.rank * self.length
        return whole[: max(0, min(self.length, self.shape[self.dim] - begin))].movedim(0, self.dim).contiguous()

    def whole(self, rows: torch.Tensor) -> torch.Tensor:
        """The value of [ranks, share]."""
        rest = [size for at, size in enumerate(self.shape) if at != self.dim]
        lengths = rows.reshape(self.ranks * self.length, *rest)
        return lengths[: self.shape[self.dim]].movedim(0, self.dim)

    @staticmethod
    def _filled(value: torch.Tensor, length: int) -> torch.Tensor:
        missing = length - value.shape[0]
        return value if not missing else torch.cat([value, value.new_zeros(missing, *value.shape[1:])])


def reduced(values: Sequence[torch.Tensor], cuts: Sequence[Cut], group: dist.ProcessGroup) -> list[torch.Tensor]:
    """This rank's part of the sum of each over the ranks, contiguous, in new memory."""
    found: dict[int, torch.Tensor] = {}
    for bucket in buckets(range(len(values)), values.__getitem__):
        flat = torch.cat([cuts[at].rows(values[at]) for at in bucket], 1)
        own = flat.new_empty(flat.shape[1])
        _reduce_scatter(own, flat.view(-1), group=group)
        for at, piece in zip(bucket, own.split([cuts[at].share for at in bucket]), strict=True):
            found[at] = cuts[at].part(piece)
    return [found[at] for at in range(len(values))]


def gather(
    parts: Sequence[torch.Tensor], cuts: Sequence[Cut], wholes: Sequence[torch.Tensor], group: dist.ProcessGroup
) -> None:
    """Write into each of `wholes` the value that the ranks have the parts of."""
    for bucket in buckets(range(len(wholes)), wholes.__getitem__):
        flat = torch.cat([cuts[at].flat(parts[at]) for at in bucket])
        ranks = cuts[bucket[0]].ranks
        found = flat.new_empty(ranks * len(flat))
        _all_gather(found, flat, group=group)
        targets, sources = [], []
        for at, piece in zip(bucket, found.view(ranks, -1).split([cuts[at].share for at in bucket], 1), strict=True):
            value, cut = wholes[at], cuts[at]
            plain = cut.even and value.is_contiguous()
            targets.append(value.view(cut.ranks, cut.share) if plain else value)
            sources.append(piece if plain else cut.whole(piece))
        torch._foreach_copy_(targets, sources)
