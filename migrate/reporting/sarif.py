"""The findings as SARIF 2.1.0 (OASIS standard), the form that code-scanning services read."""

import difflib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from ..reading.finding import Finding
from ..reading.source import parse_source, split_lines
from ..rewriting.catalog import parts
from ..rewriting.codes import explained
from ..rewriting.rewrite import Change
from ..rewriting.rule import Rule, all_rules
from .report import ERRORS, Report

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ROOT = "REPOSITORY"


def to_sarif(report: Report) -> dict[str, Any]:
    """One run with every finding of the report. Lines and columns count from 1, columns in Unicode code points.

    A finding whose rewrite was made carries the rewriting of its whole file as a fix, because an import, a construction and
    the calls go together; regions are of the repository as it was.
    """
    findings = sorted(report.findings)
    known = {rule.code: rule for rule in all_rules()}
    codes = sorted({finding.code for finding in findings})
    changes = {change.path: change for change in report.changes}
    run = {
        "tool": {"driver": {"name": "headrace", **_version(), "rules": [_descriptor(code, known.get(code)) for code in codes]}},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"uri": _folder_uri(report.repository)}},
        "invocations": [{"executionSuccessful": not report.exit_status & ERRORS, "exitCode": report.exit_status}],
        "results": [_result(finding, codes.index(finding.code), changes.get(finding.path)) for finding in findings],
        "properties": {"scores": report.scores()},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _version() -> dict[str, str]:
    try:
        return {"version": version("headrace")}
    except PackageNotFoundError:  # imported from a checkout that is not installed
        return {}


def _descriptor(code: str, rule: Rule | None) -> dict[str, Any]:
    if rule is None:
        name, text = explained(code)
        return {"id": code, "name": name, "shortDescription": {"text": text}, "help": {"text": text}}
    page = parts(rule)
    text = "\n\n".join(f"{title}: {body}" for title, body in page.items() if body)
    return {
        "id": code,
        "name": rule.name,
        "shortDescription": {"text": page["What it does"].partition(". ")[0] or rule.name},
        "fullDescription": {"text": page["Why"] or rule.name},
        "help": {"text": text or rule.name, "markdown": "\n\n".join(f"**{title}** {body}" for title, body in page.items())},
        "properties": {"fix": rule.safety},
    }


def _result(finding: Finding, index: int, change: Change | None) -> dict[str, Any]:
    before, after = (None, None) if change is None else (_text(change.path, data) for data in (change.before, change.after))
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": _message(finding)},
        "properties": {"fix": finding.fix},
    }
    if finding.path:
        place: dict[str, Any] = {"artifactLocation": _artifact(finding.path)}
        if not finding.cell:  # a region counts lines of the file, in which a cell's have no place of their own
            place["region"] = {"startLine": max(1, finding.line), "startColumn": max(0, finding.column) + 1}
        result["locations"] = [{"physicalLocation": place}]
    if finding.fix == "applied" and change is not None and change.changed and before is not None and after is not None:
        result["fixes"] = [
            {
                "description": {"text": f"Rewrite {finding.path} as headrace migrate does: {', '.join(change.rules)}"},
                "artifactChanges": [
                    {"artifactLocation": _artifact(finding.path), "replacements": _replacements(before, after)}
                ],
            }
        ]
    return result


def _message(finding: Finding) -> str:
    text = finding.message or finding.code
    return f"cell {finding.cell}, line {finding.line}: {text}" if finding.cell else text


def _text(path: str, data: bytes) -> str | None:
    """The source, where it is one that regions can be given in (notebooks are edited by cell)."""
    return parse_source(path, data).text if path.endswith(".py") else None


def _replacements(before: str, after: str) -> list[dict[str, Any]]:
    """The lines that differ, whole, each region ending at the start of the line after it."""
    old, new = (split_lines(text) for text in (before, after))
    made = []
    for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        if kind != "equal":
            region = {"startLine": i1 + 1, "startColumn": 1, "endLine": i2 + 1, "endColumn": 1}
            if i2 == len(old) and old and not old[-1].endswith(("\n", "\r")):  # there is no line after it
                region |= {"endLine": i2, "endColumn": len(old[-1]) + 1}
                if i1 == i2:
                    region |= {"startLine": i2, "startColumn": len(old[-1]) + 1}
            made.append({"deletedRegion": region, "insertedContent": {"text": "".join(new[j1:j2])}})
    return made


def _artifact(path: str) -> Mapping[str, str]:
    return {"uri": quote(PurePosixPath(path).as_posix(), errors="surrogatepass"), "uriBaseId": _ROOT}


def _folder_uri(folder: str) -> str:
    return Path(folder).resolve().as_uri().rstrip("/") + "/"
