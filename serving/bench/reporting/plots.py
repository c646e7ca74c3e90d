"""Plots of benchmarks, as PNG: spreads drawn in, told apart by all kinds of color vision, and in gray."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .report import number, shown_name
from .result import BenchResult, Spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Okabe and Ito's colors, told apart by all kinds of color vision; hatches and markers tell them apart in gray.
COLORS = ("#E69F00", "#0072B2", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
HATCHES = ("//", "", "..", "xx", "\\\\", "--")
MARKERS = ("s", "o", "^", "D", "v", "P")
GREY = "#666666"


def bench_plot(result: BenchResult) -> bytes:
    """Requests per second and latencies over concurrency, the spread drawn in. Readable in gray."""
    figure = new_figure(10, 4.5)
    rates, times = figure.subplots(1, 2)
    places = range(len(result.concurrency))
    width = 0.8 / len(result.services)
    for index, name in enumerate(result.services):
        color, hatch, marker = (kinds[index % len(kinds)] for kinds in (COLORS, HATCHES, MARKERS))
        shift = (index - (len(result.services) - 1) / 2) * width
        found = [result.requests_per_second(name, concurrency) for concurrency in result.concurrency]
        bars = [(place + shift, spread) for place, spread in zip(places, found, strict=True) if spread is not None]
        drawn = rates.bar(
            [place for place, _ in bars],
            [spread.median for _, spread in bars],
            width,
            yerr=whiskers([spread for _, spread in bars]),
            capsize=3,
            color=color,
            hatch=hatch,
            edgecolor="black",
            linewidth=0.8,
            label=shown_name(name),
        )
        rates.bar_label(drawn, fmt=number, padding=3, fontsize=8)
        for quantile, line in (("p99", "-"), ("p50", ":")):
            points = [
                (place, spread)
                for place, concurrency in zip(places, result.concurrency, strict=True)
                if (spread := result.latency_ms(name, concurrency, quantile)) is not None
            ]
            times.errorbar(
                [place + shift / 8 for place, _ in points],  # beside each other, or one spread hides the other
                [spread.median for _, spread in points],
                yerr=whiskers([spread for _, spread in points]),
                capsize=3,
                color=color,
                linestyle=line,
                marker=marker,
                markeredgecolor="black",
                label=f"{shown_name(name)} {quantile}",
            )
    rates.set_title("Requests per second (higher is better)")
    times.set_title("Latency in ms (lower is better)")
    times.set_yscale("log")
    times.yaxis.set_major_formatter("{x:g}")
    for axes in (rates, times):
        axes.set_xticks(list(places), [str(concurrency) for concurrency in result.concurrency])
        axes.set_xlabel("requests at a time")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", linewidth=0.4, alpha=0.6)
        axes.set_axisbelow(True)
        axes.legend(frameon=False, fontsize=8)
    rates.margins(y=0.15)
    ratio = result.ratio(max(result.concurrency))
    gain = f": {ratio.median:.2f}x the baseline at {max(result.concurrency)} at a time" if ratio is not None else ""
    figure.suptitle(f"{result.model}{gain}".replace("$", r"\$"))
    return png_of(figure)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, apart from whatever else uses matplotlib in this process."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def png_of(figure: Figure) -> bytes:
    """The figure as PNG."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=150)
    return data.getvalue()


def whiskers(spreads: Sequence[Spread]) -> list[list[float]]:
    """How far the lowest and the highest are from the medians, as matplotlib's errorbars take it."""
    return [[spread.median - spread.low for spread in spreads], [spread.high - spread.median for spread in spreads]]
