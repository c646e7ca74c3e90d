"""A benchmark's result for people: the terminal table, and one table over several models."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from .result import BenchResult, Spread

NAMES = {"baseline": "PyTorch baseline", "headrace": "Headrace"}


def result_table(result: BenchResult) -> RenderableType:
    """One model: the figures, then agreement, accuracy, the plan, and every warning."""
    title = f"{escape(result.model)}: image bytes in, labels out"
    table = _beside(result, title) if len(result.contenders) <= 2 else _below(result, title)
    lines = [f"Median of {result.repetition} (lowest-highest); {escape(str(result.images['source']))}."]
    if agreement := agreement_text(result):
        lines.append(f"Images with the same top-1 answer: {agreement}.")
    if result.accuracy:
        parts = (f"{shown_name(name)} {share:.2%}" for name, share in result.accuracy.items())
        lines.append(f"Top-1 accuracy on these images: {', '.join(parts)}.")
    winners = {f"{choice['backend']} {choice['precision']}" for choice in result.plan["winners"].values()}
    lines.append(f"Headrace ran {escape(', '.join(sorted(winners)))} on {escape(result.plan['device'])}.")
    if result.ok:
        lines.append("No request failed.")
    lines += [f"[{'yellow' if result.ok else 'red'}]Note:[/] {escape(warning)}." for warning in result.warnings]
    return Group(table, *lines)


def _beside(result: BenchResult, title: str) -> Table:
    """One or two services beside each other: a row per concurrency."""
    table = table_of(title)
    table.add_column("at a\ntime", justify="right")
    for name in result.contenders:
        table.add_column(f"{shown_name(name)}\nreq/s".replace(" ", "\n"), justify="right")
        table.add_column("p50 / p99\nms", justify="right", no_wrap=True)
    if len(result.contenders) > 1:
        table.add_column("speed-up", justify="right", style="bold")
    for concurrency in result.concurrency:
        cells = [str(concurrency)]
        for name in result.contenders:
            cells += [with_spread(result.requests_per_second(name, concurrency)), latencies(result, name, concurrency)]
        if len(result.contenders) > 1:
            cells.append(with_spread(result.ratio(concurrency), "x", digits=2))
        table.add_row(*cells)
    return table


def _below(result: BenchResult, title: str) -> Table:
    """Many services below each other: a row per concurrency and service, and how much faster the last one is than it."""
    table = table_of(title)
    table.add_column("at a\ntime", justify="right")
    table.add_column("service")
    table.add_column("req/s", justify="right")
    table.add_column("p50 / p99\nms", justify="right", no_wrap=True)
    table.add_column(f"{shown_name(result.contenders[-1])}\nis faster", justify="right", style="bold")
    for concurrency in result.concurrency:
        for name in result.contenders:
            last = name == result.contenders[-1]
            table.add_row(
                str(concurrency) if name == result.contenders[0] else "",
                escape(shown_name(name)),
                with_spread(result.requests_per_second(name, concurrency)),
                latencies(result, name, concurrency),
                "" if last else with_spread(result.ratio(concurrency, reference=name), "x", digits=2),
                end_section=last,
            )
    return table


def summary_table(results: Sequence[BenchResult], *, title: str = "PyTorch baseline service vs Headrace") -> Table:
    """Several models, a row each at the highest concurrency measured: both services, speed-up, top-1 agreement."""
    tops = {max(result.concurrency) for result in results}
    table = table_of(f"{title}, {', '.join(map(str, sorted(tops)))} requests at a time")
    table.add_column("model", overflow="fold")
    for name in NAMES.values():
        table.add_column(f"{name}\nreq/s".replace(" ", "\n"), justify="right")
        table.add_column("p50 / p99\nms", justify="right", no_wrap=True)
    table.add_column("speed-up", justify="right", style="bold")
    table.add_column("same\ntop-1", justify="right")
    any_failed = not all(result.ok for result in results)
    if any_failed:
        table.add_column("failed", justify="right", style="red")
    for result in results:
        top = max(result.concurrency)
        cells = [escape(result.model)]
        for name in NAMES:
            rate = result.requests_per_second(name, top)
            cells += ["-" if rate is None else number(rate.median), latencies(result, name, top)]
        cells += [with_spread(result.ratio(top), "x", digits=2), agreement_text(result).replace(" of ", "\nof ", 1) or "-"]
        if any_failed:
            cells.append(str(sum(sum(counts.values()) for counts in result.errors.values())))
        table.add_row(*cells)
    return table


def agreement_text(result: BenchResult) -> str:
    """ "99.6 % of 256", or nothing when there is nothing to compare."""
    agreement = result.agreement
    if agreement is None:
        return ""
    if agreement.share is None:
        return f"0 of {agreement.images} answered by both"
    text = f"{100 * agreement.agreed / agreement.compared:.4g} % of {agreement.compared}"
    return text if agreement.compared == agreement.images else f"{text} ({agreement.images - agreement.compared} unanswered)"


def table_of(title: str) -> Table:
    """Narrow enough for 80 columns."""
    return Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)


def shown_name(contender: str) -> str:
    """What people call a contender."""
    return NAMES.get(contender, contender)


def number(value: float) -> str:
    """Three digits or so."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def with_spread(spread: Spread | None, unit: str = "", *, digits: int | None = None) -> str:
    """The median, and below it the lowest and the highest; "-" for none."""
    if spread is None:
        return "-"
    if digits is None:
        digits = 0 if spread.median >= 100 else 1
    median, low, high = (f"{value:,.{digits}f}" for value in (spread.median, spread.low, spread.high))
    return f"{median}{unit}\n({low}-{high})" if low != high else f"{median}{unit}"


def latencies(result: BenchResult, name: str, concurrency: int) -> str:
    """ "p50 / p99" in milliseconds."""
    p50, p99 = (result.latency_ms(name, concurrency, quantile) for quantile in ("p50", "p99"))
    return "-" if p50 is None or p99 is None else f"{number(p50.median)} / {number(p99.median)}"
