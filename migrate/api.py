"""Migrate a repository, stage by stage: survey, resolve, rewrite, run, trace, package, prove, report."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ..errors import AmbiguousError, MigrateError, NothingToMigrateError
from .proving.confined_run import Limits
from .reading.facts import Survey
from .reading.finding import Finding
from .reporting.cell_locations import locate_in_cells
from .reporting.report import ModelReport, Parity, Report, ScriptReport
from .resolving.resolve import resolve
from .resolving.resolved import Resolved
from .rewriting.plugins import choose_settings
from .rewriting.rewrite import Change, rewrite_all, unified_diff
from .stages.all_models import package_all, resolve_all, split_models
from .stages.copy_tree import Copied
from .stages.in_place import write_if_proved
from .stages.journal import models_in_place, recover
from .stages.migrated_copy import check_output, models_folder, write_output
from .stages.migration import Migration, Options
from .stages.progress import Stages
from .stages.script_runs import run_migrated, run_originals
from .survey.survey import survey

if TYPE_CHECKING:
    from rich.console import Console


def migrate(
    repository: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    write: bool = False,
    entry: str | None = None,
    model: str | None = None,
    all_models: bool = False,
    input_size: tuple[int, int, int] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    precision: str = "auto",
    device: str = "auto",
    tuning_seconds: float | None = None,
    verify: bool = True,
    check: bool = False,
    trust_checkpoint: bool = False,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    unsafe: bool = False,
    rules: Sequence[str | os.PathLike[str]] = (),
    trust_rules: bool = False,
    timeout: float = 600.0,
    memory_bytes: int | None = None,
    console: Console | None = None,
) -> Report:
    """Turn a PyTorch image-classification repository into its graph-mode form, prove it, and package the model.

    With `out`, that folder gets the migrated copy, `models/` (a model repository to serve) and headrace-report.json. With
    `write`, the repository itself is changed, unless a proof failed, and `stages.journal.undo` gives it back; the
    models go to `.headrace/models`. With neither, everything is tried and proved in a temporary copy and nothing is written.
    `model` may name several, separated by commas; `all_models` packages every one that the repository says how to build.
    `check` stops after the rewrite. `input_size` is (channels, height, width). The model is planned for the `device` "cpu",
    "cuda", or "auto", where the script puts it; the fastest backend is sought for `tuning_seconds`, by default 30, for a GPU
    240. `select` and `ignore` are rule codes or beginnings of them, `rules` files with rules of your own, which
    run in this process; `trust_rules` also runs those that the repository's pyproject.toml names. The repository's code only
    runs in subprocesses of at most `timeout` seconds and `memory_bytes` (three quarters of the machine's by default). `console`
    shows progress.

    What goes wrong inside the repository is a finding of the report; raises AmbiguousError where a choice is yours (with the
    report of the rewrite, when nothing was to be written), NothingToMigrateError where there is no PyTorch, MigrateError where
    `repository` or `out` cannot be used.
    """
    root = Path(repository).resolve()
    target = Path(out) if out is not None else None
    if target is not None and write:
        raise MigrateError("--out writes a copy and --write the repository itself; choose one")
    if target is not None:
        check_output(root, target)
    restored = recover(root)
    files = [Path(file) for file in rules]
    told, chosen, remarks = choose_settings(root, select=select, ignore=ignore, files=files, trusted=trust_rules)
    if restored:
        message = f"an interrupted --write was taken back first: {', '.join(restored)}"
        remarks.append(Finding("", 1, 0, "PS510", message, "note"))
    limits = Limits(timeout=timeout, memory_bytes=memory_bytes or psutil.virtual_memory().total * 3 // 4)
    with Stages(console) as stages:
        unrepaired = survey(root, progress=stages.start("Reading the sources"))
        rewritten = rewrite_all(unrepaired, rules=chosen, unsafe=unsafe or told.unsafe)
        surveyed, changes = rewritten.survey, rewritten.changes
        report = _first_report(root, surveyed, changes)
        report.findings += remarks
        weights = str(Path(checkpoint).resolve()) if checkpoint is not None else None
        if all_models and model is not None:
            raise ValueError("give model or all_models, not both")
        entry = entry or told.entry
        model = model or (told.model if not all_models else None)
        first, *more = split_models(model) if model is not None else [None]
        try:
            resolved = _resolve(surveyed, report, entry, first, weights, whatever=all_models)
        except AmbiguousError as error:
            if target is None and not write:
                error.report = _undecided(surveyed, report, error)
                locate_in_cells(report, unrepaired)
            raise
        others = [resolve(surveyed, entry=entry, model=name, checkpoint=weights) for name in more]
        if all_models:
            stages.start("Following every model to its construction")
        others += _other_models(surveyed, report, resolved, entry) if all_models else []
        _list_models(surveyed, [*([resolved] if resolved is not None else []), *others], report, all_models)
        if check:
            locate_in_cells(report, unrepaired)
            return report
        with tempfile.TemporaryDirectory(prefix="headrace-", ignore_cleanup_errors=True) as scratch:
            options = Options(
                input_size=input_size or told.input_size,
                data=Path(data).resolve() if data is not None else None,
                precision=precision,
                device=device,
                tuning_seconds=tuning_seconds,
                verify=verify,
                trusted=trust_checkpoint,
                limits=limits,
            )
            leave_out = (target,) if target is not None else ()
            space = Migration(
                scratch=Path(scratch),
                surveyed=surveyed,
                report=report,
                options=options,
                stages=stages,
                leave_out=leave_out,
                repairs=rewritten.repairs,
                unrepaired=_resolve_unrepaired(unrepaired, rewritten.repairs, entry, first, weights),
            )
            folder = models_folder(root) if not write else models_in_place(root).relative_to(root).as_posix()
            models = _try_everything(space, resolved, others, changes, folder)
            locate_in_cells(report, unrepaired)
            if write:
                stages.start("Writing in place")
                write_if_proved(root, changes, report, models)
            elif target is not None:
                _write(root, target, changes, report, models, stages.start("Writing the migrated copy"))
    return report


def _try_everything(
    space: Migration, resolved: Resolved | None, others: Sequence[Resolved], changes: Sequence[Change], folder: str
) -> Path | None:
    """All that runs the user's code; the folder of packaged models, or None."""
    space.fresh_tree("Copying the repository")
    originals = run_originals(space, resolved)
    asked = [*([resolved] if resolved is not None else []), *others]
    models = list(zip(space.report.models, asked, strict=False))  # the report lists them first, in this order
    packaged = bool(models) and package_all(space, models, originals, folder)
    if originals:
        run_migrated(space, changes, originals)
    return space.scratch / "models" if packaged else None


def _first_report(root: Path, surveyed: Survey, changes: Sequence[Change]) -> Report:
    findings = [*surveyed.findings, *(finding for change in changes for finding in change.findings)]
    report = Report(repository=str(root), findings=list(dict.fromkeys(findings)))
    report.would_change = any(change.changed for change in changes)
    report.diff = unified_diff(changes)
    report.changes = changes
    rules = {change.path: change.rules for change in changes if change.changed}
    for script in surveyed.scripts:
        touched = sorted({script.path, *(loop.path for loop in script.loops)} & rules.keys())
        codes = sorted({code for path in touched for code in rules[path]})
        report.scripts.append(ScriptReport(path=script.path, roles=list(script.roles), rewritten=bool(touched), rules=codes))
    return report


def _resolve(
    surveyed: Survey, report: Report, entry: str | None, model: str | None, checkpoint: str | None, *, whatever: bool = False
) -> Resolved | None:
    """The model's construction; where it cannot be told, the scripts still migrate, and a finding says why. `whatever`: which
    of several it is does not matter."""
    try:
        resolved = resolve(surveyed, entry=entry, model=model, checkpoint=checkpoint)
    except (AmbiguousError, NothingToMigrateError):
        if not (whatever and surveyed.factories):
            raise
        return None
    except MigrateError as error:
        report.findings.append(Finding("", 1, 0, "PS500", str(error), "error"))
        return None
    report.findings += [finding for finding in resolved.findings if finding not in report.findings]
    report.chain = resolved.chain
    return resolved


def _undecided(surveyed: Survey, report: Report, error: AmbiguousError) -> Report:
    """The report of a preview whose model is the user's to choose: the rewrite does not depend on it."""
    message = f"{str(error).partition(chr(10))[0]} {', '.join(error.candidates)}"
    report.findings.append(Finding("", 1, 0, "PS500", message, "error"))
    _list_models(surveyed, (), report, all_models=False)
    return report


def _resolve_unrepaired(
    unrepaired: Survey, repairs: Sequence[Change], entry: str | None, model: str | None, checkpoint: str | None
) -> Resolved | None:
    """The model's construction as the repository came, to compare the repaired one with; None where it cannot be told."""
    if not repairs:
        return None
    try:
        return resolve(unrepaired, entry=entry, model=model, checkpoint=checkpoint)
    except MigrateError:  # its sources do not parse, say; the comparison's finding tells
        return None


def _other_models(surveyed: Survey, report: Report, resolved: Resolved | None, entry: str | None) -> list[Resolved]:
    """Every other model that the repository says how to build; of those that it does not, a finding each."""
    found: list[Resolved] = []
    for factory, result in resolve_all(surveyed, resolved, entry):
        if isinstance(result, Resolved):
            found.append(result)
        else:
            message = f"{factory.name} is left out: {result}"
            report.findings.append(Finding(factory.path, factory.line, 0, "PS520", message, "warning"))
    return found


def _list_models(surveyed: Survey, asked: Sequence[Resolved], report: Report, all_models: bool) -> None:
    """The resolved models first, then every other factory of the repository, recognised but not asked for."""
    for resolved in asked:
        report.models.append(ModelReport(name=resolved.name, factory=resolved.factory))
    left_out = {(item.path, item.line): item.message for item in report.findings if item.code == "PS520"}
    for factory in surveyed.factories:
        place = f"{factory.path}:{factory.line}"
        if not any(resolved.factory == place for resolved in asked):
            why = left_out.get((factory.path, factory.line)) if all_models else None
            unasked = Parity(why=why or "not asked for; --model takes another model than the script's own, --all-models all")
            report.models.append(ModelReport(name=factory.name, factory=place, parity=unasked))


def _write(
    root: Path,
    target: Path,
    changes: Sequence[Change],
    report: Report,
    models: Path | None,
    progress: Callable[[float, str], None],
) -> None:
    def finish(copied: Copied) -> dict[str, object]:
        report.findings += [
            Finding(path, 1, 0, "PS506", "too big to copy; the migrated copy links to the original", "note")
            for path in copied.linked
        ]
        report.out = str(target)
        return report.to_json()

    write_output(root, target, changes, models=models, report=finish, progress=progress)
