"""Microseconds of every tile that the autotuner has for each convolution of ResNet-50, in bf16 and int8, 128 images at a time.

What the plan chooses is the fastest of these; which kinds of tiles win, and by how much, says what the kernel lacks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from gpu.bench import described
from gpu.convolutions import Layer, _bf16, _int8

if TYPE_CHECKING:
    from gpu.bench import Bench

_BATCH = 128
_STAGES = ((64, 256, 56), (128, 512, 28), (256, 1024, 14), (512, 2048, 7))  # width, channels that come out, side


def layers() -> Iterator[Layer]:
    """Each kind once: the stem, then by stage what its first block has and what the others have."""
    yield Layer(3, 64, 7, 224, stride=2, padding=3)
    given, before = 64, 56
    for number, (width, made, side) in enumerate(_STAGES):
        stride = 2 if number else 1
        yield Layer(given, width, 1, before)
        yield Layer(width, width, 3, before, stride=stride, padding=1)
        yield Layer(given, made, 1, before, stride=stride, relu=False)
        yield Layer(width, made, 1, side, residual=True)
        yield Layer(made, width, 1, side)
        if stride > 1:
            yield Layer(width, width, 3, side, padding=1)
        given, before = made, side


def section(bench: Bench, name: str) -> None:
    from headrace.kernels._ahead import compile_ahead
    from headrace.kernels.conv import conv2d, conv2d_int8, tiles_for

    batch = 2 if bench.quick else _BATCH
    found: dict[str, Any] = bench.found.setdefault(name, {})
    wanted: list[tuple[str, list[tuple[list[int], Callable[[], Any]]]]] = []
    for layer in layers():
        for case, operator, size in ((_int8, conv2d_int8, 1), (_bf16, conv2d, 2)):
            if size == 1 and layer.given < 32:
                continue
            given = case(layer, batch).make(bench.device)
            weight, geometry = (layer.made, layer.given, layer.taps, layer.taps), ([layer.stride] * 2, [layer.padding] * 2)
            tiles = tiles_for(batch * layer.out**2, weight, *geometry, [1, 1], size)
            calls = [(tile, partial(operator, *given, tile)) for tile in tiles[: 2 if bench.quick else None]]
            wanted.append((f"{layer}, {'int8' if size == 1 else 'bf16'}", calls))
    begin = time.monotonic()
    if bench.device == "cuda":
        compile_ahead((call for _, calls in wanted for _, call in calls), seconds=bench.here / 2)
    bench.say(f"{sum(len(calls) for _, calls in wanted)} programs compiled in {time.monotonic() - begin:.0f} s")
    for what, calls in wanted:
        if bench.here < 0 and not bench.quick:
            bench.say(f"{what}: skipped, no time left")
            continue
        found[what] = sorted(_timed(bench, calls), key=lambda item: item.get("us", float("inf")))
        best = {
            kind: next((item for item in found[what] if _kind(item["tile"]) == kind and "us" in item), None) for kind in _KINDS
        }
        bench.say(f"{what}: " + "; ".join(f"{kind} {item['us']:.1f} us {item['tile']}" for kind, item in best.items() if item))


_KINDS = ("ahead", "one stage", "turns")


def _kind(tile: list[int]) -> str:
    return "turns" if len(tile) > 5 else "one stage" if tile[4] == 1 else "ahead"


def _timed(bench: Bench, calls: list[tuple[list[int], Callable[[], Any]]]) -> Iterator[dict[str, Any]]:
    if bench.device != "cuda":
        yield from ({"tile": tile, "us": float(call() is None)} for tile, call in calls)
        return
    from headrace.runtime.backends.shared.kernel_timer import time_on_cuda

    able = []
    for tile, call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a tile that does not run here is a result
            yield {"tile": tile, "failed": described(error)[:200]}
        else:
            able.append((tile, call))
    times = time_on_cuda([call for _, call in able])
    yield from ({"tile": tile, "us": round(1000 * ms, 2)} for (tile, _), ms in zip(able, times, strict=True))
