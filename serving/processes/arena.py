"""The memory that one front end shares with the engine: how it is divided into blocks, and seen as tensors.

Every request has one block, its inputs first and its outputs after them. Blocks come from a bounded arena and are as large as
the request's rows need, because slots for the largest batch would hold one row most of the time. Only the front end hands out
blocks, so no lock is shared between processes; the memory has no name, so nothing is left behind however the processes end.
"""

from __future__ import annotations

import bisect
import functools
import math
import mmap
from collections.abc import Sequence

import numpy as np

from ...errors import ArtifactError
from ...specs import Dtype, Signature, TensorSpec

# Blocks and the tensors in them begin at multiples of a cache line, which is also what kernels with wide vectors like best.
ALIGNMENT = 64
# Blocks are multiples of what rows are copied by, at most a page: a batch is then gathered in one call (`Collator`).
_MOST_GRAIN = 4096
# Smaller outputs are copied without letting go of the interpreter, which takes longer to come back than the copy.
_SMALL = 1 << 16


class Arena:
    """Hands out blocks of a memory of `size` bytes, the lowest that fits first, so that few pages are ever touched. Not
    thread-safe: its owner has a lock already."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = [(0, size)] if size else []  # (offset, size) of the gaps, in order, never touching each other
        self._taken: dict[int, int] = {}

    @property
    def free_bytes(self) -> int:
        """Bytes in no block."""
        return sum(size for _, size in self._free)

    def take(self, size: int) -> int | None:
        """The offset of a block of at least that many bytes; None when there is no gap of that size."""
        size = _aligned(max(1, size))
        for number, (offset, gap) in enumerate(self._free):
            if gap >= size:
                self._free[number : number + 1] = [(offset + size, gap - size)] if gap > size else []
                self._taken[offset] = size
                return offset
        return None

    def give(self, offset: int) -> None:
        """Take back a block that `take` gave."""
        size = self._taken.pop(offset)
        number = bisect.bisect(self._free, (offset, 0))
        if number < len(self._free) and self._free[number][0] == offset + size:
            size += self._free.pop(number)[1]
        if number and sum(self._free[number - 1]) == offset:
            offset, before = self._free.pop(number - 1)
            size, number = size + before, number - 1
        self._free.insert(number, (offset, size))


class BlockLayout:
    """Where the tensors of one model's requests lie in their blocks."""

    def __init__(self, signature: Signature) -> None:
        self._inputs = [_Rows(spec) for spec in signature.inputs]
        self._outputs = [_Rows(spec) for spec in signature.outputs]
        powers = [tensor.row_bytes & -tensor.row_bytes for tensor in self._inputs if tensor.row_bytes]
        self._grain = max(ALIGNMENT, min(_MOST_GRAIN, *powers)) if powers else ALIGNMENT

    def size(self, rows: int, best: int = 0) -> int:
        """Bytes of a block for that many rows, of whose outputs only so many best classes are wanted; 0 wants all."""
        size = sum(_aligned(rows * tensor.row_bytes) for tensor in (*self._inputs, *self._given(best)))
        return -(-size // self._grain) * self._grain

    def inputs(self, memory: mmap.mmap, offset: int, rows: int) -> list[np.ndarray]:
        """The inputs of the block at `offset`, in the signature's order, as arrays over the memory itself."""
        return _views(self._inputs, memory, offset, rows)

    def input_offsets(self, offset: int, rows: int) -> tuple[int, ...]:
        """Where the inputs of the block at `offset` begin."""
        begins = []
        for tensor in self._inputs:
            begins.append(offset)
            offset += _aligned(rows * tensor.row_bytes)
        return tuple(begins)

    def outputs(self, memory: mmap.mmap, offset: int, rows: int, best: int = 0) -> list[np.ndarray]:
        """The outputs likewise, or so many best classes and their probabilities."""
        return _views(self._given(best), memory, offset + self._before_outputs(rows), rows)

    def put_outputs(self, memory: mmap.mmap, offset: int, outputs: Sequence[np.ndarray], rows: int, best: int = 0) -> bool:
        """Copy outputs into the block at `offset`, as the dtypes of the signature; whether they have its shapes."""
        given = self._given(best)
        if len(outputs) != len(given):
            return False
        offset += self._before_outputs(rows)
        for tensor, output in zip(given, outputs, strict=True):
            if output.shape != (rows, *tensor.shape):
                return False
            size = rows * tensor.row_bytes
            if 0 < size <= _SMALL and output.dtype == tensor.dtype and output.flags.c_contiguous:
                memory[offset : offset + size] = output.data
            else:
                (place,) = _views([tensor], memory, offset, rows)
                np.copyto(place, output, casting="unsafe")  # the signature's dtype is what clients are told
            offset += _aligned(size)
        return True

    def _given(self, best: int) -> list[_Rows]:
        """What a request is answered with."""
        return _best(best) if best else self._outputs

    def _before_outputs(self, rows: int) -> int:
        return sum(_aligned(rows * tensor.row_bytes) for tensor in self._inputs)


class _Rows:
    """One tensor: what its rows are made of."""

    __slots__ = ("count", "dtype", "row_bytes", "shape")

    def __init__(self, spec: TensorSpec) -> None:
        if spec.dtype == "bfloat16":  # numpy has it only where another library has added it
            raise ArtifactError(
                f"tensor '{spec.name}' is {spec.dtype}, which cannot be passed between processes; serve it with --frontends 0"
            )
        self.dtype = np.dtype(spec.dtype)
        self.shape = spec.row_shape
        self.count = math.prod(self.shape)
        self.row_bytes = self.count * self.dtype.itemsize


@functools.lru_cache(64)
def _best(count: int) -> list[_Rows]:
    """So many classes and their probabilities, as `Ticket.best` has them."""
    kinds: tuple[Dtype, ...] = ("int64", "float64")
    return [_Rows(TensorSpec(name="best", dtype=kind, shape=("batch", count))) for kind in kinds]


def _views(tensors: Sequence[_Rows], memory: mmap.mmap, offset: int, rows: int) -> list[np.ndarray]:
    views = []
    for tensor in tensors:
        flat: np.ndarray = np.frombuffer(memory, tensor.dtype, rows * tensor.count, offset)
        views.append(flat.reshape(rows, *tensor.shape))
        offset += _aligned(rows * tensor.row_bytes)
    return views


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
