"""A waterfall for people: a row per step, also for those that there are not, then why, then every caveat."""

from __future__ import annotations

from rich.text import Text

from headrace.serving.bench.reporting.plots import COLORS, new_figure, png_of, whiskers
from headrace.serving.bench.reporting.report import Figures, Report, accuracy_sentences, latencies, number, with_spread

from .waterfall_result import StepResult, Waterfall

__all__ = ["waterfall_plot", "waterfall_report"]


def waterfall_report(found: Waterfall) -> Report:
    """The steps, and those that there are not."""
    bench = found.bench
    title = f"{bench.model}: image bytes in, labels out, {found.concurrency} requests at a time"
    table = Figures(title)
    table.column("step", justify="left", overflow="fold", max_width=32)
    table.column("req/s")
    table.column("p50 / p99\nms", no_wrap=True)
    table.column("to the one\nbefore")
    table.column("to the\nstart", style="bold")
    table.column("same\ntop-1")
    table.column("memory")
    for one in found.results:
        step = one.step
        if not one.measured:
            table.row(step.title, *["-"] * 6, style="dim")
            continue
        table.row(
            Text.assemble(step.title, "\n", (step.runs, "dim")),
            with_spread(one.requests_per_second),
            latencies(bench, step.name, found.concurrency),
            with_spread(one.to_previous, "x", digits=2) if one.to_previous else "",
            with_spread(one.to_start, "x", digits=2) if one.to_start else "1.00x",
            f"{100 * (one.agreed or 0) / one.compared:.4g} %" if one.compared else "-",
            _memory(one),
        )
    sentences = [f"Not there: {one.step.title}: {one.step.why}." for one in found.results if not one.measured]
    sentences.append(f"Median of {bench.repetition} (lowest-highest); {bench.images['source']}.")
    sentences += accuracy_sentences(bench)
    if bench.ok:
        sentences.append("No request failed.")
    return Report(
        title=title,
        tables=[table],
        sentences=sentences,
        caveats=bench.warnings,
        failed=not bench.ok,
        environment=bench.environment,
    )


def _memory(one: StepResult) -> str:
    """Megabytes (2^20 bytes), shared pages counted once where the system tells."""
    used = one.pss_bytes if one.pss_bytes is not None else one.rss_bytes
    return "-" if used is None else f"{number(used / 2**20)} MB"


def waterfall_plot(found: Waterfall) -> bytes:
    """A bar per measured step: requests per second with their spread, hatched what it added to the one before it."""
    steps = [one for one in found.results if one.measured]
    figure = new_figure(10, 0.6 + 0.52 * len(steps))
    axes = figure.subplots()
    places = list(range(len(steps)))
    rates = [spread for one in steps if (spread := one.requests_per_second) is not None]
    before = [rates[0].median, *(rate.median for rate in rates[:-1])]
    for place, rate, last in zip(places, rates, before, strict=True):
        low = min(rate.median, last)
        axes.barh(place, low, 0.7, color=COLORS[1], edgecolor="black", linewidth=0.6)
        gained = rate.median >= last
        axes.barh(
            place,
            abs(rate.median - last),
            0.7,
            left=low,
            color=COLORS[2] if gained else "white",
            hatch="//" if gained else "..",
            edgecolor="black" if gained else COLORS[4],
            linewidth=0.6,
        )
    axes.errorbar([rate.median for rate in rates], places, xerr=whiskers(rates), fmt="none", ecolor="black", capsize=3)
    for place, rate, one in zip(places, rates, steps, strict=True):
        ratio = f"   {one.to_start.median:.2f}x" if one.to_start is not None else ""
        axes.annotate(
            f"{number(rate.median)}/s{ratio}",
            (rate.high, place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    axes.set_yticks(places, [one.step.title.replace("$", r"\$") for one in steps], fontsize=9)
    axes.invert_yaxis()
    axes.set_xlabel(f"requests per second, {found.concurrency} at a time; hatched: what the step added (dotted: took away)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", linewidth=0.4, alpha=0.6)
    axes.set_axisbelow(True)
    axes.margins(x=0.16)
    axes.set_xlim(left=0)
    return png_of(figure)
