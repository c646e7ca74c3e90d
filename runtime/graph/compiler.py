"""A captured graph with its plan and sessions, and how it is made: captured, rewritten, and tuned or found in the cache."""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ...errors import BackendError, ParityError
from ...scratch import ScratchFolder
from ...specs import Preprocessing
from ..artifact.parity import Gate
from ..artifact.plan import Plan
from ..base.config import GraphConfig
from ..base.lock import locked
from ..base.passes import PassRecord
from ..base.session import Target
from ..capture.capture import CapturedGraph, capture, input_names
from ..inspect.journal import Journal, measurements_text, operations_text, passes_text, plan_text
from ..lowering.uint8_input import as_rows, with_preprocessing
from ..tuning.autotuner import Progress
from ..tuning.cache import Cached, cache_key, drop, look_up, store
from ..tuning.candidate import PARITY_BATCHES
from ..tuning.judging_data import JudgingData
from ..tuning.proof import wrong_at
from ..tuning.reference import make_reference
from ..tuning.source import CapturedSource
from ..tuning.tune import tune
from .account import own_bucket
from .runner import Runner
from .watch import Watch

_MOST_SECONDS = 8.0  # of measuring for a call, because its caller waits for the answer


@dataclass(eq=False)
class Compiled:
    """One captured and tuned graph: for one shape of row, dtype and device of each input."""

    captured: CapturedGraph
    passes: tuple[PassRecord, ...]
    plan: Plan
    runner: Runner
    folder: ScratchFolder
    watch: Watch
    key: str | None = None  # of the cache; None where the plan was not made by a call

    @functools.cached_property
    def source(self) -> CapturedSource:
        """What more candidates are made from; made when it is needed, since a cached plan brings its files along."""
        return CapturedSource.of(self.captured)

    def close(self) -> None:
        """Close its sessions and remove its files."""
        self.runner.close()
        self.folder.cleanup()


class Computation(torch.nn.Module):  # type: ignore[misc]
    """A graph's `build` as a module, so that its modules' parameters are the exported program's.

    `title` names it in errors; `described` is the function whose parameters name the inputs.
    """

    def __init__(
        self, build: Callable[..., Any], modules: Sequence[torch.nn.Module], *, title: str, described: Callable[..., Any]
    ) -> None:
        super().__init__()
        for index, module in enumerate(modules):
            self.add_module(f"module_{index}", module)
        self._build = (build,)
        self.captured_as = title
        self.source_of_forward = described

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self._build[0](*inputs)


