"""The report as one Markdown file. What the repository says stays text: no word of it becomes markup."""

import html
import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ...errors import MigrateError
from ..proving.measurements import DECADES, Agreement, Losses
from ..reading.finding import Finding
from ..rewriting.rewrite import Change, unified_diff
from .report import Report

_SCORES = {
    "recognised": "models recognised",
    "rewritten": "scripts rewritten",
    "executed": "scripts run, same answers",
    "parity_passed": "models with parity proved",
    "faster": "models faster than eager",
}
# Characters that change the order or the visibility of others, with which code can be made to look like other code.
_HIDING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_MOST_VALUES = 8
"""So many of a step are worth reading."""
_MARKUP = re.compile(r"[\\`*_\[\]|~]")


def write_markdown(report: Report, path: Path) -> None:
    """Write the report. Raises MigrateError where the file cannot be written."""
    try:
        path.write_text(to_markdown(report), encoding="utf-8")
    except OSError as error:
        raise MigrateError(f"cannot write the report {path}: {error.strerror or error}") from error


def to_markdown(report: Report) -> str:
    """The report as text."""
    scores = [(words, f"{done} of {of}" if of else "none tried") for key, words in _SCORES.items()
              for done, of in [report.scores()[key]]]  # fmt: skip
    sections = {
        "Scores": _table(["", ""], scores),
        "Models": _table(
            ["name", "built by", "input", "classes", "parity", "outputs", "largest difference", "agreement", "served", ""],
            (
                (
                    *(
                        f"{model.name}{' (random weights)' if model.random_weights else ''}",
                        model.factory,
                        "x".join(map(str, model.input or "?")),
                        model.classes or "?",
                    ),
                    *(model.parity.status, ", ".join(model.outputs)),
                    *(_number(model.parity.max_abs), _share(model.parity.agreement)),
                    *("yes" if model.served else "no", model.parity.why),
                )
                for model in report.models
            ),
        ),
        "How the model is built": _table(
            ["", "where", ""], ((step.kind, f"{step.path}:{step.line}", step.text) for step in report.chain)
        ),
        "Preprocessing": _table(
            ["where", "for", "steps"],
            (
                (entry.source, ", ".join(entry.for_models), ", then ".join(map(_step, entry.steps)))
                for entry in report.preprocessing
            ),
        ),
        "Scripts": _table(
            ["script", "roles", "", "rules", "original = migrated", ""],
            (
                (
                    *(script.path, ", ".join(script.roles), "rewritten" if script.rewritten else "unchanged"),
                    *(" ".join(script.rules), script.told, script.why),
                )
                for script in report.scripts
            ),
        ),
        "Same answers": _table(
            ["script", "model call", "rows", "largest difference", "outputs by difference"],
            (
                (entry.script, entry.site, entry.rows, _number(entry.max_abs), _differences(entry))
                for entry in report.agreements
            ),
        ),
        "Same training": "\n".join(_losses(trace, report) for trace in report.losses),
        "Speed": _table(
            ["model", "batch", "eager fp32, ms", "chosen, ms", "chosen", "times faster"],
            (
                (
                    *(model.name, speed.batch, f"{speed.eager_ms:.2f}", f"{speed.graph_ms:.2f}", speed.chosen),
                    f"{speed.ratio:.2f} ({speed.ratio_low:.2f} to {speed.ratio_high:.2f})",
                )
                for model in report.models
                for speed in model.speed
            ),
        ),
        "Checkpoints": _table(
            ["where", "file", "key", "prefix taken off", "", ""],
            (
                (entry.source, entry.path, entry.key, entry.strip, "loaded" if entry.loaded else "not loaded", entry.why)
                for entry in report.checkpoints
            ),
        ),
        "Findings": _table(["where", "code", "", "what", "fix"], map(_finding, sorted(report.findings))),
        "Changes": "\n".join(_change(change) for change in report.changes if change.changed),
    }
    name = Path(report.repository).name or report.repository
    end = f"Repository: {_escaped(report.repository)}; exit status {report.exit_status}\n"
    body = "".join(f"## {title}\n\n{content}\n" for title, content in sections.items() if content)
    return f"# Migration of {_escaped(name)}\n\n{_verdict(report)}\n\n{body}{end}"


def _verdict(report: Report) -> str:
    """Two sentences: what came of the migration, and how many problems are left."""
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
    return _escaped(f"{first} {' and '.join(words) or 'No errors, no warnings'}.")


def _step(step: dict[str, Any]) -> str:
    """`resize size 32 32`: the operation and its parameters."""
    return " ".join([str(step.get("op", "")), *(f"{key} {_value(value)}" for key, value in step.items() if key != "op")])


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return " ".join(_value(item) for item in value) if len(value) <= _MOST_VALUES else f"of {len(value)} values"
    return str(value)


def _differences(agreement: Agreement) -> str:
    """`equal: 30, from 1e-07: 5`: how many outputs differ by how much, by powers of ten."""
    equal, *decades = agreement.differences
    counts = [("equal", equal), *((f"from 1e{DECADES[0] + index}", count) for index, count in enumerate(decades))]
    return ", ".join(f"{words}: {count}" for words, count in counts if count)


def _losses(trace: Losses, report: Report) -> str:
    caption = f"In {trace.script}, training loop {trace.site}: "
    caption += f"the losses of {len(trace.original)} steps of the original, {len(trace.migrated)} of the migrated"
    verdict = next((script.loss_trace for script in report.scripts if script.path == trace.script), None)
    if verdict is not None and verdict.max_relative is not None:
        caption += f"; the largest relative difference is {verdict.max_relative:.2g}, {verdict.tolerance:.0e} is allowed"
        caption += f"; the migrated script ran on {verdict.ranks} ranks" if verdict.ranks > 1 else ""
    pairs = enumerate(zip_longest(trace.original, trace.migrated), 1)
    steps = ((step, *("" if loss is None else f"{loss:.7g}" for loss in pair)) for step, pair in pairs)
    return f"{_escaped(caption)}\n\n{_table(['step', 'original', 'migrated'], steps)}"


def _finding(finding: Finding) -> tuple[object, ...]:
    fix = finding.fix if finding.fix != "manual" else "by hand" if finding.severity != "note" else ""
    return finding.where or "the repository", finding.code, finding.severity, finding.message, fix


def _change(change: Change) -> str:
    """The rules, and the unified diff as a code block whose fence is longer than any in it."""
    diff = _visible(unified_diff([change]).replace("\r\n", "\n"))
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", diff)), default=0))
    return f"In {_escaped(change.path)}: {_escaped(' '.join(change.rules))}\n\n{fence}diff\n{diff}{fence}\n"


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; nothing without rows."""
    lines = ["| " + " | ".join("" if cell is None else _escaped(cell) for cell in row) + " |\n" for row in rows]
    return f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}\n{''.join(lines)}" if lines else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"


def _escaped(text: object) -> str:
    """Text on one line in which nothing is markup."""
    return _MARKUP.sub(r"\\\g<0>", html.escape(_visible(" ".join(str(text).split("\n"))), quote=False))


def _visible(text: str) -> str:
    """Text with its invisible and reordering characters spelt out."""
    return _HIDING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
