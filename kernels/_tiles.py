"""The tiles that the convolution's program can take, and a rule of thumb for who has not measured them.

A tile is [output pixels, output channels, depth, warps, stages]: the block of the product that one program computes, how much
of the depth it takes at a time, its warps of 32 threads, and how many steps of loading run ahead; with one stage loads go
through the first cache, where neighboring taps meet again. With a sixth number, turns, a program computes so many blocks of
pixels one after the other, for products of 1x1 whose depth is one step: what a block reads is asked for while the one before is
computed and written, without which such programs mostly wait for memory. The candidates are of the
kind that matrix products for tensor cores are usually tuned over (Triton's tutorial "Matrix Multiplication"), held to the
shared memory of an A100's block, the least of the GPUs that the programs are compiled for (163 KB; CUDA C++ Programming Guide,
"Technical Specifications per Compute Capability").
"""

from __future__ import annotations

from ._launch import check, next_power_of_two

MOST_SHARED_BYTES = 163 << 10

_LEAST = 16  # rows, columns and depth that tensor cores take
_PER_WARP = 512  # elements of a tile, at least
_CANDIDATES = (  # depths are those of two bytes an element
    (128, 128, 64, 8, 3),
    (128, 256, 64, 8, 3),
    (256, 128, 64, 8, 3),
    (64, 256, 64, 8, 3),
    (128, 64, 64, 4, 3),
    (64, 128, 64, 4, 3),
    (128, 128, 32, 8, 4),
    (64, 64, 64, 4, 4),
    (32, 64, 64, 4, 4),
)
# For images of few channels, whose neighboring runs overlap: through the first cache.
_UNSTAGED = ((128, 64, 64, 4, 1), (256, 64, 64, 8, 1), (128, 64, 32, 4, 1), (128, 64, 128, 4, 1))
_STREAMS = ((64, 64), (128, 64), (64, 128))  # pixels and channels
_MOST_TURNS = 16
_LEAST_PROGRAMS = 256  # about two for each processor of an A100 or H100, so that none is without work
_DEEPEST_STREAM_BYTES = 512


def usual_tile(rows: int, outputs: int, channels: int, element_bytes: int) -> list[int]:
    """A tile for a convolution of so many output pixels, output and input channels."""
    deepest = 128 // element_bytes  # what one line of shared memory holds without conflicts of its banks
    sizes = ((16, rows, 128), (16, outputs, 128), (32, channels, deepest))
    height, width, depth = (max(least, min(most, next_power_of_two(size))) for least, size, most in sizes)
    return [height, width, depth, 8 if height * width >= 128 * 64 else 4, 3]


def fitting_tiles(
    rows: int, outputs: int, channels: int, element_bytes: int, *, flat: bool = False, narrow: bool = False
) -> list[list[int]]:
    """The tiles worth measuring for such a convolution, the rule's first, none larger than the product.

    `flat` is one of 1x1 without padding and strides, which may take turns; `narrow` reads images of few channels, and
    `channels` are those of all its taps then.
    """
    found = [usual_tile(rows, outputs, channels, element_bytes)]
    shallowest = max(_LEAST, 32 // element_bytes)  # an instruction for bytes takes 32 of the depth
    for most_rows, most_outputs, most_depth, warps, stages in (*_CANDIDATES, *(_UNSTAGED if narrow else ())):
        sizes = (
            (_LEAST, rows, most_rows),
            (_LEAST, outputs, most_outputs),
            (shallowest, channels, most_depth * 2 // element_bytes),
        )
        height, width, depth = (max(least, min(most, next_power_of_two(size))) for least, size, most in sizes)
        tile = [height, width, depth, max(1, min(warps, height * width // _PER_WARP)), stages]
        if tile not in found and stages * depth * (height + width) * element_bytes <= MOST_SHARED_BYTES:
            found.append(tile)
    return [*found, *(_streams(rows, outputs, channels, element_bytes) if flat else ())]


def _streams(rows: int, outputs: int, channels: int, element_bytes: int) -> list[list[int]]:
    """Tiles with turns, where there are blocks enough for more than one. The less memory a block takes, the further ahead it
    is asked for: on an H200 that was faster wherever as many programs found room on a processor."""
    depth = max(32, next_power_of_two(channels))
    deep = depth * element_bytes
    found = []
    for height, width in _STREAMS if deep <= _DEEPEST_STREAM_BYTES else ():
        turns = turns_of(_MOST_TURNS, -(-rows // height) * -(-outputs // width))
        for stages in (3, 4) if deep <= 128 else (2, 3):
            # The weights, pixels that run ahead, and of the results' size as much: residuals, and the result on its way out.
            memory = (depth * width + stages * height * (depth + width)) * element_bytes
            if turns > 1 and width < 2 * outputs and memory <= MOST_SHARED_BYTES:
                found.append([height, width, depth, 4, stages, turns])
    return found


def turns_of(most: int, tiles: int) -> int:
    """How many turns, a power of two, each program takes of so many tiles, so that every processor of a usual GPU has work."""
    return max(1, min(most, next_power_of_two(tiles // _LEAST_PROGRAMS + 1) // 2))


def check_tile(tile: list[int]) -> None:
    """Raises KernelError unless these are a tile: powers of two, and no more warps and stages than programs have."""
    check(len(tile) in (5, 6), f"a tile is [pixels, channels, depth, warps, stages] or one number more, turns, not {tile}")
    sizes = all(size >= _LEAST and size == next_power_of_two(size) for size in tile[:3])
    check(sizes, f"a tile's sizes are powers of two of at least {_LEAST}, not {tile[:3]}")
    runs = tile[3] in (1, 2, 4, 8, 16) and 1 <= tile[4] <= 8 and all(1 <= turns <= 64 for turns in tile[5:])
    check(runs, f"a tile has 1, 2, 4, 8 or 16 warps, 1 to 8 stages and 1 to 64 turns, not {tile[3:]}")
