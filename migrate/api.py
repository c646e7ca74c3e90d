"""Migrate a repository, stage by stage: survey, resolve, rewrite, run, trace, package, prove, report."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from ..errors import AmbiguousError, MigrateError, NothingToMigrateError
from ..scratch import ScratchFolder
from .proving.confined_run import Limits, patience
from .proving.sandbox import trust_repository as may_run
from .proving.worker_pool import WorkerPool
from .reading.facts import Factory, Survey
from .reading.finding import Finding
from .reading.source import SourceFile
from .reporting.cell_locations import locate_in_cells
from .reporting.checkpoint_report import report_checkpoints, warn_of_pickles
from .reporting.progress import Stages
from .reporting.report import ModelReport, Parity, PreprocessingReport, Report, ScriptReport
from .resolving.resolve import resolve
from .resolving.resolved import Resolved
from .rewriting.plugins import choose_settings
from .rewriting.rewrite import Change, Rewritten, rewrite_all, rewritten_scripts, unified_diff
from .stages.all_models import package_all, resolve_all, split_models
from .stages.archive_folder import is_archive, unpacked
from .stages.copy_tree import Copied
from .stages.in_place import write_if_proved
from .stages.journal import interrupted, models_in_place, recover
from .stages.left_eager import run_or_leave_eager
from .stages.migrated_copy import check_output, models_folder, record_repository, recover_output, write_output
from .stages.migration import Migration, Options
from .stages.package_model import ModelOutcome, note_weights
from .stages.reached_by_run import unread_classes, with_reached
from .stages.rehearse_model import ready_to_run, rehearse_model
from .stages.scripts.migrated import ScriptOutcome
from .stages.scripts.originals import run_originals
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
    random_weights: bool = False,
    task: str = "",
    data: str | os.PathLike[str] | None = None,
    precision: str = "auto",
    budget: float | None = None,
    device: str = "auto",
    tuning_seconds: float | None = None,
    verify: bool = True,
    scripts: bool = True,
    planned: bool = True,
    full: bool = False,
    parallel: bool = False,
    check: bool = False,
    trust_checkpoint: bool = False,
    trust_repository: bool = False,
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
    models go to `.headrace/models`. With neither it is a preview: the diff, the findings and the model, in seconds; nothing is
    packaged, proved or written. A model is packaged with weights that are the user's; random ones only with `random_weights`.
    `model` may name several, separated by commas; `all_models` packages every one that the repository says how to build.
    The scripts are compared on slices of their data sets; `full` takes the whole. With `parallel` those that train by
    DistributedDataParallel or DataParallel become programs over global tensors, and are compared on 2 ranks.
    Without `scripts` only the packages are
    wanted: no migrated script is run or written. Not `planned`, they hold the portable graph, proved against the model, and no
    plan.
    `task` says what the outputs are where that is ambiguous: "multi-label:0.3", "embedding", "single-label,multi-label".
    `check` stops after the rewrite. `input_size` is (channels, height, width). The model is planned for the `device` "cpu",
    "cuda", or "auto", where the script puts it; the fastest backend is sought for `tuning_seconds`, by default 30, for a GPU
    240. `select` and `ignore` are rule codes or beginnings of them, `rules` files with rules of your own, which
    run in this process; `trust_rules` also runs those that the repository's pyproject.toml names. The repository's code only
    runs in subprocesses of at most `timeout` seconds (up to three times as much where the machine does other work) and
    `memory_bytes` (three quarters of the machine's by default). `console` shows progress. Where the machine cannot isolate
    them, only `trust_repository` has them run, with the caller's rights.

    `repository` may also be a model archive of TorchServe (.mar): it is unpacked aside, and its handler is the `entry`.

    What goes wrong inside the repository is a finding of the report; raises AmbiguousError where a choice is yours (with the
    report of what it does not touch; nothing is written), NothingToMigrateError where there is no PyTorch, MigrateError where
    `repository` or `out` cannot be used.
    """
    root = Path(repository).resolve()
    if is_archive(root):
        given = {name: value for name, value in locals().items() if name not in ("root", "repository", "entry", "write")}
        return _archive(root, write=write, entry=entry, **given)
    target = Path(out) if out is not None else None
    if target is not None and write:
        raise MigrateError("--out writes a copy and --write the repository itself; choose one")
    if all_models and model is not None:
        raise ValueError("give model or all_models, not both")
    unfinished = None
    if target is not None:
        unfinished = recover_output(target)
        check_output(root, target)
    half_done = recover(root) if write else interrupted(root)
    files = [Path(file) for file in rules]
    asked_for = ["parallel"] if parallel else []
    settings, chosen, remarks = choose_settings(
        root, select=select, ignore=ignore, files=files, trusted=trust_rules, options=asked_for
    )  # fmt: skip
    if half_done:
        was = "was taken back first" if write else "left these files half done; headrace undo puts them in order"
        remarks.append(Finding("", 1, 0, "PS510", f"an interrupted --write {was}: {', '.join(half_done)}", "note"))
    if unfinished is not None:
        remarks.append(Finding("", 1, 0, "PS510", unfinished, "note"))
    limits = Limits(timeout=timeout * patience(), memory_bytes=memory_bytes or psutil.virtual_memory().total * 3 // 4)
    weights = str(Path(checkpoint).resolve()) if checkpoint is not None else None
    options = Options(
        input_size=input_size or settings.input_size,
        checkpoint=weights,
        random_weights=random_weights,
        task=task,
        data=Path(data).resolve() if data is not None else None,
        precision=precision,
        budget=budget,
        device=device,
        tuning_seconds=tuning_seconds,
        verify=verify,
        scripts=scripts,
        planned=planned,
        full=full,
        preview=target is None and not write,
        trusted=trust_checkpoint,
        readable=tuple(Path(path).resolve() for path in (checkpoint, data) if path is not None),
        limits=limits,
    )
    with Stages(console) as stages, contextlib.ExitStack() as opened:
        scratch = opened.enter_context(ScratchFolder())
        runs = None
        if not check:
            options = replace(options, trust_repository=may_run(trust_repository))
            runs = opened.enter_context(ready_to_run(options, scratch))
        unrepaired = survey(root, progress=stages.start("Reading the sources"))
        apply_rules = partial(rewrite_all, unrepaired, rules=chosen, unsafe=unsafe or settings.unsafe)
        rewriting = apply_rules()
        surveyed = rewriting.survey
        changes: Sequence[Change] = rewriting.changes
        rewritten = rewritten_scripts(surveyed, changes)
        report = _first_report(root, surveyed, changes, rewritten)
        _add_findings(report, remarks)
        entry = entry or settings.entry
        model = model or (settings.model if not all_models else None)
        first, *more = split_models(model) if model is not None else [None]
        static = _resolve(surveyed, entry, first, weights)
        if check:
            if isinstance(static, AmbiguousError):
                static.report = _undecided(surveyed, report, static)
                locate_in_cells(report, unrepaired)
            if isinstance(static, AmbiguousError | NothingToMigrateError) and not (all_models and surveyed.factories):
                raise static
            _note_resolved(report, static)
            named = [resolve(surveyed, entry=entry, model=name, checkpoint=weights) for name in more]
            _list_models(surveyed, [*([static] if isinstance(static, Resolved) else []), *named], report, {})
            locate_in_cells(report, unrepaired)
            return report
        migration = Migration(
            scratch=scratch,
            surveyed=surveyed,
            options=options,
            stages=stages,
            leave_out=(target,) if target is not None else (),
            repairs=rewriting.repairs,
            unrepaired=_resolve_unrepaired(unrepaired, rewriting.repairs, entry, first, weights),
            runs=runs,
            rewritten=rewritten,
        )
        folder = models_folder(root) if not write else models_in_place(root).relative_to(root).as_posix()
        models: Path | None = None
        try:
            resolved = _taken_or_read(migration, static, entry, first)
            if runs is not None:
                runs.close()
            if weights is None and isinstance(resolved, Resolved) and resolved.recipe.checkpoint is not None:
                migration = migration.given(Path(resolved.recipe.checkpoint))
            if isinstance(resolved, AmbiguousError | NothingToMigrateError) and not (all_models and surveyed.factories):
                raise resolved
            if isinstance(resolved, Resolved):
                if seen := unread_classes(surveyed, resolved):
                    apply_rules = partial(apply_rules, seen=seen)
                    rewriting = apply_rules()
                    surveyed, changes = rewriting.survey, rewriting.changes
                    migration = replace(migration, surveyed=surveyed, rewritten=rewritten_scripts(surveyed, changes))
                migration, resolved = with_reached(migration, resolved, changes)
                surveyed = migration.surveyed
                _list_scripts(report, surveyed, changes, migration.rewritten)
            _note_resolved(report, resolved)
            asked = [resolved] if isinstance(resolved, Resolved) else []
            asked += [resolve(surveyed, entry=entry, model=name, checkpoint=weights) for name in more]
            left_out: dict[Factory, str] = {}
            if all_models:
                stages.start("Following every model to its construction")
                others, left_out = _other_models(surveyed, asked[0] if asked else None, entry)
                asked += others
                _add_findings(report, _findings_of(left_out))
            _list_models(surveyed, asked, report, left_out)
            if target is not None or write:
                models, changes = _try_everything(migration, report, asked, changes, folder, apply_rules)
        except AmbiguousError as error:
            error.report = _undecided(surveyed, report, error, migration.findings)
            locate_in_cells(report, unrepaired)
            raise
        if target is None and not write:
            for found in asked:
                if found.recipe.live is not None:
                    note_weights(migration, found)
            _add_findings(report, migration.findings)
            locate_in_cells(report, unrepaired)
            return report
        locate_in_cells(report, unrepaired)
        if write:
            stages.start("Writing in place")
            placed = write_if_proved(root, changes, report, models)
            report.written, report.blocked = placed.written, placed.blocked
            _add_findings(report, placed.findings)
        elif target is not None:
            progress = stages.start("Writing the migrated copy" if scripts else "Writing the package")
            _write(root, target, changes if scripts else None, report, models, unrepaired.files, progress)
    return report


def _archive(archive: Path, *, write: bool, entry: str | None, **asked: Any) -> Report:
    """Migrate what a model archive holds, from its handler on; the archive itself stays as it is."""
    if write:
        raise MigrateError(f"{archive} is a model archive, which --write does not change; --out DIR writes a migrated copy")
    with ScratchFolder() as scratch:
        folder = scratch / (archive.name.partition(".")[0] or "archive")
        handler = unpacked(archive, folder)
        report = migrate(folder, entry=entry or handler, **asked)
        report.repository = str(archive)
        if report.out is not None:
            record_repository(Path(report.out), archive)
        return report


def _try_everything(
    migration: Migration,
    report: Report,
    asked: Sequence[Resolved],
    changes: Sequence[Change],
    folder: str,
    apply_rules: Callable[..., Rewritten],
) -> tuple[Path | None, Sequence[Change]]:
    """All that runs the user's code, noted in the report; the folder of packaged models, or None, and the changes that stay."""
    migration.fresh_tree("Copying the repository")
    originals = run_originals(migration, asked[0] if asked else None)
    outcomes: list[ModelOutcome] = []
    if asked:
        with WorkerPool(migration.sandbox) as pool:
            pool.start()  # it loads torch while the preprocessing is traced
            outcomes = package_all(replace(migration, pool=pool), asked, originals, folder)
    scripts: Mapping[str, ScriptOutcome] = {}
    if migration.options.scripts:
        migrated = run_or_leave_eager(
            migration, changes, originals, asked, outcomes, lambda eager: apply_rules(eager=eager)
        )  # fmt: skip
        _note_changes(report, migrated.changes, migrated.rewritten)
        changes, scripts = migrated.changes, migrated.outcomes
    report.models[: len(outcomes)] = [outcome.model for outcome in outcomes]  # they are listed first, in this order
    for outcome in outcomes:
        _add_model(report, outcome)
    if outcomes and (loaded := outcomes[0].weights_loaded) is not None:
        found = migration.options.found
        report_checkpoints(report, migration.surveyed, asked[0], loaded=loaded, asked=not found)
    for entry in report.scripts:
        entry.why = originals.why_not.get(entry.path)
        if entry.path in scripts:
            _add_script(report, entry, scripts[entry.path])
    _add_findings(report, migration.findings)
    warn_of_pickles(report)
    return migration.sandbox.models if any(outcome.packaged for outcome in outcomes) else None, changes


def _add_model(report: Report, outcome: ModelOutcome) -> None:
    if outcome.preprocessing is not None:
        source, steps = outcome.preprocessing.source, outcome.preprocessing.to_json()["steps"]
        same = [item for item in report.preprocessing if (item.source, item.steps) == (source, steps)]
        if not same:
            same = [PreprocessingReport(source=source, for_models=[], steps=steps)]
            report.preprocessing += same
        same[0].for_models.append(outcome.model.name)


def _add_script(report: Report, entry: ScriptReport, outcome: ScriptOutcome) -> None:
    entry.executed, entry.why, entry.loss_trace = outcome.status, outcome.why, outcome.loss_trace
    entry.executed_on, entry.standins = outcome.executed_on, [dataclasses.asdict(item) for item in outcome.standins]
    entry.up_to, entry.only_prints = outcome.up_to, outcome.only_prints
    report.parity_failed |= outcome.parity_failed
    report.agreements += outcome.agreements
    report.losses += outcome.losses


def _add_findings(report: Report, findings: Iterable[Finding]) -> None:
    report.findings = list(dict.fromkeys([*report.findings, *findings]))


def _first_report(root: Path, surveyed: Survey, changes: Sequence[Change], rewritten: Mapping[str, Sequence[str]]) -> Report:
    report = Report(repository=str(root))
    _add_findings(report, surveyed.findings)
    _list_scripts(report, surveyed, changes, rewritten)
    return report


def _list_scripts(report: Report, surveyed: Survey, changes: Sequence[Change], rewritten: Mapping[str, Sequence[str]]) -> None:
    report.scripts = [ScriptReport(path=script.path, roles=list(script.roles)) for script in surveyed.scripts]
    _note_changes(report, changes, rewritten)


def _note_changes(report: Report, changes: Sequence[Change], rewritten: Mapping[str, Sequence[str]]) -> None:
    """What the rules change and remark, in place of what was noted of that before."""
    before = {finding for change in report.changes for finding in change.findings}
    report.findings = [finding for finding in report.findings if finding not in before]
    _add_findings(report, [finding for change in changes for finding in change.findings])
    report.would_change = any(change.changed for change in changes)
    report.diff = unified_diff(changes)
    report.changes = changes
    for script in report.scripts:
        script.rewritten, script.rules = script.path in rewritten, list(rewritten.get(script.path, ()))


def _resolve(surveyed: Survey, entry: str | None, model: str | None, checkpoint: str | None) -> Resolved | MigrateError:
    """The model's construction as the sources state it, or why it cannot be told from them."""
    try:
        return resolve(surveyed, entry=entry, model=model, checkpoint=checkpoint)
    except MigrateError as error:
        return error


def _taken_or_read(
    migration: Migration, static: Resolved | MigrateError, entry: str | None, model: str | None
) -> Resolved | MigrateError:
    """The model that a script calls when it is run; where none comes to that, what its sources state."""
    taken = rehearse_model(migration, static, entry=entry, model=model)
    if isinstance(taken, Resolved):
        return taken
    if isinstance(static, NothingToMigrateError) and taken:
        reasons = "; ".join(f"{finding.where}: {finding.message}" for finding in taken)
        return MigrateError(f"no model was found in the sources, nor by running them: {reasons}")
    return static


def _note_resolved(report: Report, found: Resolved | MigrateError) -> None:
    """The way to the model; where it cannot be told, the scripts still migrate, and a finding says why."""
    if isinstance(found, Resolved):
        _add_findings(report, found.findings)
        report.chain = found.chain
    elif not isinstance(found, AmbiguousError | NothingToMigrateError):
        _add_findings(report, [Finding("", 1, 0, "PS500", str(found), "error")])


def _undecided(surveyed: Survey, report: Report, error: AmbiguousError, found: Sequence[Finding] = ()) -> Report:
    """The report of a run that ends where something is the user's to choose: neither the rewrite nor what was `found` on the
    way depends on it, and it often says why there is a choice at all."""
    message = f"{str(error).partition(chr(10))[0]} {', '.join(error.candidates)}"
    _add_findings(report, [*found, Finding("", 1, 0, "PS500", message, "error")])
    report.models = []
    _list_models(surveyed, (), report, {})
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


def _other_models(surveyed: Survey, main: Resolved | None, entry: str | None) -> tuple[list[Resolved], dict[Factory, str]]:
    """Every other model that the repository says how to build, and why it does not of the others."""
    found = list(resolve_all(surveyed, main, entry))
    left_out = {factory: result for factory, result in found if isinstance(result, str)}
    return [result for _, result in found if isinstance(result, Resolved)], left_out


def _findings_of(left_out: Mapping[Factory, str]) -> Iterator[Finding]:
    for factory, why in left_out.items():
        yield Finding(factory.path, factory.line, 0, "PS520", f"{factory.name} is left out: {why}", "warning")


def _list_models(surveyed: Survey, asked: Sequence[Resolved], report: Report, left_out: Mapping[Factory, str]) -> None:
    """The resolved models first, then every other factory of the repository, recognised but not asked for."""
    for resolved in asked:
        live = resolved.recipe.live
        size = list(live.row) if live is not None else None
        report.models.append(
            ModelReport(
                name=resolved.name, factory=resolved.factory, input=size, classes=resolved.classes, built=live is not None
            )
        )
    for factory in surveyed.factories:
        place = f"{factory.path}:{factory.line}"
        if not any(resolved.factory == place for resolved in asked):
            why = "not asked for; --model takes another model than the script's own, --all-models all"
            if factory in left_out:
                why = f"{factory.name} is left out: {left_out[factory]}"
            report.models.append(ModelReport(name=factory.name, factory=place, parity=Parity(why=why)))


def _write(
    root: Path,
    target: Path,
    changes: Sequence[Change] | None,
    report: Report,
    models: Path | None,
    read: Sequence[SourceFile],
    progress: Callable[[float, str], None],
) -> None:
    def finish(copied: Copied) -> dict[str, object]:
        report.findings += [
            Finding(path, 1, 0, "PS506", "too big to copy; the migrated copy links to the original", "note")
            for path in copied.linked
        ]
        closed = "this user may not read it, so it is not in the migrated copy"
        report.findings += [Finding(path, 1, 0, "PS003", closed, "warning") for path in copied.unreadable]
        report.out = str(target)
        return report.to_json()

    write_output(root, target, changes, models=models, report=finish, read=read, progress=progress)
