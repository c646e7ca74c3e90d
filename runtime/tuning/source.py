"""The one way from a captured program, or from the portable graph alone, to the files of each candidate, choice and form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...specs import Precision, Signature
from .. import backends
from ..artifact.plan import Choice, Plan
from ..backends import Backend
from ..base.calibration import Calibration
from ..base.passes import PassRecord
from ..base.session import Target
from ..base.task import Task
from ..capture.capture import CapturedGraph
from ..lowering.portable import PortableGraph
from ..passes import run_passes
from .judging_data import JudgingData
from .prediction import Work, work_of
from .reference import Reference, make_reference

Lowered = dict[tuple[str, Precision], tuple[PassRecord, ...]]


class Source(ABC):
    """What `tune` makes candidates of, and what it holds them to. It remembers what the lowering passes did for each."""

    signature: Signature
    task: Task
    disabled: tuple[str, ...]
    passes: tuple[PassRecord, ...]
    lowered: Lowered

    @abstractmethod
    def reference(self, target: Target, *, rows: int, judging: JudgingData, seconds: float) -> Reference:
        """What candidates must compute; see `make_reference`."""

    @abstractmethod
    def graph_for(self, backend: Backend, calibration: Calibration | None) -> CapturedGraph | PortableGraph | None:
        """What that backend's `prepare` gets; None when it cannot be prepared from here."""

    @abstractmethod
    def work(self) -> Work:
        """What the graph has to compute."""

    def why_not(self, choice: Choice) -> str:
        """Why the choice cannot be prepared from here; empty when it can."""
        if off := [name for name in choice.precision.passes if name in self.disabled]:
            return f"{choice.precision} needs the pass {off[0]}, which disable_passes turns off"
        if self.graph_for(backends.get(choice.backend), None) is None:
            return f"{choice.backend} needs the model itself, which an artifact does not hold"
        return ""

    def prepare(self, choice: Choice, target: Target, directory: Path, calibration: Calibration | None = None) -> Choice:
        """The choice with its files, which are written into the directory unless they are there. Raises BackendError."""
        backend = backends.get(choice.backend)
        graph = self.graph_for(backend, calibration)
        assert graph is not None, "`why_not` was asked before"
        records: list[PassRecord] = []
        files = tuple(backend.prepare(graph, target, directory, records))
        if records:
            self.lowered[choice.backend, choice.precision] = tuple(records)
        return replace(choice, files=files)

    def prepare_all(self, plan: Plan, directory: Path, *, calibration: Calibration | None = None, again: bool = True) -> Plan:
        """The plan with files for its choices; without `again`, those that are in the directory already stay as they are."""
        ready: dict[Choice, Choice] = {}
        # Eager first: inductor may leave guards of its own in the program that it was given.
        for choice in sorted(set(plan.choices.values()), key=lambda choice: choice.backend):
            there = not again and choice.files and all((directory / name).exists() for name in choice.files)
            target = choice.target(plan.device, plan.threads)
            ready[choice] = choice if there else self.prepare(choice, target, directory, calibration)
        return replace(plan, choices={bucket: ready[choice] for bucket, choice in plan.choices.items()})

    def records(self, plan: Plan) -> tuple[PassRecord, ...]:
        """What the passes did to the graph, and then for each of the plan's choices."""
        chosen = dict.fromkeys((choice.backend, choice.precision) for choice in plan.choices.values())
        return (*self.passes, *(record for key in chosen for record in self.lowered.get(key, ())))


@dataclass(frozen=True)
class CapturedSource(Source):
    """`captured` is the reference and what eager runs; every other backend gets `optimized`."""

    captured: CapturedGraph
    optimized: CapturedGraph
    passes: tuple[PassRecord, ...] = ()
    lowered: Lowered = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, captured: CapturedGraph) -> CapturedSource:
        """With all passes but those that the graph has disabled."""
        optimized, records = run_passes(captured)
        return cls(captured, optimized, records)

    @property
    def signature(self) -> Signature:  # type: ignore[override]
        return self.captured.signature

    @property
    def task(self) -> Task:  # type: ignore[override]
        return self.captured.task

    @property
    def disabled(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.captured.disabled

    def reference(self, target: Target, *, rows: int, judging: JudgingData, seconds: float) -> Reference:
        return make_reference(self.captured, target, rows=rows, judging=judging, seconds=seconds, with_rare=True)

    def work(self) -> Work:
        return work_of(self.captured.program)

    def graph_for(self, backend: Backend, calibration: Calibration | None) -> CapturedGraph | PortableGraph | None:
        if backend.name == "eager":
            return self.captured
        return self.optimized if calibration is None else replace(self.optimized, calibration=calibration)
