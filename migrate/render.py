"""The report for the terminal: short, and honest about what was not tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from .report import ModelReport, Report

_COLOURS = {"passed": "green", "failed": "red", "not-run": "yellow", "error": "red", "warning": "yellow", "note": "dim"}


def render(report: Report, console: Console) -> None:
    """Print `report`: the diff when nothing was written, the chain, models, scripts, findings, and one line to end on."""
    if report.diff and report.out is None:
        console.print(Syntax(report.diff, "diff", background_color="default", word_wrap=True))
    if report.chain:
        _chain(report, console)
    wanted = [model for model in report.models if model.built or model.artifact or model.parity.why is None]
    if wanted:
        _models(wanted, console)
    others = len(report.models) - len(wanted)
    if others:
        console.print(f"{others} more model factories were recognised; --model NAME takes another one.", style="dim")
    if report.scripts:
        _scripts(report, console)
    _findings(report, console)
    words = {
        "recognised": "recognised",
        "rewritten": "rewritten",
        "executed": "executed",
        "parity_passed": "parity",
        "faster": "faster",
    }
    scores = report.scores()
    console.print("  ".join(f"{word} [bold]{scores[key][0]}/{scores[key][1]}[/]" for key, word in words.items()))
    if report.out is not None:
        console.print(f"Written to [bold]{escape(report.out)}[/]")
        artifact = next((model.artifact for model in report.models if model.artifact), None)
        if artifact is not None:
            console.print(f"Serve it:  penstock serve {escape(report.out)}/{escape(artifact.rsplit('/', 1)[0])}")
    else:
        console.print(
            "Nothing was written; --out DIR writes the migrated copy." if report.would_change else "Nothing to change."
        )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _chain(report: Report, console: Console) -> None:
    table = _table("How the model is built", "", "where", "")
    for step in report.chain:
        table.add_row(step.kind, escape(f"{step.path}:{step.line}"), escape(step.text))
    console.print(table, "")


def _models(models: list[ModelReport], console: Console) -> None:
    table = _table("Models", "name", "input", "classes", "captured", "parity", "max abs", "top-1", "served", "faster")
    for model in models:
        parity = model.parity
        table.add_row(
            escape(model.name),
            "x".join(str(side) for side in model.input) if model.input else "?",
            str(model.classes or "?"),
            _yes(model.captured),
            f"[{_COLOURS[parity.status]}]{parity.status}[/]",
            "" if parity.max_abs is None else f"{parity.max_abs:.2g}",
            "" if parity.top1_agreement is None else f"{parity.top1_agreement:.2%}",
            _yes(model.served),
            _speed(model),
        )
    console.print(table)
    for model in models:
        if model.parity.why:
            console.print(f"  {escape(model.name)}: {escape(model.parity.why)}", style="dim")
    console.print()


def _speed(model: ModelReport) -> str:
    """The smallest and the largest batch that were measured: how many times faster than eager fp32, and its bounds."""
    ends = model.speed[:1] + model.speed[1:][-1:]
    return ", ".join(f"{one.ratio:.2f}x ({one.ratio_low:.2f} to {one.ratio_high:.2f}) at {one.batch}" for one in ends)


def _scripts(report: Report, console: Console) -> None:
    table = _table("Scripts", "path", "roles", "rules", "original = migrated", "")
    for script in report.scripts:
        status = f"[{_COLOURS[script.executed]}]{script.executed}[/]"
        table.add_row(escape(script.path), ", ".join(script.roles), " ".join(script.rules), status, escape(script.why or ""))
    console.print(table, "")


def _findings(report: Report, console: Console) -> None:
    if not report.findings:
        return
    table = _table("Findings", "where", "code", "", "what", "fix")
    for finding in sorted(report.findings):
        severity = f"[{_COLOURS[finding.severity]}]{finding.severity}[/]"
        table.add_row(escape(finding.where), finding.code, severity, escape(finding.message), finding.fix)
    console.print(table, "")


def _yes(value: bool) -> str:
    return "[green]yes[/]" if value else "[yellow]no[/]"
