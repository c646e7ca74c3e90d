"""The picture of docs/scale.md: measured beside simulated, and p99 through a failure."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.serving.bench.reporting.plots import COLORS

from .validate import Comparison

__all__ = ["plot"]

_MARKERS = "os^Dv"


def plot(compared: Sequence[Comparison], episodes: Sequence[Mapping[str, Any]]) -> bytes:
    """A PNG of two panels, readable in gray."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    figures = list(dict.fromkeys(one.figure for one in compared))
    for number, name in enumerate(figures):
        chosen = [one for one in compared if one.figure == name]
        left.plot(
            [one.measured for one in chosen],
            [one.simulated for one in chosen],
            linestyle="none",
            marker=_MARKERS[number % len(_MARKERS)],
            color=COLORS[number % len(COLORS)],
            label=name,
        )
    ends = [min(one.measured for one in compared) / 1.5, max(one.measured for one in compared) * 1.5]
    left.plot(ends, ends, color="black", linewidth=0.8)
    for factor in (0.85, 1.15):
        left.plot(ends, [factor * end for end in ends], color="black", linewidth=0.6, linestyle="--")
    left.set(xscale="log", yscale="log", xlabel="measured", ylabel="simulated", title="one machine; dashed: 15 %")
    left.legend(frameon=False, fontsize=8)
    for number, episode in enumerate(episodes):
        points = [(at, value) for at, value in episode["p99_ms"] if value is not None]
        right.plot(
            [at for at, _ in points],
            [value for _, value in points],
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=3,
            color=COLORS[number % len(COLORS)],
            label=f"{episode['what']} ({episode['servers']})",
        )
    right.axvspan(5, 10, color="0.9")
    right.set(yscale="log", xlabel="second", ylabel="p99 of answers, ms", title="a machine fails from second 5 to 10")
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(linewidth=0.4, alpha=0.6)
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110)
    return data.getvalue()
