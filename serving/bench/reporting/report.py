"""A benchmark's result for people: tables and sentences, the same on the terminal and as a Markdown page beside its plot."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ....runtime.base.atomic import write_aside
from .result import BenchResult, Spread

NAMES = {"baseline": "PyTorch baseline", "headrace": "Headrace"}


class Figures:
    """A table whose cells are text, which nothing reads as markup."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._columns: list[tuple[str, dict[str, Any]]] = []
        self._rows: list[tuple[tuple[str | Text, ...], dict[str, Any]]] = []

    def column(self, header: str, **how: Any) -> None:
        """A column, shown on the terminal as rich's `add_column` has it; right, unless it says otherwise."""
        self._columns.append((header, {"justify": "right", **how}))

    def row(self, *cells: str | Text, **how: Any) -> None:
        """A row, shown on the terminal as rich's `add_row` has it."""
        self._rows.append((cells, how))

    def terminal(self) -> Table:
        """Narrow enough for 80 columns."""
        table = Table(title=Text(self._title), title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
        for header, how in self._columns:
            table.add_column(header, **how)
        for cells, how in self._rows:
            table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells), **how)
        return table

    def markdown(self) -> str:
        """The same as lines of Markdown."""
        lines = [[header for header, _ in self._columns]]
        lines.append(["---:" if how["justify"] == "right" else "---" for _, how in self._columns])
        lines += [[_safe(str(cell)).replace("|", "\\|") for cell in cells] for cells, _ in self._rows]
        return "".join(f"| {' | '.join(' '.join(cell.split()) for cell in line)} |\n" for line in lines)


@dataclass(frozen=True, kw_only=True)
class Report:
    """Tables, then sentences, then what a reader must know before trusting the figures."""

    title: str
    tables: Sequence[Figures]
    sentences: Sequence[str]
    caveats: Sequence[str] = ()
    failed: bool = False
    environment: Mapping[str, Any] = field(default_factory=dict)

    def terminal(self) -> RenderableType:
        """For the terminal."""
        style = "red" if self.failed else "yellow"
        notes = (Text.assemble(("Note:", style), f" {caveat}.") for caveat in self.caveats)
        return Group(*(table.terminal() for table in self.tables), *map(Text, self.sentences), *notes)

    def markdown(self, picture: str) -> str:
        """As a page; `picture` is the file of the plot. What a model or a machine is called stays text in it."""
        parts = [f"# {_safe(self.title)}\n", f"![{_safe(self.title)}]({picture})\n", *(one.markdown() for one in self.tables)]
        parts.append("".join(f"- {_safe(line)}\n" for line in (*self.sentences, *(f"Note: {one}." for one in self.caveats))))
        if self.environment:
            parts.append(f"```json\n{json.dumps(self.environment, indent=1, default=str)}\n```\n")
        return "\n".join(parts)


def write_report(
    out: Path, name: str, report: Report, *, content: Mapping[str, Any], plot: Callable[[], bytes], console: Console
) -> None:
    """Write NAME.json, NAME.md and NAME.png into the folder, and show the report on the console."""
    files = {
        "json": json.dumps(content, indent=1, default=str).encode(),
        "md": report.markdown(f"{name}.png").encode(),
        "png": plot(),
    }
    for kind, data in files.items():
        write_aside(out / f"{name}.{kind}", data)
    console.print(report.terminal())
    written = ", ".join(str(out / f"{name}.{kind}") for kind in files)
    console.print(f"Written: {written}; server logs in {out / 'logs'}", highlight=False, soft_wrap=True)


def bench_report(result: BenchResult) -> Report:
    """One model: the figures, then agreement, accuracy, the plan, and every caveat."""
    title = f"{result.model}: image bytes in, {'vectors' if 'embedding' in result.answered else 'labels'} out"
    sentences = [f"Median of {result.repetition} (lowest-highest); {result.images['source']}."]
    if agreement := agreement_text(result):
        sentences.append(f"Images with the same {result.answered}: {agreement}.")
    sentences += accuracy_sentences(result)
    winners = {f"{choice['backend']} {choice['precision']}" for choice in result.plan["winners"].values()}
    sentences.append(f"Headrace ran {', '.join(sorted(winners))} on {result.plan['device']}.")
    if result.ok:
        sentences.append("No request failed.")
    return Report(
        title=title,
        tables=[_beside(result, title)],
        sentences=sentences,
        caveats=result.warnings,
        failed=not result.ok,
        environment=result.environment,
    )


def accuracy_sentences(result: BenchResult) -> list[str]:
    """How many answers were right, where that is known."""
    parts = (f"{shown_name(name)} {share:.2%}" for name, share in result.accuracy.items())
    return [f"Top-1 accuracy on these images: {', '.join(parts)}."] if result.accuracy else []


def _beside(result: BenchResult, title: str) -> Figures:
    """The services beside each other: a row per concurrency."""
    table = Figures(title)
    table.column("at a\ntime")
    for name in result.services:
        table.column(f"{shown_name(name)}\nreq/s".replace(" ", "\n"))
        table.column("p50 / p99\nms", no_wrap=True)
    if len(result.services) > 1:
        table.column("speed-up", style="bold")
    for concurrency in result.concurrency:
        cells = [str(concurrency)]
        for name in result.services:
            cells += [with_spread(result.requests_per_second(name, concurrency)), latencies(result, name, concurrency)]
        if len(result.services) > 1:
            cells.append(with_spread(result.ratio(concurrency), "x", digits=2))
        table.row(*cells)
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


def shown_name(service: str) -> str:
    """What people call a service."""
    return NAMES.get(service, service)


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


def _safe(text: str) -> str:
    return html.escape(text, quote=False)
