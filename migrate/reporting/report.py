"""The report: what was recognised, rewritten, executed, proved and packaged, and what stands in the way. Never one percentage.

`to_json` is the stable form (schema 1, see docs); the terminal is a view of it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..reading.finding import Finding
from ..resolving.resolved import ChainStep

if TYPE_CHECKING:
    from ..proving.measurements import Agreement, Losses
    from ..proving.worker_protocol import Duel
    from ..rewriting.rewrite import Change

SCHEMA = 1
FINDINGS, ERRORS, PARITY = 1, 2, 4
Outcome = Literal["passed", "failed", "not-run"]
ExecutedOn = Literal["your data", "stand-in data"]
_OTHERS = 0.1
"""A larger share of the machine for other programs makes two times incomparable,"""
_TURNS = 3
_SCATTER = 1.5
"""and so do fewer turns, or turns of which the better half lies so many times apart from the worse."""


@dataclass(kw_only=True)
class Parity:
    """Whether the packaged graph computes what the user's model computes."""

    status: Outcome = "not-run"
    max_abs: float | None = None
    top1_agreement: float | None = None
    decision_agreement: float | None = None
    """Of several labels, the share of those above their thresholds that are so in both."""
    cosine: float | None = None
    """Of embeddings, the lowest."""
    batches: list[int] = field(default_factory=list)
    why: str | None = None

    @property
    def agreement(self) -> float | None:
        """In what the outputs are for: the best class, the labels that hold, or the direction."""
        shares = (self.top1_agreement, self.decision_agreement, self.cosine)
        return next((share for share in shares if share is not None), None)


@dataclass(kw_only=True)
class Speedup:
    """Milliseconds per call (medians) at one batch size, of the model in eager fp32 and of what the plan chose.

    Both were measured in turns. `ratio` is how many times faster the choice is, and half of the turns lie between `ratio_low`
    and `ratio_high`, so that only `ratio_low` above 1 says faster.
    """

    batch: int
    eager_ms: float
    graph_ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    chosen: str

    @classmethod
    def of(cls, duel: Duel) -> Speedup | str:
        """What a duel tells, or why nobody should believe it."""
        turns = sorted(before / after for before, after in zip(duel.eager, duel.graph, strict=False) if after > 0)
        if duel.others > _OTHERS:
            return f"other programs took {duel.others:.0%} of the machine while it was measured"
        if len(turns) < _TURNS:
            return f"it could be measured {len(turns)} times only"
        low, _, high = statistics.quantiles(turns, n=4, method="inclusive")
        before, after = (1000 * statistics.median(times) for times in (duel.eager, duel.graph))
        ratio = before / after
        low, high = min(low, ratio), max(high, ratio)
        if high > _SCATTER * low:
            return f"from turn to turn it was {low:.2f} to {high:.2f} times as fast"
        return cls(
            batch=duel.batch, eager_ms=round(before, 4), graph_ms=round(after, 4), ratio=round(ratio, 3),
            ratio_low=round(low, 3), ratio_high=round(high, 3), chosen=duel.chosen,
        )  # fmt: skip


@dataclass(kw_only=True)
class ModelReport:
    """One model of the repository. `input` is (channels, height, width); `artifact` is relative to the output folder."""

    name: str
    factory: str | None = None
    input: list[int] | None = None
    classes: int | None = None
    recognised: bool = True
    built: bool = False
    random_weights: bool = False
    """Whether its weights are nobody's: drawn at random by its constructor."""
    captured: bool = False
    parity: Parity = field(default_factory=Parity)
    outputs: list[str] = field(default_factory=list)
    """What each output of the package is."""
    artifact: str | None = None
    served: bool = False
    speed: list[Speedup] = field(default_factory=list)
    speed_unknown: str | None = None
    """Why no speed is told where it was measured."""


@dataclass(kw_only=True)
class LossTrace:
    """The losses of the first training steps of original and migrated script, compared; `max_relative` None: not finite."""

    status: Outcome
    steps: int
    max_relative: float | None
    tolerance: float
    ranks: int = 1
    """Processes on which the migrated script ran."""


