"""The report as one HTML page that needs nothing else: no network, no script. Everything the repository says is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from ...errors import MigrateError
from ..reading.finding import Finding
from ..reading.source import NOTEBOOK, parse_source
from ..rewriting.rewrite import Change, views
from .html_diff import safe, side_by_side
from .html_plots import histogram, loss_curve, scatter, speed_bars
from .html_style import STYLE
from .report import ModelReport, Report

# Should an escape ever be forgotten, the page still loads nothing and runs nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_SCORES = {
    "recognised": "models recognised",
    "rewritten": "scripts rewritten",
    "executed": "scripts run, same answers",
    "parity_passed": "models with parity proved",
    "faster": "models faster than eager",
}
_KINDS = {
    "passed": "good",
    "failed": "bad",
    "not-run": "warn",
    "error": "bad",
    "warning": "warn",
    "applied": "good",
    "unsafe": "warn",
}


def write_html(report: Report, path: Path) -> None:
    """Write the page. Raises MigrateError where the file cannot be written."""
    try:
        path.write_text(to_html(report), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise MigrateError(f"cannot write the report {path}: {error.strerror or error}") from error


def to_html(report: Report) -> str:
    """The page as text."""
    name = safe(Path(report.repository).name or report.repository)
    sections = [
        ("Models", _models(report)),
        ("How the model is built", _chain(report)),
        ("Preprocessing", _preprocessing(report)),
        ("Scripts", _scripts(report)),
        ("Same answers", _agreements(report)),
        ("Same training", _losses(report)),
        ("Speed", _speeds(report)),
        ("Checkpoints", _checkpoints(report)),
        ("Findings", _findings(report)),
        ("Changes", _changes(report)),
    ]
    body = "".join(f"<section><h2>{title}</h2>{content}</section>" for title, content in sections if content)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><title>{name}: migration report</title>'
        f'<style>{STYLE}</style></head><body><header><div class="wrap"><small>Headrace migration report</small><h1>{name}</h1>'
        f"<p>{_verdict(report)}</p></div></header>"
        f'<main class="wrap"><div class="tiles">{_tiles(report)}</div>{body}'
        f'<footer><span class="mono">{safe(report.repository)}</span> &middot; exit status {report.exit_status}</footer>'
        "</main></body></html>\n"
    )


def _verdict(report: Report) -> str:
    """One or two sentences: what came of it."""
    if report.blocked is not None:
        first = f"Not written in place: {report.blocked}."
    elif report.written:
        first = f"{len(report.written)} {'file' if len(report.written) == 1 else 'files'} changed in place."
    elif report.out is not None:
        first = f"Migrated to {report.out}."
    elif report.would_change:
        first = "Nothing was written yet."
    else:
        first = "Nothing to change."
    counts = {severity: sum(finding.severity == severity for finding in report.findings) for severity in ("error", "warning")}
    words = [f"{count} {severity}{'' if count == 1 else 's'}" for severity, count in counts.items() if count]
    second = f" {' and '.join(words)}." if words else " No errors, no warnings."
    return safe(first + second)


def _tiles(report: Report) -> str:
    tiles = []
    for key, (done, of) in report.scores().items():
        share = 100 * done / of if of else 0
        amount = f"{done}<i>/{of}</i>" if of else "&ndash;"
        meter = f'<div class="meter"><i style="width:{share:.0f}%"></i></div>'
        tiles.append(f'<div class="tile"><b>{amount}</b><span>{_SCORES[key]}</span>{meter}</div>')
    return "".join(tiles)


def _models(report: Report) -> str:
    rows = [_model(model) for model in report.models]
    return _table(
        ["name", "built by", "input", "classes", "parity", "largest difference", "top-1 agreement", "served", ""], rows
    )


def _model(model: ModelReport) -> list[str]:
    parity = model.parity
    return [
        f"<b>{safe(model.name)}</b>",
        f'<span class="mono">{safe(model.factory or "")}</span>',
        "&times;".join(str(side) for side in model.input) if model.input else "?",
        safe(model.classes or "?"),
        _pill(parity.status),
        "" if parity.max_abs is None else f"{parity.max_abs:.2g}",
        "" if parity.top1_agreement is None else f"{parity.top1_agreement:.2%}",
        _pill("yes" if model.served else "no", "good" if model.served else ""),
        f'<span class="soft">{safe(parity.why or "")}</span>',
    ]


def _chain(report: Report) -> str:
    steps = [
        f'<li><span class="pill">{safe(step.kind)}</span> <span class="mono soft">{safe(step.path)}:{step.line}</span><br>'
        f"<code>{safe(step.text)}</code></li>"
        for step in report.chain
    ]
    return f'<ol class="chain">{"".join(steps)}</ol>' if steps else ""


def _preprocessing(report: Report) -> str:
    parts = []
    for entry in report.preprocessing:
        steps = '<span class="arrow">&rarr;</span>'.join(_step(step) for step in entry.steps)
        title = (
            f'<span class="mono">{safe(entry.source)}</span> <span class="soft">for {safe(", ".join(entry.for_models))}</span>'
        )
        parts.append(f'<h3>{title}</h3><div class="steps">{steps}</div>')
    return "".join(parts)


def _step(step: dict[str, Any]) -> str:
    details = ", ".join(f"{key} {_value(value)}" for key, value in step.items() if key != "op")
    return f'<div class="step"><b>{safe(step.get("op", ""))}</b><span>{safe(details)}</span></div>'


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return " ".join(_value(item) for item in value) if isinstance(value, list | tuple) else str(value)


def _scripts(report: Report) -> str:
    rows = [
        [
            f'<span class="mono">{safe(script.path)}</span>',
            safe(", ".join(script.roles)),
            _pill("rewritten", "good") if script.rewritten else _pill("unchanged"),
            safe(" ".join(script.rules)),
            _pill(script.executed),
            f'<span class="soft">{safe(script.why or "")}</span>',
        ]
        for script in report.scripts
    ]
    return _table(["script", "roles", "", "rules", "original = migrated", ""], rows)


def _agreements(report: Report) -> str:
    parts = []
    for agreement in report.agreements:
        title = (
            f'<span class="mono">{safe(agreement.script)}</span> <span class="soft">model call at {safe(agreement.site)}</span>'
        )
        caption = f"{agreement.rows} row{'' if agreement.rows == 1 else 's'}; the largest difference is {agreement.max_abs:.2g}"
        plots = "".join(f"<figure>{plot(agreement)}</figure>" for plot in (scatter, histogram))
        parts.append(f'<h3>{title}</h3><div class="plots">{plots}</div><p class="soft">{caption}</p>')
    return "".join(parts)


def _losses(report: Report) -> str:
    traces = {script.path: script.loss_trace for script in report.scripts}
    parts = []
    for trace in report.losses:
        verdict = traces.get(trace.script)
        title = f'<span class="mono">{safe(trace.script)}</span> <span class="soft">training loop {safe(trace.site)}</span>'
        caption = f"the losses of {len(trace.original)} steps of the original, {len(trace.migrated)} of the migrated"
        if verdict is not None and verdict.max_relative is not None:
            caption += f"; the largest relative difference is {verdict.max_relative:.2g}, {verdict.tolerance:.0e} is allowed"
        parts.append(
            f'<h3>{title}</h3><div class="plots"><figure>{loss_curve(trace)}</figure></div><p class="soft">{caption}</p>'
        )
    return "".join(parts)


def _speeds(report: Report) -> str:
    parts = []
    for model, group in groupby(report.speeds, key=lambda speed: speed.model):
        parts.append(f"<h3>{safe(model)}</h3>{speed_bars(list(group))}")
    if not parts:
        return ""
    return (
        "".join(parts)
        + '<p class="soft">Median time of one call on the machine that migrated; eager PyTorch in float32 above.</p>'
    )


def _checkpoints(report: Report) -> str:
    rows = [
        [
            f'<span class="mono">{safe(entry.source)}</span>',
            f'<span class="mono">{safe(entry.path)}</span>',
            safe(entry.key or ""),
            safe(entry.strip or ""),
            _pill("loaded", "good") if entry.loaded else _pill("not loaded"),
            f'<span class="soft">{safe(entry.why or "")}</span>',
        ]
        for entry in report.checkpoints
    ]
    return _table(["where", "file", "key", "prefix taken off", "", ""], rows)


def _findings(report: Report) -> str:
    parts = []
    for path, group in groupby(sorted(report.findings), key=lambda finding: finding.path):
        rows = [_finding(finding) for finding in group]
        title = f'<span class="mono">{safe(path)}</span>' if path else "The repository as a whole"
        parts.append(f"<h3>{title}</h3>{_table(['line', 'code', '', 'what', 'fix'], rows, 'findings')}")
    return "".join(parts)


def _finding(finding: Finding) -> list[str]:
    place = f'<span class="mono">{finding.line}:{finding.column}</span>' if finding.path else ""
    return [
        place,
        f'<span class="mono">{safe(finding.code)}</span>',
        _pill(finding.severity),
        safe(finding.message),
        _pill(finding.fix) if finding.fix != "manual" else '<span class="soft">by hand</span>' * (finding.severity != "note"),
    ]


def _changes(report: Report) -> str:
    parts = []
    for change in (change for change in report.changes if change.changed):
        for path, before, after in _views(change):
            title = f'<span class="mono">{safe(path)}</span> <span class="soft">{safe(" ".join(change.rules))}</span>'
            table = side_by_side(before, after, python=change.path.endswith((".py", NOTEBOOK)))
            parts.append(f"<details open><summary>{title}</summary>{table}</details>")
    return "".join(parts)


def _views(change: Change) -> Iterable[tuple[str, str, str]]:
    """(title, text before, text after), decoded as Python would; of a notebook, its changed cells."""
    if change.path.endswith(NOTEBOOK):
        return views(change)
    texts = [parse_source(change.path, data).text for data in (change.before, change.after)]
    decoded = [data.decode("utf-8", "backslashreplace") for data in (change.before, change.after)]
    before, after = (text if text is not None else plain for text, plain in zip(texts, decoded, strict=True))
    return [(change.path, before, after)]


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """A table of cells that are HTML already; nothing without rows."""
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    heads = "".join(f"<th>{column}</th>" for column in columns)
    return f'<table class="list {kind}"><tr>{heads}</tr>{lines}</table>' if lines else ""


def _pill(word: str, kind: str | None = None) -> str:
    return f'<span class="pill {_KINDS.get(word, "") if kind is None else kind}">{safe(word)}</span>'
