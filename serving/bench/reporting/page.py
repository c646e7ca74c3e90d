"""Benchmarks as HTML pages that need nothing else: no network, no script. Everything a model or machine says is escaped."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .plots import bench_plot, waterfall_plot
from .report import agreement_text, latencies, shown_name, with_spread
from .result import BenchResult
from .waterfall_result import Rung, Waterfall
from .waterfall_table import memory_text, same_text

__all__ = ["about", "bench_page", "inline", "page", "safe", "table", "waterfall_page"]

# Should an escape ever be forgotten, the page still loads nothing and runs nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
body { margin: 2rem auto; max-width: 66rem; padding: 0 1.2rem; background: #fff; color: #111;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 1.8rem 0 .5rem; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; font-weight: 600; }
th, td { padding: .35rem .8rem .35rem 0; border-bottom: 1px solid #ccc; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
small { color: #555; } .absent td { color: #555; } svg { width: 100%; height: auto; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .82rem; }
@media print { body { margin: 0; max-width: none; } section { break-inside: avoid; } }
"""


def bench_page(result: BenchResult) -> str:
    """A benchmark: its plot, its figures, its notes, and where it was measured."""
    rows = []
    for concurrency in result.concurrency:
        for name in result.contenders:
            ratio = result.ratio(concurrency, reference=name)
            rows.append(
                [
                    str(concurrency),
                    safe(shown_name(name)),
                    _lines(with_spread(result.requests_per_second(name, concurrency))),
                    latencies(result, name, concurrency),
                    _lines(with_spread(ratio, "x", digits=2)) if name != result.contenders[-1] else "",
                ]
            )
    last = safe(shown_name(result.contenders[-1]))
    head = ["at a time", "service", "requests per second", "p50 / p99 ms", f"{last} is faster"]
    agreement = agreement_text(result)
    said = f"<p>Images with the same top-1 answer: {safe(agreement)}.</p>" if agreement else ""
    sections = [
        ("", inline(bench_plot(result, "svg"))),
        ("Figures", table(head, rows, numbers=(0, 2, 3, 4)) + said),
        *about(result),
    ]
    return page(f"{result.model}: benchmark", sections)


def waterfall_page(found: Waterfall) -> str:
    """The steps as a plot and a table, with those that there are not."""
    head = ["step", "req/s", "p50 / p99 ms", "to the one before", "to the start", "same top-1", "memory"]
    rows = [_step(found, rung) for rung in found.rungs if rung.measured]
    absent = [[safe(rung.step.title), safe(rung.step.why)] for rung in found.rungs if not rung.measured]
    sections = [
        ("", inline(waterfall_plot(found))),
        ("Steps", table(head, rows, numbers=range(1, 7))),
        ("Steps that are not there", table(["step", "why"], absent)),
        *about(found.bench),
    ]
    return page(f"{found.bench.model}: from a PyTorch service to Headrace", sections)


def page(title: str, sections: Iterable[tuple[str, str]]) -> str:
    """A page of titled sections whose content is HTML already; empty ones are left out."""
    body = "".join(
        f"<section>{f'<h2>{safe(heading)}</h2>' if heading else ''}{content}</section>"
        for heading, content in sections
        if content
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><title>{safe(title)}</title><style>{_STYLE}</style>'
        f"</head><body><h1>{safe(title)}</h1>{body}</body></html>\n"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Iterable[int] = ()) -> str:
    """A table of cells that are HTML already, those in the columns `numbers` set as figures; nothing without rows."""
    right = set(numbers)

    def line(cells: Sequence[str], kind: str) -> str:
        marked = (f"<{kind}{' class=n' if place in right else ''}>{cell}</{kind}>" for place, cell in enumerate(cells))
        return f"<tr>{''.join(marked)}</tr>"

    return f"<table>{line(head, 'th')}{''.join(line(row, 'td') for row in rows)}</table>" if rows else ""


def safe(text: object) -> str:
    """Text for HTML."""
    return html.escape(str(text), quote=True)


def _step(found: Waterfall, rung: Rung) -> list[str]:
    step = rung.step
    return [
        f"{safe(step.title)}<br><small>{safe(step.runs)}</small>",
        _lines(with_spread(rung.requests_per_second)),
        latencies(found.bench, step.name, found.concurrency),
        _lines(with_spread(rung.to_previous, "x", digits=2)) if rung.to_previous else "",
        _lines(with_spread(rung.to_start, "x", digits=2)) if rung.to_start else "1.00x",
        same_text(rung),
        memory_text(rung),
    ]


def about(result: BenchResult) -> list[tuple[str, str]]:
    """The last sections of every page: notes, and where it was measured."""
    notes = [f"Medians of {result.repetition}; in brackets the lowest and the highest."]
    notes += [f"Images: {result.images['source']}."]
    notes += [f"{shown_name(name)}: {share:.2%} of these images right." for name, share in result.accuracy.items()]
    notes += ["No request failed."] if result.ok else []
    notes += [f"{warning}." for warning in result.warnings]
    listed = "".join(f"<li>{safe(note)}</li>" for note in notes)
    machine: Mapping[str, Any] = result.environment
    return [
        ("What to know", f"<ul>{listed}</ul>"),
        ("Measured on", f"<pre>{safe(json.dumps(machine, indent=1, default=str))}</pre>" if machine else ""),
    ]


def inline(svg: bytes) -> str:
    """An SVG file's picture without its XML head, to stand in a page."""
    text = svg.decode()
    return text[text.index("<svg") :]


def _lines(text: str) -> str:
    return safe(text).replace("\n", "<br>")
