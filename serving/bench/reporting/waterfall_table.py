"""A waterfall as a table for the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape

from .report import latencies, number, table_of, with_spread
from .waterfall_result import Rung, Waterfall

__all__ = ["memory_text", "same_text", "waterfall_table"]


def waterfall_table(found: Waterfall) -> RenderableType:
    """A row per step, also for those that there are not, then every note."""
    bench = found.bench
    table = table_of(f"{escape(bench.model)}: image bytes in, labels out, {found.concurrency} requests at a time")
    table.add_column("step", overflow="fold", max_width=32)
    table.add_column("req/s", justify="right")
    table.add_column("p50 / p99\nms", justify="right", no_wrap=True)
    table.add_column("to the one\nbefore", justify="right")
    table.add_column("to the\nstart", justify="right", style="bold")
    table.add_column("same\ntop-1", justify="right")
    table.add_column("memory", justify="right")
    for rung in found.rungs:
        step = rung.step
        if not rung.measured:
            table.add_row(f"[dim]{escape(step.title)}[/]", *["[dim]-[/]"] * 6)
            continue
        table.add_row(
            f"{escape(step.title)}\n[dim]{escape(step.runs)}[/]",
            with_spread(rung.requests_per_second),
            latencies(bench, step.name, found.concurrency),
            with_spread(rung.to_previous, "x", digits=2) if rung.to_previous else "",
            with_spread(rung.to_start, "x", digits=2) if rung.to_start else "1.00x",
            same_text(rung),
            memory_text(rung),
        )
    lines = [
        f"[dim]Not there:[/] {escape(rung.step.title)}: {escape(rung.step.why)}." for rung in found.rungs if not rung.measured
    ]
    lines.append(f"Median of {bench.repetition} (lowest-highest); {escape(str(bench.images['source']))}.")
    if bench.accuracy:
        shares = ", ".join(f"{name} {share:.2%}" for name, share in bench.accuracy.items())
        lines.append(f"Top-1 accuracy on these images: {escape(shares)}.")
    if bench.ok:
        lines.append("No request failed.")
    lines += [f"[{'yellow' if bench.ok else 'red'}]Note:[/] {escape(warning)}." for warning in bench.warnings]
    return Group(table, *lines)


def same_text(rung: Rung) -> str:
    """The share of images with the first service's top-1 answer."""
    if not rung.compared:
        return "-"
    return f"{100 * (rung.agreed or 0) / rung.compared:.4g} %"


def memory_text(rung: Rung) -> str:
    """Megabytes (2^20 bytes), shared pages counted once where the system tells."""
    used = rung.pss_bytes if rung.pss_bytes is not None else rung.rss_bytes
    return "-" if used is None else f"{number(used / 2**20)} MB"
