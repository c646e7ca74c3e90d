"""A comparison as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .comparison import Comparison, Form

if TYPE_CHECKING:
    from rich.console import RenderableType


def comparison_table(found: Comparison) -> RenderableType:
    """A line for each form that runs, the fastest first, those of the plan bold; below it what agreement was counted on, what
    the plan takes and why, and what does not run here."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    accuracy = any(form.accuracy is not None for form in found.forms)
    table = Table(title=f"{found.model}, version {found.version}", title_justify="left", box=None, pad_edge=False)
    headings = ("runs", "file", "MB", "load s", "ms at 1", "rows/s", "at", "memory", "agrees", *([found.metric] * accuracy))
    for heading in (*headings, "plan"):
        table.add_column(heading, justify="left" if heading in ("runs", "file", "plan") else "right", no_wrap=heading != "runs")
    for form in found.forms:
        if not form.why:
            table.add_row(*_cells(form, accuracy=accuracy), style="bold green" if form.planned else None)
    load = ", ".join(f"{value:.1f}" for value in found.load)
    lines = [f"agreement is counted on {found.counted_on}; load of the machine {load}", *found.plan]
    lines += [f"{form.name}: {form.why}" for form in found.forms if form.why]
    lines += [found.remark] if found.remark else []
    return Group(table, Text(""), *(Text(line) for line in lines))


def _cells(form: Form, *, accuracy: bool) -> list[str]:
    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    return [
        form.name,
        form.kind,
        number(form.bytes / 1e6, ",.1f"),
        number(form.load_seconds, ".2f"),
        number(form.latency_ms, ".3g"),
        number(form.throughput, ",.0f" if (form.throughput or 0) >= 100 else ".3g"),
        "-" if form.best_batch is None else str(form.best_batch),
        number(form.memory_mb, ",.0f"),
        number(form.agreement, ".2%"),
        *([number(form.accuracy, ".2%")] if accuracy else []),
        ", ".join(map(str, form.planned)),
    ]