@dataclass(frozen=True)
class Compiler:
    """Makes compiled graphs, and measures them for more batch sizes, as configured and with these images.

    With `preprocessing`, its arithmetic becomes part of what is captured.
    """

    config: GraphConfig
    judging: JudgingData
    preprocessing: Preprocessing | None
    journal: Journal

    def capture(self, computation: Computation, inputs: Sequence[torch.Tensor]) -> CapturedGraph:
        """Capture for inputs like these. Raises CaptureError."""
        names, inside = input_names(computation.source_of_forward, len(inputs)), self.preprocessing
        begin = time.perf_counter()
        with locked(inputs):
            if inside is None:
                captured = capture(computation, inputs, names=names, task=self.config.task)
            else:
                rows = [as_rows(value, inside) for value in inputs]
                captured = capture(computation, rows, names=names, task=self.config.task)
                captured = with_preprocessing(captured, inside)
        self.journal.report(1, f"captured in {time.perf_counter() - begin:.2f} s")
        if self.journal.level >= 3:
            self.journal.report(3, f"operations captured:\n{operations_text(captured.program.graph.nodes)}")
        return replace(captured, disabled=self.config.disable_passes)

    def compile(
        self,
        captured: CapturedGraph,
        watch: Watch,
        *,
        rows: int,
        ahead: bool = False,
        progress: Progress | None = None,
        stale: Compiled | None = None,
    ) -> Compiled:
        """Plan it for a call with that many rows, or `ahead` for whatever calls may come.

        The plan of a `stale` one, whose weights changed, is used again where it suits the new weights.
        """
        begin = time.perf_counter()
        device = self.config.device if self.config.device != "auto" else captured.device
        config = self.config if ahead else self._for_a_call(self.config.buckets or (own_bucket(rows, device),), device)
        # A call may use what an earlier process measured; whoever compiles ahead asks for a measurement.
        key = (
            cache_key(captured, config)
            if not ahead and stale is None and not (self.judging.images or self.judging.calibration)
            else None
        )
        found = None if key is None else self._from_cache(captured, config, key, device)
        if found is not None:
            folder, plan, records, runner = found
            how = "as an earlier process measured"
        else:
            folder = ScratchFolder()
            directory = folder.path
            try:
                with locked(captured.example):
                    source = CapturedSource.of(captured)
                self.journal.report(1, f"passes: {passes_text(source.passes)}")
                plan, how = self._tuned(source, config, directory, device, progress, stale.plan if stale else None)
                records = source.records(plan)
                if key is not None:
                    store(key, Cached(plan, records), directory)
            except BaseException:
                folder.cleanup()
                raise
            runner = Runner(captured.signature, plan, directory)
        self._report(plan, plan.buckets, how, begin)
        return Compiled(captured, records, plan, runner, folder, watch, key)

    def _from_cache(
        self, captured: CapturedGraph, config: GraphConfig, key: str, device: str
    ) -> tuple[ScratchFolder, Plan, tuple[PassRecord, ...], Runner] | None:
        """What an earlier process measured, held against eager on rows that nobody has seen; None where there is nothing."""
        folder = ScratchFolder()
        cached = look_up(key, folder.path)
        if cached is None or not set(self.config.buckets or ()) <= set(cached.plan.choices):
            folder.cleanup()
            return None
        runner = Runner(captured.signature, cached.plan, folder.path)
        try:
            with locked(captured.example):
                why = _wrong(captured, cached.plan, runner, config, device)
        except BackendError as error:
            why = str(error)
        if why:
            runner.close()
            folder.cleanup()
            drop(key)
            self.journal.warn(f"the cached plan is removed and made anew, because it is not this model's: {why}")
            return None
        return folder, cached.plan, cached.passes, runner

    def extend_for_call(self, compiled: Compiled, rows: int) -> None:
        """Measure for a call's batch size too, when the plan has none near it; unless the user chose the buckets."""
        if not self.covers(compiled, rows):
            self.extend(compiled, (own_bucket(rows, compiled.plan.device),), during_call=True)

    def covers(self, compiled: Compiled, rows: int) -> bool:
        """Whether the plan has a batch size near that many rows, or the user chose what it has."""
        near = compiled.plan.bucket(rows)
        return self.config.buckets is not None or near / 4 < own_bucket(rows, compiled.plan.device) <= near

    def extend(self, compiled: Compiled, buckets: Sequence[int] | None = None, *, during_call: bool = False) -> None:
        """Add the buckets that the plan lacks, by default those for whatever calls may come. Files that were written for it
        are used again."""
        buckets = self.config.planned(compiled.plan.device) if buckets is None else buckets
        lacking = tuple(bucket for bucket in buckets if bucket not in compiled.plan.choices)
        if not lacking:
            return
        begin = time.perf_counter()
        runner, device = compiled.runner, compiled.plan.device
        config = self._for_a_call(lacking, device) if during_call else replace(self.config, buckets=lacking)
        more, how = self._tuned(compiled.source, config, runner.directory, device, None)
        compiled.passes = tuple(dict.fromkeys((*compiled.passes, *compiled.source.records(more))))
        compiled.plan = runner.plan = replace(
            compiled.plan,
            choices={**compiled.plan.choices, **more.choices},
            measurements=compiled.plan.measurements + more.measurements,
        )
        if compiled.key is not None:
            store(compiled.key, Cached(compiled.plan, compiled.passes), runner.directory)
        self._report(more, lacking, how, begin)

    def _report(self, plan: Plan, buckets: Sequence[int], how: str, begin: float) -> None:
        self.journal.report(1, f"planned in {time.perf_counter() - begin:.2f} s, {how}: {plan_text(plan, buckets)}")
        if self.journal.level >= 2:
            self.journal.report(2, f"candidates:\n{measurements_text(plan)}")

    def _for_a_call(self, buckets: tuple[int, ...], device: str) -> GraphConfig:
        return replace(self.config, buckets=buckets, max_tuning_seconds=min(_MOST_SECONDS, self.config.seconds(device)))

    def _tuned(
        self,
        source: CapturedSource,
        config: GraphConfig,
        directory: Path,
        device: str,
        progress: Progress | None,
        keep: Plan | None = None,
    ) -> tuple[Plan, str]:
        """The plan, and in words how it was come by."""
        judging = self.judging.for_graph(source.signature)

        def run(keep: Plan | None) -> Plan:
            return tune(source, config, directory=directory, device=device, judging=judging, progress=progress, keep=keep)

        with locked(source.captured.example):
            if keep is None:
                return run(None), "measured now"
            try:
                return run(keep), "the choices as before, held to parity again"
            except (BackendError, ParityError) as error:
                return run(None), f"measured anew, because the choices before do not suit the new weights ({error})"


def _wrong(captured: CapturedGraph, plan: Plan, runner: Runner, config: GraphConfig, device: str) -> str | None:
    """What a plan from elsewhere does not compute as eager does, on rows drawn for this."""
    target = Target(device=device, threads=config.threads)
    reference = make_reference(captured, target, rows=max(PARITY_BATCHES), seed=secrets.randbelow(1 << 31))
    for bucket, choice in plan.choices.items():
        lossy = choice.precision.lossy
        gate = Gate(tolerance=Gate().relative_error if lossy else config.tolerance, noise=reference.noise)
        if why := wrong_at(runner.session(bucket), reference, bucket, gate, lossy=lossy, thorough=False):
            return f"{choice} {why}"
    return None
