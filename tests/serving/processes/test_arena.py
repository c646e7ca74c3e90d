"""Blocks of shared memory never overlap, always come back, and hold a model's tensors where both sides expect them."""

import mmap
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ArtifactError
from headrace.runtime.base.anonymous_memory import create_memory, map_memory
from headrace.serving.processes.arena import ALIGNMENT, Arena, BlockLayout
from headrace.specs import Signature, TensorSpec

SIGNATURE = Signature(
    inputs=(
        TensorSpec(name="image", dtype="uint8", shape=("batch", 5, 3)),
        TensorSpec(name="scale", dtype="float32", shape=("batch",)),
    ),
    outputs=(TensorSpec(name="scores", dtype="float64", shape=("batch", 7)),),
)


@given(st.lists(st.tuples(st.integers(1, 900), st.booleans(), st.integers(0, 100)), max_size=60))
def test_blocks_do_not_overlap_and_all_of_them_come_back(steps):
    arena, taken = Arena(4096), {}
    for size, give, which in steps:
        if give and taken:
            arena.give(offset := list(taken)[which % len(taken)])
            del taken[offset]
            continue
        offset = arena.take(size)
        if offset is None:
            free = sorted([(start, start + length) for start, length in taken.items()] + [(4096, 4096)])
            ends = [0, *(end for _, end in free)]
            gaps = [start - end for end, (start, _) in zip(ends, free, strict=False)]
            assert max(gaps) < size  # there really is no gap of that size
            continue
        assert offset % ALIGNMENT == 0
        length = -(-size // ALIGNMENT) * ALIGNMENT
        assert all(offset + length <= start or start + other <= offset for start, other in taken.items())
        assert offset + length <= 4096
        taken[offset] = length
        assert arena.free_bytes == 4096 - sum(taken.values())
    for offset in taken:
        arena.give(offset)
    assert arena.free_bytes == 4096
    assert arena.take(4096) == 0


def test_a_block_given_back_twice_is_an_error():
    arena = Arena(1024)
    offset = arena.take(10)
    arena.give(offset)
    with pytest.raises(KeyError):
        arena.give(offset)


def test_tensors_lie_one_after_the_other_aligned_and_shared():
    descriptor = create_memory(1 << 16)
    here, there = map_memory(os.dup(descriptor)), map_memory(descriptor)
    layout = BlockLayout(SIGNATURE)
    image, scale = layout.inputs(here, 256, 3)
    (scores,) = layout.outputs(there, 256, 3)
    assert (image.shape, image.dtype) == ((3, 5, 3), np.uint8)
    assert (scale.shape, scale.dtype) == ((3,), np.float32)
    assert (scores.shape, scores.dtype) == ((3, 7), np.float64)
    assert layout.size(3) == 64 + 64 + 192
    image[:], scale[:], scores[:] = 7, 1.5, 2.5
    assert all(
        (seen == written).all()
        for seen, written in zip(
            (*layout.inputs(there, 256, 3), *layout.outputs(here, 256, 3)), (image, scale, scores), strict=True
        )
    )
    assert bytes(here[:256]) == bytes(256)
    assert bytes(here[256 + layout.size(3) :]) == bytes(len(here) - 256 - layout.size(3))


def test_a_dtype_that_numpy_does_not_have_says_what_to_do():
    odd = TensorSpec(name="half", dtype="bfloat16", shape=("batch", 2))
    with pytest.raises(ArtifactError, match="half.*--frontends 0"):
        BlockLayout(Signature(inputs=(odd,), outputs=(odd,)))


def test_blocks_of_images_are_as_long_as_what_rows_are_gathered_by():
    """A row of 224 x 224 pixels comes in pieces of 1 KiB, a fourfold one of floats in pages; small rows in cache lines."""

    def size(dtype: str, *shape: int) -> int:
        inputs = (TensorSpec(name="x", dtype=dtype, shape=("batch", *shape)),)
        return BlockLayout(Signature(inputs=inputs, outputs=SIGNATURE.outputs)).size(1)

    assert size("uint8", 224, 224, 3) % 1024 == 0
    assert size("float32", 3, 224, 224) % 4096 == 0
    assert size("float32", 8) == 2 * ALIGNMENT


@pytest.mark.parametrize("width", [7, 1 << 15])
def test_outputs_are_put_where_the_front_end_reads_them(width):
    signature = Signature(
        inputs=SIGNATURE.inputs,
        outputs=(
            TensorSpec(name="scores", dtype="float32", shape=("batch", width)),
            TensorSpec(name="best", dtype="int64", shape=("batch",)),
        ),
    )
    layout = BlockLayout(signature)
    memory = mmap.mmap(-1, 1 << 20)
    scores = np.random.default_rng(0).standard_normal((6, width))
    for rows in (scores.astype(np.float32), scores, np.asfortranarray(scores.astype(np.float32))):
        best = np.arange(6)[::2]
        assert layout.put_outputs(memory, 128, [rows[:3], best], 3)
        found, numbers = layout.outputs(memory, 128, 3)
        np.testing.assert_array_equal(found, scores[:3].astype(np.float32))
        np.testing.assert_array_equal(numbers, best)
    for wrong in ([scores[:2], best], [scores[:3]], [scores[:3, :1], best], [scores[:3], best[:, None]]):
        assert not layout.put_outputs(memory, 128, wrong, 3)