@dataclass(kw_only=True)
class ScriptReport:
    """One script. `rewritten` is true when it is, or calls, code that a rule changed."""

    path: str
    roles: list[str]
    rewritten: bool = False
    rules: list[str] = field(default_factory=list)
    executed: Outcome = "not-run"
    executed_on: ExecutedOn | None = None
    """Whose data the original and the migrated script read, where both were run."""
    standins: list[dict[str, Any]] = field(default_factory=list)
    """What stood in for what while they ran: edge, what, where."""
    why: str | None = None
    loss_trace: LossTrace | None = None
    """For a script that trains, where its loop was rewritten and could be run."""
    up_to: str | None = None
    """Where the same error stopped the script before and after: what comes behind was not compared."""
    only_prints: bool = False
    """Whether nothing but what it prints could be compared."""

    @property
    def told(self) -> str:
        """The outcome in words: one word for all would say too much."""
        if self.executed == "not-run" or self.executed_on is None:
            return "not executed" if self.executed == "not-run" else self.executed
        part = f" up to {self.up_to}" if self.up_to is not None else ""
        ranks = f", {self.loss_trace.ranks} ranks" if self.loss_trace is not None and self.loss_trace.ranks > 1 else ""
        prints = " by what it prints alone" if self.only_prints else ""
        return f"{self.executed}{prints}, executed on {self.executed_on}{ranks}{part}"


@dataclass(kw_only=True)
class PreprocessingReport:
    """A recovered preprocessing, where it was written, and the models it is for."""

    source: str
    for_models: list[str]
    steps: list[dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        return {"source": self.source, "for": self.for_models, "steps": self.steps}


@dataclass(kw_only=True)
class CheckpointReport:
    """One `torch.load` of the repository, and whether its file was there and loaded."""

    source: str
    path: str
    key: str | None = None
    strip: str | None = None
    loaded: bool = False
    why: str | None = None


@dataclass(kw_only=True)
class Report:
    """Everything one migration found and did.

    `diff`, `chain`, `changes`, `agreements` and `losses` are for people and not part of the JSON form. `written`
    names the files that --write changed in place, and `blocked` says why it changed none.
    """

    repository: str
    models: list[ModelReport] = field(default_factory=list)
    scripts: list[ScriptReport] = field(default_factory=list)
    preprocessing: list[PreprocessingReport] = field(default_factory=list)
    checkpoints: list[CheckpointReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    out: str | None = None
    would_change: bool = False
    diff: str = ""
    chain: tuple[ChainStep, ...] = ()
    changes: Sequence[Change] = ()
    agreements: list[Agreement] = field(default_factory=list)
    losses: list[Losses] = field(default_factory=list)
    parity_failed: bool = False
    written: list[str] | None = None
    blocked: str | None = None

    @property
    def exit_status(self) -> int:
        """1: warnings, or something would change and was not written; 2: errors; 4: parity failed. They add up.

        What a rule put right is no warning and no error any more."""
        severities = {finding.severity for finding in self.findings if finding.fix != "applied"}
        status = FINDINGS if "warning" in severities or (self.would_change and self.out is None and self.written is None) else 0
        if "error" in severities:
            status |= ERRORS
        if self.parity_failed or any(model.parity.status == "failed" for model in self.models):
            status |= PARITY
        return status

    def scores(self) -> dict[str, list[int]]:
        """[how many, of how many]; what was not tried is not counted as tried."""
        tried = [script for script in self.scripts if script.executed != "not-run"]
        proved = [model for model in self.models if model.parity.status != "not-run"]
        timed = [model for model in self.models if model.speed]
        return {
            "recognised": [sum(model.recognised for model in self.models), len(self.models)],
            "rewritten": [sum(script.rewritten for script in self.scripts), len(self.scripts)],
            "executed": [sum(script.executed == "passed" and script.up_to is None for script in tried), len(tried)],
            "parity_passed": [sum(model.parity.status == "passed" for model in proved), len(proved)],
            "faster": [sum(any(one.ratio_low > 1 for one in model.speed) for model in timed), len(timed)],
        }

    def to_json(self) -> dict[str, Any]:
        """The stable form, described in docs; raises nothing and holds only JSON values."""
        return {
            "schema": SCHEMA,
            "repository": self.repository,
            "exit_status": self.exit_status,
            "models": [asdict(model) for model in self.models],
            "scripts": [asdict(script) for script in self.scripts],
            "preprocessing": [entry.to_json() for entry in self.preprocessing],
            "checkpoints": [asdict(checkpoint) for checkpoint in self.checkpoints],
            "findings": [finding.to_json() for finding in sorted(self.findings)],
            "scores": self.scores(),
        }
