"""The report for the terminal: short, and honest about what was not tried."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from .report import ModelReport, Report

_COLORS = {"passed": "green", "failed": "red", "not-run": "yellow", "error": "red", "warning": "yellow", "note": "dim"}
_MOST_PLACES = 3
"""So many more places of one finding are named."""


def render(report: Report, console: Console, *, stopped: bool = False, options: Sequence[str] = ()) -> None:
    """Print `report`: the diff when nothing was to be written, the chain, models, scripts, findings, and one line to end on.

    `stopped` is for a run that was to write and ended before, at a choice; `options` are those that the command to go on with
    is to have again.
    """
    if report.diff and report.out is None and report.written is None and not stopped:
        text = Syntax("", "diff", background_color="default").highlight(report.diff)
        console.print(text, end="", soft_wrap=True)  # a patch's lines are whole at any width
    if report.chain:
        _chain(report, console)
    wanted = [model for model in report.models if model.built or model.artifact or model.parity.why is None]
    if wanted:
        _models(wanted, console)
    others = len(report.models) - len(wanted)
    if others:
        more = f"{others} more model factories were" if others > 1 else "One more model factory was"
        console.print(f"{more} recognised; --model NAME takes another one.", style="dim")
    if report.scripts:
        _scripts(report, console)
    _recovered(report, console)
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
    _end(report, console, stopped, options)


def _end(report: Report, console: Console, stopped: bool, options: Sequence[str]) -> None:
    """What was written, and the commands to go on with."""
    artifact = next((model.artifact for model in report.models if model.artifact), None)
    place = report.repository if report.out is None else report.out
    quoted = shlex.quote(place)
    if stopped:
        _line(console, "Nothing was written, because there is a choice to make.")
    elif report.blocked is not None:
        _line(console, f"Nothing was written in place, because {report.blocked}.")
    elif report.written:
        files = "1 file" if len(report.written) == 1 else f"{len(report.written)} files"
        _line(console, f"Changed in place: {files}.", f"headrace undo {quoted}", "takes it back")
    elif report.out is not None:
        _line(console, f"Written to {place}")
    elif report.would_change:
        again = shlex.join(["headrace", "migrate", place, *options, "--out", "DIR"])
        _line(console, "Nothing was written.", again, "writes the migrated copy with its models")
    else:
        _line(console, "Nothing to change.")
    if artifact is not None and (report.out is not None or report.written):
        _line(console, "Serve it:", f"headrace serve {shlex.quote(f'{place}/' + artifact.rsplit('/', 1)[0])}")
    if any(model.parity.status == "failed" for model in report.models) or report.parity_failed:
        _line(console, "Not the same answers:", "--report FILE.md", "shows where they part")


def _line(console: Console, words: str, command: str = "", what: str = "") -> None:
    bold = f"  [bold]{escape(command)}[/]" if command else ""
    # A command is whole at any width, to be copied.
    console.print(f"{escape(words)}{bold}{'  ' + escape(what) if what else ''}", highlight=False, soft_wrap=True)


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
    table = _table("Models", "name", "input", "classes", "captured", "parity", "max abs", "agrees", "served", "faster")
    for model in models:
        parity = model.parity
        table.add_row(
            escape(model.name) + (" [red](random weights)[/]" if model.random_weights and model.artifact else ""),
            "x".join(str(side) for side in model.input) if model.input else "?",
            str(model.classes or "?"),
            _yes(model.captured),
            f"[{_COLORS[parity.status]}]{parity.status}[/]",
            "" if parity.max_abs is None else f"{parity.max_abs:.2g}",
            "" if parity.agreement is None else f"{parity.agreement:.2%}",
            _yes(model.served),
            _speed(model),
        )
    console.print(table)
    for model in models:
        if model.outputs:
            console.print(f"  {escape(model.name)} gives {escape(', '.join(model.outputs))}", style="dim")
        if model.speed_unknown:
            console.print(f"  {escape(model.name)}: how much faster is not told: {escape(model.speed_unknown)}", style="dim")
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
        status = f"[{_COLORS[script.executed]}]{script.told}[/]"
        table.add_row(escape(script.path), ", ".join(script.roles), " ".join(script.rules), status, escape(script.why or ""))
    console.print(table, "")


def _recovered(report: Report, console: Console) -> None:
    """The preprocessing as one line of steps each, and the checkpoints."""
    if report.preprocessing:
        table = _table("Preprocessing", "where", "for", "steps")
        for entry in report.preprocessing:
            steps = " > ".join(_step(step) for step in entry.steps if not _changes_nothing(step))
            table.add_row(escape(entry.source), escape(", ".join(entry.for_models)), escape(steps))
        console.print(table, "")
    if report.checkpoints:
        table = _table("Checkpoints", "where", "file", "key", "prefix", "loaded", "")
        for found in report.checkpoints:
            cells = (found.source, found.path, found.key or "", found.strip or "")
            table.add_row(*map(escape, cells), _yes(found.loaded), escape(found.why or ""))
        console.print(table, "")


def _changes_nothing(step: dict[str, Any]) -> bool:
    return step.get("op") == "normalize" and not any(step["mean"]) and all(value == 1 for value in step["std"])


def _step(step: dict[str, Any]) -> str:
    """`resize 32x32 bilinear`, `resize short side 256 bilinear floor`, `normalize`: the operation with its sizes and words."""
    words, size = [str(step.get("op", ""))], step.get("size")
    if isinstance(size, list | tuple):
        words.append("x".join(map(str, size)))
    elif size is not None:
        words.append(f"{step.get('side', 'short')} side {size}")
    of_side = ("long_side",) if isinstance(size, list | tuple) else ()
    return " ".join(
        [*words, *(value for key, value in step.items() if isinstance(value, str) and key not in ("op", "side", *of_side))]
    )


def _findings(report: Report, console: Console) -> None:
    if not report.findings:
        return
    ranks = {"error": 0, "warning": 1, "note": 2}
    counts = [(severity, sum(finding.severity == severity for finding in report.findings)) for severity in ranks]
    title = "Findings: " + ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts if count)
    table = _table(title, "where", "code", "", "what", "fix")
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for finding in sorted(report.findings, key=lambda finding: (ranks[finding.severity], finding)):
        alike.setdefault((finding.severity, finding.code, finding.message, finding.fix), []).append(finding.where)
    for (severity, code, message, fix), (where, *others) in alike.items():
        also = f"; also at {', '.join(others[:_MOST_PLACES])}" if others else ""
        more = f" and {len(others) - _MOST_PLACES} more" if len(others) > _MOST_PLACES else ""
        table.add_row(escape(where), code, f"[{_COLORS[severity]}]{severity}[/]", escape(f"{message}{also}{more}"), fix)
    console.print(table, "")


def _yes(value: bool) -> str:
    return "[green]yes[/]" if value else "[yellow]no[/]"
