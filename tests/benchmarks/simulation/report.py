"""A comparison for people: a Markdown table, and a plot that is readable in gray and by all kinds of color vision."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from headrace.serving.bench.reporting.plots import COLORS, HATCHES

from .compare import MACHINES, Outcome

__all__ = ["markdown", "plot"]


def markdown(outcomes: Sequence[Outcome]) -> str:
    """One row per machine and kind of traffic; each cell is the sustainable rate, then the goodput under twice the capacity."""
    policies = list(dict.fromkeys(outcome.policy for outcome in outcomes))
    lines = [f"| machine | traffic | {' | '.join(policies)} |", "|---" * (2 + len(policies)) + "|"]
    for machine, traffic in dict.fromkeys((outcome.machine, outcome.traffic) for outcome in outcomes):
        found = {one.policy: one for one in outcomes if (one.machine, one.traffic) == (machine, traffic)}
        cells = [_cell(found[policy]) for policy in policies]
        lines.append(f"| {machine} | {traffic} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(outcome: Outcome) -> str:
    def part(value: float, setting: str) -> str:
        return f"{value:,.0f}" + (f" ({setting})" if setting else "")

    return f"{part(outcome.sustainable, outcome.setting)} / {part(outcome.overloaded, outcome.overloaded_setting)}"


def plot(outcomes: Sequence[Outcome], *, target_ms: float) -> bytes:
    """A PNG: for each machine the sustainable rate and the goodput under overload, as shares of what the device can run."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    machines = list(dict.fromkeys(outcome.machine for outcome in outcomes))
    kinds = list(dict.fromkeys(outcome.traffic for outcome in outcomes))
    policies = list(dict.fromkeys(outcome.policy for outcome in outcomes))
    figure = Figure(figsize=(11, 3.4 * len(machines)), layout="constrained")
    FigureCanvasAgg(figure)
    panels: Any = figure.subplots(len(machines), 2, squeeze=False, sharey=True)
    width = 0.8 / len(policies)
    for row, machine in enumerate(machines):
        most = MACHINES[machine].rows_per_second
        for column, title in enumerate((f"99 % within {target_ms:g} ms", "goodput at twice what the device can run")):
            axes = panels[row][column]
            for number, policy in enumerate(policies):
                found = {one.traffic: one for one in outcomes if (one.machine, one.policy) == (machine, policy)}
                bars = axes.bar(
                    [place + (number - (len(policies) - 1) / 2) * width for place in range(len(kinds))],
                    [
                        (found[kind].sustainable if column == 0 else found[kind].overloaded) / most if kind in found else 0.0
                        for kind in kinds
                    ],
                    width,
                    color=COLORS[number % len(COLORS)],
                    hatch=HATCHES[number % len(HATCHES)],
                    edgecolor="black",
                    linewidth=0.8,
                    label=policy,
                )
                axes.bar_label(bars, fmt="%.2f", fontsize=7, padding=2)
            axes.set_title(f"{machine}: {title}", fontsize=10)
            axes.set_xticks(range(len(kinds)), kinds)
            axes.set_ylim(0, 1.12)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", linewidth=0.4, alpha=0.6)
            axes.set_axisbelow(True)
        panels[row][0].set_ylabel("requests/s over the device's rows/s")
    panels[0][0].legend(frameon=False, fontsize=8, ncols=2)
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=120)
    return data.getvalue()
