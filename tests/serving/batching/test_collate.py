"""Batches from requests that lie in memory which others share, in memory of their own, or both."""

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from headrace.serving.batching.collate import Collator, Placed, split


@dataclass
class Item:
    rows: int
    inputs: list[np.ndarray]
    placed: Placed | None = None
    expected: list[np.ndarray] = field(default_factory=list)


def blocks(
    memory: np.ndarray, counts: list[int], shapes: list[tuple[tuple[int, ...], str]], *, grain: int = 1024
) -> list[Item]:
    """Items that lie in the memory as in a front end's, in blocks in any order and with gaps, with random bytes."""
    at, items = 0, []
    for count in random.Random(1).sample(counts, len(counts)):
        offsets, inputs = [], []
        for shape, kind in shapes:
            size = count * int(np.prod(shape)) * np.dtype(kind).itemsize
            offsets.append(at)
            inputs.append(memory[at : at + size].view(kind).reshape(count, *shape))
            at += -(-size // 64) * 64
        at = -(-at // grain) * grain + random.Random(at).choice((0, grain))
        items.append(Item(count, inputs, Placed(memory, tuple(offsets)), [array.copy() for array in inputs]))
    assert at <= len(memory)
    return items


def memory(seed: int, size: int = 1 << 20) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 100, size, np.uint8)


def check(items: list[Item], batch: list[np.ndarray], bucket: int) -> None:
    """Every item has its own rows, and the last row fills the batch up."""
    for item, given in zip(items, split(batch, items), strict=True):
        for rows, expected in zip(given, item.expected, strict=True):
            np.testing.assert_array_equal(rows, expected)
    rows = sum(item.rows for item in items)
    for array in batch:
        assert len(array) == bucket
        assert array.flags.c_contiguous
        for row in array[rows:]:
            np.testing.assert_array_equal(row, array[rows - 1])


SHAPES = {
    "pixels": [((32, 32, 3), "uint8")],
    "floats": [((3, 16, 16), "float32")],
    "odd rows": [((37,), "uint8")],
    "numbers": [((), "int64")],
    "two inputs": [((32, 32, 3), "uint8"), ((256,), "float32")],
    "two inputs of which one is odd": [((32, 32, 3), "uint8"), ((3,), "int16")],
}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("counts", [[1] * 7, [1, 3, 2, 1, 1, 4], [2]])
def test_rows_of_several_memories_and_of_none(shapes, counts):
    first, second = memory(1), memory(2)
    alone = [Item(1, [np.full((1, *shape), 7, kind) for shape, kind in shapes]) for _ in range(3)]
    for item in alone:
        item.expected = item.inputs
    items = [*blocks(first, counts, shapes), *alone, *blocks(second, counts, shapes)]
    random.Random(3).shuffle(items)
    before, collator = list(map(id, items)), Collator(64)
    for bucket in (sum(item.rows for item in items), 64):
        check(items, collator.collate(items, bucket), bucket)
    assert sorted(map(id, items)) == sorted(before)


def test_they_are_gathered_from_the_memory_itself():
    """In one call for each memory; nobody looks at the arrays of the items."""
    items = [*blocks(memory(1), [1] * 5, SHAPES["pixels"]), *blocks(memory(2), [1, 2], SHAPES["pixels"])]
    for item in items:
        item.inputs = [np.zeros_like(array) for array in item.inputs]
    check(items, Collator(8).collate(items, 8), 8)


def test_memory_that_does_not_end_with_a_piece():
    odd = memory(1, (1 << 20) + 37)
    items = blocks(odd, [1] * 4, SHAPES["pixels"])
    check(items, Collator(4).collate(items, 4), 4)


def test_one_that_fills_the_batch_is_not_copied():
    (item,) = blocks(memory(1), [4], SHAPES["pixels"])
    (rows,) = Collator(4).collate([item], 4)
    assert np.may_share_memory(rows, item.inputs[0])
