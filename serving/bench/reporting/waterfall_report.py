"""A waterfall for people: a row per step, also for those that there are not, then why, then every caveat."""

from __future__ import annotations

from rich.text import Text

from .report import Figures, Report, accuracy_sentences, latencies, number, with_spread
from .waterfall_result import StepResult, Waterfall

__all__ = ["waterfall_report"]


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
