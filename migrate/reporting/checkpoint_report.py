"""What the report says about every `torch.load` of the repository that may read weights."""

import ast
import os
import posixpath
from dataclasses import replace

from ..reading.facts import CheckpointSite, Survey
from ..reading.finding import Finding
from ..resolving.resolved import Resolved
from ..survey.pointers import pointer_in
from .report import CheckpointReport, Report


def report_checkpoints(report: Report, surveyed: Survey, resolved: Resolved, *, loaded: bool, asked: bool) -> None:
    """Add one entry per site; `loaded` says whether the packaged model's own checkpoint, or the given one, did load, and
    `asked` whether the user gave that one: else it is a file of the repository in which the script saves its model."""
    if (given := resolved.recipe.checkpoint) is not None:
        why = None if loaded else "did not load"
        given = given if asked else os.path.relpath(given, surveyed.root.resolve())
        source = "--checkpoint" if asked else resolved.recipe.script
        report.checkpoints.append(CheckpointReport(source=source, path=given, loaded=loaded, why=why))
    own = {(site.path, site.line) for site in resolved.checkpoints}
    taken = {posixpath.basename(path) for path in resolved.weights_from}
    for site in (site for site in surveyed.checkpoints if site.weights):
        path = file_of(site, surveyed, resolved)
        another = loaded and bool(taken) and given is None and path != site.expression and posixpath.basename(path) not in taken
        mine = (site.path, site.line) in own and not another
        why = None
        if not mine:
            why = "not part of the packaged model's construction"
        elif given is not None:
            why = f"{'the file of --checkpoint' if asked else given} was taken"
        elif not loaded:
            named = path != site.expression or path.startswith(("'", '"'))
            absent = "file not in the repository" if named else "no file is given"
            why = "did not load" if (surveyed.root / path).is_file() else absent
            if (pointer := pointer_in(surveyed.root / path)) is not None:
                why = str(pointer)
        source = f"{site.path}:{site.line}"
        entry = CheckpointReport(
            source=source, path=path, key=site.key, strip=site.strip, loaded=mine and loaded and given is None, why=why
        )
        report.checkpoints.append(entry)


def warn_of_pickles(report: Report) -> None:
    """Say where a file that a run had to take otherwise is loaded as torch refuses it since 2.6, in place of the note that some
    may be: the script fails there without its remedy, before as after."""
    said = [finding.message for finding in report.findings if finding.code == "PS517"]
    pickles = {
        entry.source: entry.path
        for entry in report.checkpoints
        if any(f"{posixpath.basename(entry.path)} holds more than weights" in message for message in said)
    }

    def warned(finding: Finding) -> Finding:
        path = pickles.get(f"{finding.path}:{finding.line}")
        if path is None or finding.code != "PS113" or finding.cell:
            return finding
        message = (
            f"torch.load refuses {path} here since torch 2.6, because it holds more than weights: add weights_only=False to "
            "load a file that you trust, whose code then runs"
        )
        return replace(finding, message=message, severity="warning")

    report.findings = [warned(finding) for finding in report.findings]


def file_of(site: CheckpointSite, surveyed: Survey, resolved: Resolved) -> str:
    """The file that the site loads where it can be told: a literal, or an option's value or default; else the expression."""
    try:
        literal = ast.literal_eval(site.expression)
    except (ValueError, SyntaxError):
        literal = None
    if isinstance(literal, str):
        return literal
    name = site.expression.rpartition(".")[2]
    argv = resolved.recipe.argv
    scripts = [script for script in surveyed.scripts if script.path == site.path] or list(surveyed.scripts)
    for option in (option for script in scripts for option in script.options if option.dest == name):
        for flag in option.flags:
            if flag in argv[:-1]:
                return str(argv[argv.index(flag) + 1])
        if isinstance(option.default, str) and option.default:
            return option.default
    return site.expression
