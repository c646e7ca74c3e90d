"""The scratch folder of one migration, and what all its stages share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...scratch import remove_tree
from ..proving.confined_run import Limits
from ..proving.sandbox import Sandbox
from ..proving.trace_transform import Traced
from ..proving.worker_pool import WorkerPool
from ..reading.facts import Survey
from ..reading.finding import Finding, Severity
from ..reading.recipe import TransformRecipe
from ..reporting.progress import Stages
from ..resolving.resolved import Resolved
from ..rewriting.rewrite import Change
from ..survey.pointers import pointers
from .copy_tree import HUGE_BYTES, copy_tree
from .kept_copy import KeptCopy
from .migrated_copy import apply

TRIAL_BYTES = 2**30
"""More data than this is linked, not copied, for a run that can only read what lies outside its own folders."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the caller asked for, as given to `migrate`."""

    input_size: tuple[int, int, int] | None = None
    checkpoint: str | None = None
    found: bool = False
    """Whether that is a file of the repository in which a script saves its model, and nobody gave it."""
    random_weights: bool = False
    task: str = ""
    data: Path | None = None
    precision: str = "auto"
    budget: float | None = None
    device: str = "auto"
    tuning_seconds: float | None = None
    verify: bool = True
    scripts: bool = True
    """Whether the migrated scripts are wanted, not the packages alone."""
    planned: bool = True
    """Whether the packages get a measured plan."""
    full: bool = False
    """Whether the scripts run on whole data sets, not on slices of them."""
    preview: bool = False
    """Whether nothing is packaged, proved or written: what is found is wanted in seconds."""
    trusted: bool = False
    trust_repository: bool = False
    readable: tuple[Path, ...] = ()
    """What the user's code may read beside the copy of its repository."""
    limits: Limits = field(default_factory=Limits)

    def sandbox(self, scratch: Path, linked: Sequence[Path] = ()) -> Sandbox:
        """Where the user's code runs that may also read what is `linked` in its copy."""
        return Sandbox(
            scratch=scratch, limits=self.limits, trusted=self.trusted, trust_repository=self.trust_repository,
            readable=(*self.readable, *linked), checkpoint=Path(self.checkpoint) if self.checkpoint is not None else None,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Migration:
    """One migration: where it works, what it knows, what it remarks. The user's code sees only the copy in `tree`."""

    scratch: Path
    surveyed: Survey
    options: Options
    stages: Stages
    leave_out: tuple[Path, ...] = ()
    repairs: Sequence[Change] = ()
    """What the copy has repaired, since the survey read it so."""
    unrepaired: Resolved | None = None
    """How the repository as it came builds the model, where there are repairs and it can be told."""
    pool: WorkerPool | None = None
    """Answers the worker's requests where there are many."""
    runs: WorkerPool | None = None
    """Runs the scripts that are to show their models, with torch loaded while the sources were read."""
    rewritten: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Script -> the rules that changed code which it is or calls; those that no rule touched are left out."""
    stood_in: dict[str, frozenset[str]] = field(default_factory=dict)
    """Script -> the edges of its world at which something stood in when it was run to see its model."""
    asked: set[str] = field(default_factory=set)
    """Scripts whose routes, those of Flask or FastAPI, were asked about an image when they were run to see their models."""
    stopped: dict[str, str] = field(default_factory=dict)
    """Script -> what stopped it before it called a model, and what to do about that."""
    told: dict[str, Sequence[str]] = field(default_factory=dict)
    """Script -> the documented arguments with which it ran, where others stopped it."""
    traced: dict[tuple[TransformRecipe, Traced | None], Traced | None] = field(default_factory=dict)
    """What transforms were found to do, once for all models of one repository."""
    kept: dict[Path, KeptCopy] = field(default_factory=dict)
    """The copy in `tree`, where there is one."""
    linked: list[Path] = field(default_factory=list)
    """What of the repository was too big to copy, and is read where it lies."""
    findings: list[Finding] = field(default_factory=list)
    """What the stages remarked, for the report alone: what a stage did is in its outcome."""

    @property
    def tree(self) -> Path:
        return self.scratch / "repository"

    @property
    def sandbox(self) -> Sandbox:
        """Where the user's code runs."""
        if self.pool is not None:
            return self.pool.sandbox
        return self.options.sandbox(self.scratch, self.linked)

    def given(self, checkpoint: Path) -> Migration:
        """The same migration as if the user had given this checkpoint."""
        readable = (*self.options.readable, checkpoint)
        options = replace(self.options, checkpoint=str(checkpoint), found=True, readable=readable)
        return replace(self, options=options)

    def within(self, seconds: float) -> Migration:
        """The same migration whose runs end after so many seconds, where its limit is not lower anyway."""
        limits = replace(self.options.limits, timeout=min(self.options.limits.timeout, seconds))
        return replace(self, options=replace(self.options, limits=limits))

    def fresh_tree(self, title: str | None = None) -> None:
        """Have a copy of the repository that nothing ran in, repaired; always at the same path, which scripts may print."""
        progress = self.stages.start(title) if title is not None else None
        kept = self.kept.get(self.tree)
        if kept is None or not kept.restore():
            self.tree.mkdir(exist_ok=True)  # it stays: a pool may write to this folder and to none that comes in its place
            self.tree.chmod(0o700)
            for left in self.tree.iterdir():
                remove_tree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
            self.copy_to(self.tree, progress)
            self.kept[self.tree] = KeptCopy(self.surveyed.root.resolve(), self.tree)
        apply(self.repairs, self.tree)

    def copy_to(self, place: Path, progress: Callable[[float, str], None] | None = None) -> None:
        """A copy of the repository as it came, without pointers to what is not here."""
        huge = HUGE_BYTES if self.options.trust_repository else TRIAL_BYTES
        root = self.surveyed.root
        leave_out = (*self.leave_out, *(root / path for path, _ in pointers(root)))
        copied = copy_tree(root, place, leave_out=leave_out, with_git=False, huge=huge, progress=progress)
        for path in copied.leading_out if not self.options.trust_repository else ():
            message = (
                "leads out of the repository, where its code cannot read in the trial runs; --data FOLDER lets it read FOLDER"
            )
            self.remark("PS506", message, "note", path)
        for path in copied.unreadable:
            self.remark("PS003", "this user may not read it, so it is left out of the trial runs", "warning", path)
        self.linked[:] = [root / path for path in copied.linked]
        for path in copied.linked:
            self.remark("PS506", "too big to copy; the trial runs read the original", "note", path)

    def plain(self, text: str) -> str:
        """A text of the user's code without the place where the copy happens to lie."""
        for folder in (self.tree.resolve(), self.tree):
            text = text.replace(f"{folder}/", "").replace(str(folder), ".")
        for scratch in (self.scratch.resolve(), self.scratch):
            text = re.sub(rf"{re.escape(str(scratch))}/((writable|readable)-[^/\s]+/|cache/rehearsals/[0-9a-f]+/)*", "", text)
        return text

    def remark(self, code: str, message: str, severity: Severity, where: str = "") -> Finding:
        """Add a finding once, and return it. `where` is "path:line", a path, or empty for the whole repository."""
        where, message = self.plain(where), self.plain(message)
        path, _, line = where.rpartition(":")
        if not path or not line.isdigit():
            path, line = where, "1"
        finding = Finding(path, int(line), 0, code, message, severity)
        if finding not in self.findings:
            self.findings.append(finding)
        return finding
