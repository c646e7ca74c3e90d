"""`headrace run`: a script with its models as graphs, rewritten in memory only; the files on disk stay as they are.

The rules rewrite the sources of the repository around the script, as `headrace migrate` does. This process then becomes a
Python that runs the script, with those sources in place of the files (see `zero_edit_child.py`): same arguments, folder,
environment, standard streams and exit status as `python SCRIPT ARGS...`, and no trust beyond that command's.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ...errors import MigrateError, NothingToMigrateError, SandboxError
from ...scratch import ScratchFolder
from ...trust import REMEDY, is_trusted
from ..proving.confined_run import Limits
from ..proving.sandbox import trust_repository
from ..proving.verify import compare, obstacle_in
from ..proving.verify import run_script as run_recorded
from ..reading.facts import Script, Survey
from ..reading.source import NOTEBOOK, read_source
from ..reporting.progress import Stages
from ..reporting.report import PARITY
from ..rewriting.repository_settings import read_settings
from ..rewriting.rewrite import Change, choose_rules, rewrite_all
from ..rewriting.rule import all_rules
from ..survey.survey import survey
from .migrated_copy import apply
from .migration import Migration, Options

if TYPE_CHECKING:
    from rich.console import Console

CHILD = Path(__file__).with_name("zero_edit_child.py")
_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")


def run_script(script: Path, arguments: Sequence[str], console: Console, *, trusted: bool = False) -> int:
    """Run the script with graphs; does not return where the platform can replace a process, else the script's exit status.

    Where nothing can be rewritten, says why on `console` and runs the script as it stands. Raises MigrateError when there is
    no such script, SandboxError unless it is `trusted`.
    """
    _existing(script)
    if not is_trusted(trusted):
        as_python = f"{script} would run with your rights, as python {script} does"
        raise SandboxError(f"{as_python}: {REMEDY}; headrace run --verify runs it in the sandbox")
    table = {str(path): source for path, source in _rewritten(script, console).items()}
    with tempfile.TemporaryFile(prefix="headrace-") as file:  # no name: it goes away with the process that reads it
        file.write(json.dumps(table).encode("utf-8", "surrogatepass"))
        file.flush()
        file.seek(0)
        os.set_inheritable(file.fileno(), True)
        command = [sys.executable, str(CHILD), str(file.fileno()), str(script), *arguments]
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, command)  # noqa: S606  this very interpreter


def verify_script(script: Path, arguments: Sequence[str], console: Console, *, trusted: bool = False) -> int:
    """Run the script before and after in sandboxed copies of its repository, compare outputs and prints, and say the verdict.

    0 when both agree, 4 when they differ, 2 when the script does not run in the sandbox, 1 when nothing could be rewritten.
    """
    root = _root(_existing(script))
    surveyed, changes = _changes(root)
    changed = [change for change in changes if change.changed]
    if not changed:
        _report_unchanged(console, script, surveyed, changes)
        return 1
    path = script.resolve().relative_to(root).as_posix()
    known = {item.path: item for item in surveyed.scripts if item.path == path} if surveyed is not None else {}
    found = known.get(path) or Script(path=path, roles=(), loops=surveyed.loops if surveyed is not None else ())
    assert surveyed is not None
    with ScratchFolder() as scratch, Stages(console) as stages:
        here = Path.cwd().resolve()
        options = Options(
            limits=Limits(memory_bytes=psutil.virtual_memory().total * 3 // 4, timeout=1800.0),
            trust_repository=trust_repository(trusted),
            readable=() if Path.home().resolve().is_relative_to(here) else (here,),
        )
        migration = Migration(scratch=scratch, surveyed=surveyed, options=options, stages=stages)
        migration.fresh_tree("Copying the repository")
        cwd = migration.tree / here.relative_to(root) if here.is_relative_to(root) else here
        stages.start(f"Running {path}")
        original = run_recorded(found, arguments, migration.sandbox, cwd=cwd)
        if not original.done.ok:
            message = migration.plain(f"the script does not run in the sandbox: {original.done.why}")
            console.print(f"{message}; headrace run --trust-repository runs it outside", markup=False, highlight=False)
            return 2
        migration.fresh_tree()
        apply(changes, migration.tree)
        stages.start(f"Running {path} with graphs")
        migrated = run_recorded(found, arguments, migration.sandbox, cwd=cwd)
        verdict = compare(original, migrated)
    if not migrated.done.ok and (obstacle := obstacle_in(migrated.done.stderr)) is not None:
        message = f"nothing to compare: the model cannot be captured, so the script's calls stay eager: {obstacle}"
        console.print(migration.plain(message), markup=False, highlight=False)
        return 1
    sys.stdout.write(migration.plain(migrated.done.stdout))
    if verdict.status != "passed":
        console.print(migration.plain(f"differs: {verdict.why}"), style="red", markup=False, highlight=False)
        return PARITY
    rows = sum(len(recorded.outputs) for recorded in original.sites.values())
    worst = f"{rows} recorded outputs, largest difference {verdict.max_abs:.2g}, " if verdict.max_abs is not None else ""
    note = f" ({verdict.why})" if verdict.why else ""
    console.print(f"agrees: {worst}same prints{note}", style="green", markup=False, highlight=False)
    return 0


def _existing(script: Path) -> Path:
    if not script.is_file():
        raise MigrateError(f"{script}: no such script")
    if script.suffix == NOTEBOOK:
        raise MigrateError(
            f"{script} is a notebook, which only a kernel runs as it stands; headrace migrate migrates it cell by cell, and "
            "what jupyter nbconvert --to script makes of it can be run"
        )
    return script


def _root(script: Path) -> Path:
    """The nearest folder above the script that looks like a repository, or the script's own."""
    folder = script.resolve().parent
    home = Path.home()
    for candidate in (folder, *folder.parents):
        if candidate in (home, *home.parents):
            break
        if any((candidate / mark).exists() for mark in _MARKS):
            return candidate
    return folder


def _changes(root: Path) -> tuple[Survey | None, list[Change]]:
    try:
        surveyed = survey(root)
    except NothingToMigrateError:
        return None, []
    settings = read_settings(root).with_known_codes(all_rules())
    rewritten = rewrite_all(surveyed, rules=choose_rules(settings.select, settings.ignore), unsafe=settings.unsafe)
    return rewritten.survey, rewritten.changes


def _rewritten(script: Path, console: Console) -> dict[Path, dict[str, str]]:
    """Real path of each changed file -> its text before and after."""
    root = _root(_existing(script))
    surveyed, changes = _changes(root)
    table: dict[Path, dict[str, str]] = {}
    for change in changes:
        if change.changed and change.path.endswith(".py"):
            before = read_source(root, change.path)
            if before.text is not None and before.data == change.before:
                after = change.after.decode(before.encoding).removeprefix("\ufeff")
                table[(root / change.path).resolve()] = {"before": before.text, "after": after}
    if not table:
        _report_unchanged(console, script, surveyed, changes)
    return table


def _report_unchanged(console: Console, script: Path, surveyed: Survey | None, changes: Sequence[Change]) -> None:
    reasons = [str(finding) for change in changes for finding in change.findings]
    if surveyed is None:
        reasons = ["no PyTorch image classification was found around it"]
    elif not reasons:
        reasons = [str(finding) for finding in surveyed.errors] or ["no call of a model was found that a graph could answer"]
    console.print(f"headrace: {script} runs as it stands, without graphs:", highlight=False, markup=False)
    for reason in reasons[:20]:
        console.print(f"  {reason}", highlight=False, markup=False)
