"""The plot of a sweep: requests per second and latency over concurrency, rows per second over batch size, roofs drawn in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.serving.bench.reporting.plots import COLORS, GREY, MARKERS, new_figure, png_of, whiskers
from headrace.serving.bench.reporting.result import BenchResult, Spread
from headrace.serving.bench.services import HEADRACE

__all__ = ["capacity_plot"]

_DASHES = {"fp32": ":", "bf16": "--", "fp16": "--", "int8": "-."}


def capacity_plot(bench: BenchResult, machine: Mapping[str, Any], knee: int | None) -> bytes:
    """Three panels. A roof is drawn for each precision that was measured, over the batch sizes it holds for."""
    figure = new_figure(13, 4.4)
    rates, times, batches = figure.subplots(1, 3)
    levels = list(bench.concurrency)
    points = [(level, spread) for level in levels if (spread := bench.requests_per_second(HEADRACE, level)) is not None]
    _line(rates, points, 1, "served")
    if knee is not None:
        rates.axvline(knee, color=GREY, linewidth=0.8, linestyle=":")
        rates.annotate(" knee", (knee, 0), xytext=(3, 6), textcoords="offset points", color=GREY, fontsize=9)
    for number, quantile in enumerate(("p50", "p99")):
        found = [(level, spread) for level in levels if (spread := bench.latency_ms(HEADRACE, level, quantile)) is not None]
        _line(times, found, number + 1, quantile)
    times.set_yscale("log")
    times.yaxis.set_major_formatter("{x:g}")
    measured = [(batch["batch"], Spread(**batch["rows_per_second"])) for batch in machine["batches"]]
    _line(batches, measured, 2, "the session alone")
    for precision, roofs in machine["roofs"].items():
        places = [int(batch) for batch in roofs]
        style = _DASHES.get(precision, "-")
        batches.plot(places, list(roofs.values()), color="black", linewidth=1, linestyle=style, label=f"roof, {precision}")
        rates.axhline(max(roofs.values()), color="black", linewidth=1, linestyle=style, label=f"roof, {precision}")
    for axes, title, below in (
        (rates, "Requests per second", "requests at a time"),
        (times, "Latency in ms", "requests at a time"),
        (batches, "Rows per second", "batch size"),
    ):
        axes.set_title(title)
        axes.set_xlabel(below)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", linewidth=0.4, alpha=0.6)
        axes.legend(frameon=False, fontsize=8)
    for axes in (rates, batches):
        axes.set_ylim(bottom=0)
    return png_of(figure)


def _line(axes: Any, points: list[tuple[int, Spread]], style: int, label: str) -> None:
    axes.errorbar(
        [place for place, _ in points],
        [spread.median for _, spread in points],
        yerr=whiskers([spread for _, spread in points]),
        capsize=3,
        color=COLORS[style],
        marker=MARKERS[style],
        markeredgecolor="black",
        label=label,
    )
