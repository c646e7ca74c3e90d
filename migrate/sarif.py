"""The findings as SARIF 2.1.0 (OASIS standard), the form that code-scanning services read."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from .catalogue import parts
from .codes import explained
from .edits import Edit, Positions
from .finding import Finding
from .report import ERRORS, Report
from .rewrite import Change
from .rule import Rule, all_rules

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ROOT = "REPOSITORY"


def to_sarif(report: Report) -> dict[str, Any]:
    """One run with every finding of the report. Lines and columns count from 1, columns in Unicode code points.

    Findings that a rewrite answers carry it as a fix: the applied ones too, because they are of the repository as it was.
    """
    findings = sorted(report.findings)
    known = {rule.code: rule for rule in all_rules()}
    codes = sorted({finding.code for finding in findings})
    changes = {change.path: change for change in report.changes}
    run = {
        "tool": {
            "driver": {
                "name": "penstock",
                **_version(),
                "rules": [_descriptor(code, known.get(code)) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"uri": _folder_uri(report.repository)}},
        "invocations": [{"executionSuccessful": not report.exit_status & ERRORS, "exitCode": report.exit_status}],
        "results": [_result(finding, codes.index(finding.code), changes.get(finding.path)) for finding in findings],
        "properties": {"scores": report.scores()},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _version() -> dict[str, str]:
    try:
        return {"version": version("penstock")}
    except PackageNotFoundError:  # imported from a checkout that is not installed
        return {}


def _descriptor(code: str, rule: Rule | None) -> dict[str, Any]:
    if rule is None:
        name, text = explained(code)
        return {"id": code, "name": name, "shortDescription": {"text": text}, "help": {"text": text}}
    said = parts(rule)
    text = "\n\n".join(f"{title}: {body}" for title, body in said.items() if body)
    return {
        "id": code,
        "name": rule.name,
        "shortDescription": {"text": said["What it does"].partition(". ")[0] or rule.name},
        "fullDescription": {"text": said["Why"] or rule.name},
        "help": {"text": text or rule.name, "markdown": "\n\n".join(f"**{title}** {body}" for title, body in said.items())},
        "properties": {"fix": rule.safety},
    }


def _result(finding: Finding, index: int, change: Change | None) -> dict[str, Any]:
    text = _text(change)
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": finding.message or finding.code},
        "properties": {"fix": finding.fix},
    }
    if finding.path:
        place = {"artifactLocation": _artifact(finding.path), "region": _region(finding, text)}
        result["locations"] = [{"physicalLocation": place}]
    if change is not None and text is not None and (edits := _edits(finding, change)):
        positions = Positions(text)
        replacements = [_replacement(positions, edit) for edit in edits]
        result["fixes"] = [
            {
                "description": {"text": f"{finding.code}: as penstock migrate rewrites it ({finding.fix})"},
                "artifactChanges": [{"artifactLocation": _artifact(finding.path), "replacements": replacements}],
            }
        ]
    return result


def _text(change: Change | None) -> str | None:
    """The source before, where it is one that regions can be given in (notebooks are edited by cell)."""
    if change is None or not change.path.endswith(".py"):
        return None
    from .source import parse_source

    return parse_source(change.path, change.before).text


def _edits(finding: Finding, change: Change) -> tuple[Edit, ...]:
    return next((offer.edits for offer in change.offers if offer.finding == finding), ())


def _region(finding: Finding, text: str | None) -> dict[str, int]:
    line = max(1, finding.line)
    column = max(0, finding.column)
    if text is not None:
        lines = Positions(text).lines
        if line <= len(lines):
            column = len(lines[line - 1].encode()[:column].decode(errors="replace"))
    return {"startLine": line, "startColumn": column + 1}


def _replacement(positions: Positions, edit: Edit) -> dict[str, Any]:
    region = {}
    for name, offset in (("start", edit.start), ("end", edit.end)):
        line = max(number for number, start in enumerate(positions.starts) if start <= offset) if offset else 0
        line = min(line, max(0, len(positions.lines) - 1))
        region |= {f"{name}Line": line + 1, f"{name}Column": offset - positions.starts[line] + 1}
    return {"deletedRegion": region, "insertedContent": {"text": edit.text}}


def _artifact(path: str) -> Mapping[str, str]:
    return {"uri": quote(PurePosixPath(path).as_posix(), errors="surrogatepass"), "uriBaseId": _ROOT}


def _folder_uri(folder: str) -> str:
    return Path(folder).resolve().as_uri().rstrip("/") + "/"
