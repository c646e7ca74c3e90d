"""Measure candidates per batch bucket, hold what would win to parity, and keep the winners: a Plan."""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ...errors import BackendError, ParityError
from ..artifact.plan import Plan
from ..base.config import GraphConfig
from ..base.fingerprint import fingerprint
from ..base.session import Target
from .admission import Admission, no_memory, portable
from .budget import Budget
from .candidate import Candidate
from .cuts import Cuts
from .measure import measure
from .reference import Reference
from .source import Source

log = logging.getLogger("headrace.tuning")

Progress = Callable[[float, str], None]

# What multiplies a candidate's time beside others: what may lose something must win clearly, yet no choice may be left far
# behind the best.
_LOSSY_HANDICAP = 1.03
_UNPROVED_HANDICAP = 1.03  # a proof takes as long as hundreds of calls, and one more arithmetic in the plan its files
_FIXED_HANDICAP = 1.02  # a session for one batch size alone costs a set of weights of its own,
_FIXED_HOPE = 1.1  # and is not tried where its sibling for any batch takes so many times the best
# Of two streams neither waits for a core that a neighbor has: ResNet-50 in bf16 at batch 8 on 2 cores takes 0.98 times as long
# as with one stream, beside two processes that compute (a server's decoders are such) 0.64 times.
_PARTED_HANDICAP = 0.97
_IN_FLOATS_SHARE = 0.25  # of max_tuning_seconds, for int8 with layers in floats; other candidates need the rest
_HOPE = 1.5  # times the best at the first batch size beyond which a candidate is measured at no other
_OPEN_ROUNDS, _FINALISTS = 2, 2  # batch sizes at which all that came near the best are measured; at the others the best two
_PREPARED = 0.6  # of the whole is done, as progress is told, when all are prepared that were there at first
_FEWEST_CALLS = 4.0  # to be measured
_LARGEST_DECIDES = ("cuda",)  # devices on which a candidate that is far behind at the largest batch is not measured at others,
_FAR_BEHIND = 1.5  # times the best


class Autotuner:
    """Who is fastest at which batch size: by heats on a CPU, where each candidate, the most promising first, is measured beside
    the best so far at one batch size, and only what comes near the best is measured at the others. Candidates that come up on
    the way (a session for one batch size alone, int8 with more layers in floats) join `candidates`."""

    def __init__(
        self,
        source: Source,
        config: GraphConfig,
        directory: Path,
        device: str,
        reference: Reference,
        candidates: list[Candidate],
        budget: Budget,
        report: Progress,
    ) -> None:
        self.source, self.config, self.directory, self.device = source, config, directory, device
        self.reference, self.candidates, self.budget, self.report = reference, candidates, budget, report
        self.seconds_in_floats = 0.0
        self.done = _PREPARED  # of the whole, while batch sizes are measured
        self.largest_decides = device in _LARGEST_DECIDES
        self.leader: Candidate | None = None  # the fastest of the heats that has passed
        self.cuts = Cuts()
        work = None if self.largest_decides or len(candidates) < 2 else source.work()
        self.admission = Admission(work, config, device, budget, self.cuts)

    def run(self) -> Plan:
        """Measure the buckets, the ends first: they tell most if time runs out."""
        buckets = self.config.planned(self.device)
        order = [buckets[0], *reversed(buckets[1:])]
        if self.largest_decides and len(buckets) > 1:
            order[:2] = reversed(order[:2])
        self._prepare(order[0], sum(buckets))
        winners: dict[int, Candidate] = {}
        for index, bucket in enumerate(order):
            able = self._able(bucket) if index < _OPEN_ROUNDS or self.largest_decides else self._finalists([*winners])
            if index and not self._affordable(able, order[0], bucket):
                continue
            self.done = _PREPARED + (1 - _PREPARED) * index / len(order)
            self.report(self.done, f"measuring batch {bucket}")
            share = self.budget.left / (len(order) - index) / 3
            self._measure(able, bucket, share)
            self._try_fixed(bucket, share, list(winners.values()))
            winner = self._winner(bucket)
            if winner is None and self._bring_back():
                self._measure(self._able(bucket), bucket, 0.0)
                self._try_fixed(bucket, share, list(winners.values()))
                winner = self._winner(bucket)
            if winner is not None:
                winners[bucket] = winner
                if not index and len(buckets) > 1:
                    self._leave_rest_behind(bucket, winner)
        if not winners:
            raise _nothing_left(self.candidates, self.config)
        self._prove_portable()
        self.report(1.0, "planned")
        return self._plan(winners)

    def _prepare(self, bucket: int, rows: int) -> None:
        """Open what may win, by heats at that batch size; `rows` are those of all batch sizes."""
        self.admission.order(self.candidates, bucket)
        for index, candidate in enumerate(self.candidates):
            self.report(0.1 + 0.5 * index / len(self.candidates), f"preparing {candidate.choice}")
            why = None if candidate.status else self.admission.why_not(candidate, self.leader, self.candidates, bucket, rows)
            if why:
                candidate.status, candidate.why = "skipped", why
            if not candidate.status:
                candidate.prepare(self.source, self.directory, self.reference)
                if not candidate.status and not self.largest_decides:
                    self._heat(candidate, bucket)
        self.admission.learn(self.candidates, bucket)
        refused = [item for item in self.candidates if item.status == "refused" and bucket in item.samples]
        refused = [item for item in refused if item.with_more_in_floats() is not None]
        for candidate in sorted(refused, key=lambda item: item.samples[bucket].median_ms)[:1]:
            best = self.leader.samples.get(bucket) if self.leader is not None else None
            if best is None or candidate.samples[bucket].median_ms < best.median_ms:
                self._try_in_floats(candidate, bucket)
        check_any_left(self.candidates, self.config)

    def _heat(self, candidate: Candidate, bucket: int) -> None:
        """Measure it beside the best so far. The faster one must pass to lead, and what it leaves far behind runs no more."""
        leader = self.leader
        self._measure([*([leader] if leader else []), candidate], bucket, 0.0)
        if not candidate.able_at(bucket):
            return
        if leader is None or not leader.able_at(bucket) or _handicapped_ms(candidate, bucket) < _handicapped_ms(leader, bucket):
            if not candidate.passes(self.reference, self.config):
                self._reject_siblings(candidate)
                return
            leader, candidate, self.leader = candidate, leader or candidate, candidate
        self._leave_behind(candidate, bucket, leader, _HOPE)

    def _finalists(self, measured: Sequence[int]) -> list[Candidate]:
        """The best two at the batch sizes that were measured; one that may not be used at some of them, by the others."""
        times = {bucket: {item: _handicapped_ms(item, bucket) for item in self._measured_at(bucket)} for bucket in measured}
        best = {bucket: min(found.values(), default=0.0) for bucket, found in times.items()}
        behind: dict[Candidate, float] = {}
        for item in self.candidates:
            known = [bucket for bucket in measured if item in times[bucket]]
            left_out = any(bucket not in item.samples and bucket not in item.lost for bucket in measured)
            if known and not left_out:
                behind[item] = statistics.fmean(math.log(times[bucket][item] / best[bucket]) for bucket in known)
        return sorted(behind, key=behind.__getitem__)[:_FINALISTS]

    def _affordable(self, candidates: Sequence[Candidate], known: int, bucket: int) -> bool:
        """Whether they can be measured at that batch size, if need be a little beyond the time."""
        if self.budget.left:
            return True
        tried = [self.admission.work(item, known) for item in candidates if known in item.samples]
        needed = _FEWEST_CALLS * sum(tried) * bucket / known
        if not self.largest_decides and self.budget.bears(needed):
            return True
        self.cuts.add(f"batch {bucket}", needed)
        return False

    def _prove_portable(self) -> None:
        """One of them at least is held to parity, also if it cannot win: other machines begin with it."""
        if any(item.parity for item in self.candidates if not item.lossy and item.backend.format == "onnx"):
            return
        found = [item for item in portable(self.candidates) if not item.status and not item.target.batch]
        late = [item for item in self.admission.postponed if not item.lossy and item.backend.format == "onnx"]
        if not found and late and not no_memory(self.candidates):
            late[0].status = ""
            late[0].prepare(self.source, self.directory, self.reference)
        for candidate in (found or late)[:1]:
            candidate.passes(self.reference, self.config)

    def _able(self, bucket: int) -> list[Candidate]:
        """Those that may be used at that batch size and are not left behind."""
        return [candidate for candidate in self.candidates if candidate.able_at(bucket) and not candidate.far_behind]

    def _measured_at(self, bucket: int) -> list[Candidate]:
        """Those of them that were measured there."""
        return [candidate for candidate in self._able(bucket) if bucket in candidate.samples]

    def _leave_behind(self, candidate: Candidate, bucket: int, best: Candidate, most: float) -> None:
        """Measure it no further if it takes more than so many times what the best takes."""
        times = candidate.samples[bucket].median_ms / best.samples[bucket].median_ms if bucket in candidate.samples else 0.0
        if times > most:
            candidate.far_behind = f"takes {times:.2f} times as long as {best.choice} at batch {bucket}"

    def _leave_rest_behind(self, bucket: int, winner: Candidate) -> None:
        """What is far behind at that batch size is measured at no other. One for it alone says nothing of the others, where its
        sibling for any batch has others."""
        able = self._measured_at(bucket)
        others = [candidate for candidate in able if candidate.target.batch is None] or [winner]
        best = min(others, key=lambda candidate: candidate.samples[bucket].median_ms)
        for candidate in able:
            self._leave_behind(candidate, bucket, best, _FAR_BEHIND if self.largest_decides else _HOPE)

    def _bring_back(self) -> bool:
        """Whether there are such candidates, which are measured again from now on: nothing that is faster may be used."""
        found = [candidate for candidate in self.candidates if candidate.far_behind]
        for candidate in found:
            candidate.far_behind = ""
        return bool(found)

    def _measure(self, candidates: Sequence[Candidate], bucket: int, seconds: float) -> None:
        rows = self.reference.inputs
        repeated = -(-bucket // len(rows[0]))
        inputs = [np.concatenate([value] * repeated)[:bucket] for value in rows]
        sessions = [candidate.session for candidate in candidates if candidate.session is not None]
        clock = lambda: self.budget.used  # noqa: E731
        for candidate, samples in zip(candidates, measure(sessions, inputs, seconds=seconds, clock=clock), strict=True):
            if why := samples.failed or (None if candidate.is_reference else samples.leak):
                candidate.lost[bucket] = ("failed", why)
                candidate.samples.pop(bucket, None)
            else:
                candidate.samples[bucket] = samples

    def _join(self, candidates: Sequence[Candidate], bucket: int, seconds: float) -> None:
        """Prepare candidates that come up late, and measure them beside the fastest so far."""
        for candidate in candidates:
            self.report(self.done, f"preparing {candidate.choice} for batch {bucket}")
            if why := no_memory(self.candidates):
                candidate.end("skipped", why)
            else:
                candidate.prepare(self.source, self.directory, self.reference)
        self.candidates += candidates
        ready = [candidate for candidate in candidates if candidate.session is not None and not candidate.status]
        if ready:
            able = self._measured_at(bucket)
            best = min(able, key=lambda candidate: candidate.samples[bucket].median_ms, default=None)
            self._measure([*([best] if best else []), *ready], bucket, seconds)

    def _try_fixed(self, bucket: int, seconds: float, winners: Sequence[Candidate]) -> None:
        """Compile the best for that batch size alone, and for parts of it side by side. Where the ends are measured, between
        them only what won at one of them."""
        hopeful = self._hopeful(bucket)
        streams = _streams(bucket, Target(threads=self.config.threads).thread_count)
        won = {(item.arithmetic, item.target.streams > 1) for item in winners if item.target.batch}
        found = [
            candidate.fixed(bucket, count)
            for candidate in hopeful
            for count in sorted({1, streams if candidate.backend.streams else 1})
            if len(winners) < _OPEN_ROUNDS or (candidate.arithmetic, count > 1) in won
        ]
        if not found:
            return
        took = _FEWEST_CALLS * sum(self.admission.work(item, bucket) for item in hopeful)
        needed = sum(item.backend.preparation_seconds for item in found) + took
        if not self.budget.left and not self.budget.bears(needed):
            self.cuts.add_alone(bucket, needed)
        else:
            self._join(found, bucket, seconds)

    def _hopeful(self, bucket: int) -> list[Candidate]:
        """Those for any batch size that come near the best there, for it alone; int8 only once it has passed: it is refused
        more often than anything else, and what is compiled would be for nothing."""
        while True:
            able = sorted(self._measured_at(bucket), key=lambda item: item.samples[bucket].median_ms)
            near = [item for item in able if item.target.batch is None and self._near_best(item, bucket)]
            found = [item for item in near if item.backend.fixed_batch][:_FINALISTS]
            unproved = next((item for item in found if item.choice.precision.is_int8 and item.parity is None), None)
            if unproved is None:
                return found
            self._proves(unproved, bucket)

    def _near_best(self, candidate: Candidate, bucket: int) -> bool:
        times = {item: item.samples[bucket].median_ms for item in self._measured_at(bucket)}
        return candidate in times and times[candidate] <= _FIXED_HOPE * min(times.values())

    def _proves(self, candidate: Candidate, bucket: int, proved: Candidate | None = None) -> bool:
        """Whether it passes. Where it is refused, so are those that compute alike, and int8 tries again."""
        if candidate.passes(self.reference, self.config, proved):
            return True
        if candidate.status == "refused":
            self._reject_siblings(candidate)
            self._try_in_floats(candidate, bucket)
        return False

    def _winner(self, bucket: int) -> Candidate | None:
        """The fastest that may be used and is right at that batch size, with handicaps; None when none is."""
        while able := self._measured_at(bucket):
            first = min(able, key=lambda candidate: _handicapped_ms(candidate, bucket))
            alike = [item for item in self.candidates if item.arithmetic == first.arithmetic and item.scores is not None]
            proved = next((item for item in alike if not item.status), None)
            if self._proves(first, bucket, proved) and first.right_at(bucket, self.reference, self.config):
                return first
        return None

    def _reject_siblings(self, rejected: Candidate) -> None:
        """Compiled for another batch size, the same arithmetic is no more accurate; a pass must be shown by each, if only by
        computing as one that has passed."""
        for candidate in self.candidates:
            if not candidate.status and candidate.arithmetic == rejected.arithmetic:
                candidate.parity = rejected.parity
                candidate.end(rejected.status, rejected.why)

    def _try_in_floats(self, rejected: Candidate, bucket: int) -> None:
        """Let int8 try again with more layers in floats while that has its time and some layers change anything; beyond it
        only where int8 was asked for and nothing else is left. For one batch size alone it is compiled once it has passed."""
        other = rejected.with_more_in_floats()
        if other is None or other.arithmetic in {candidate.arithmetic for candidate in self.candidates}:
            return
        left = [candidate for candidate in self.candidates if candidate.session is not None and not candidate.status]
        begin, before = self.budget.used, self.seconds_in_floats
        within = self.seconds_in_floats < _IN_FLOATS_SHARE * self.config.seconds(self.device) and self.budget.left > 0
        within = within and not (rejected.hopeless and rejected.choice.precision.in_floats)
        if within or ("int8" in self.config.precisions and not left):
            self._join([other], bucket, self.budget.left / 8)
            if rejected.target.batch and self._near_best(other, bucket) and self._proves(other, bucket):
                self._join([other.fixed(bucket, rejected.target.streams)], bucket, self.budget.left / 8)
            self.seconds_in_floats = before + self.budget.used - begin

    def _proved(self, bucket: int, measured: int) -> Candidate | None:
        """For a batch size that nobody had time to measure: the fastest at another that takes any and is right at this one."""
        self._bring_back()
        able = [item for item in self._able(bucket) if item.target.batch is None and measured in item.samples]
        for candidate in sorted(able, key=lambda item: _handicapped_ms(item, measured)):
            if candidate.passes(self.reference, self.config) and candidate.right_at(bucket, self.reference, self.config):
                return candidate
        return None

    def _parted(self, bucket: int, winner: Candidate) -> Candidate | None:
        """For a batch size that nobody had time to measure, where the next larger one is fastest compiled for it alone and side
        by side: the same for this one, if that is right."""
        streams = _streams(bucket, winner.target.streams)
        if winner.target.batch is None or streams < 2 or not bucket < winner.target.batch <= 2 * bucket:
            return None
        other = winner.fixed(bucket, streams)
        if no_memory(self.candidates):
            return None
        other.prepare(self.source, self.directory, self.reference)
        self.candidates.append(other)
        able = not other.status and other.passes(self.reference, self.config, winner)
        return other if able and other.right_at(bucket, self.reference, self.config) else None

    def _plan(self, winners: dict[int, Candidate]) -> Plan:
        measured = sorted(winners)
        measurements = [
            candidate.outcome(bucket, winners[bucket])
            for bucket in measured
            for candidate in self.candidates
            if candidate.target.batch in (None, bucket)
        ]
        choices = {bucket: candidate.choice for bucket, candidate in winners.items()}
        for bucket in set(self.config.planned(self.device)) - set(measured):
            nearest = min(measured, key=lambda known: abs(known - bucket))
            larger = next((known for known in measured if known > bucket), bucket)
            if (parted := self._parted(bucket, winners[larger]) if larger in winners else None) is not None:
                nearest = larger
            chosen = parted or self._proved(bucket, nearest)
            if chosen is None:  # the next larger batch size runs it, or the largest in parts
                measurements += [
                    candidate.unmeasured(bucket, *reversed(candidate.lost[bucket]))
                    for candidate in self.candidates
                    if bucket in candidate.lost
                ]
                continue
            choices[bucket] = chosen.choice
            why = f"max_tuning_seconds={self.config.seconds(self.device):g} was used up; batch {nearest} decides"
            for candidate in self.candidates:
                status, known = candidate.lost.get(bucket, (candidate.status or "skipped", candidate.why or why))
                if candidate.target.batch is None or candidate is parted:
                    measurements.append(candidate.unmeasured(bucket, known, status))
        return Plan(
            fingerprint=fingerprint(),
            choices=choices,
            device=self.device,
            threads=Target(threads=self.config.threads).thread_count,
            measurements=tuple(sorted(measurements, key=lambda item: (item.bucket, item.candidate))),
            cut=self.cuts.line(self.config, self.device, self.budget.used),
        )


def _streams(bucket: int, threads: int) -> int:
    """As many as there are threads, or the next fewer that divide the batch."""
    return next(count for count in range(min(bucket, threads), 0, -1) if bucket % count == 0)


def _handicapped_ms(candidate: Candidate, bucket: int) -> float:
    handicap = _LOSSY_HANDICAP if candidate.lossy else 1.0
    if candidate.target.batch:
        handicap *= _PARTED_HANDICAP if candidate.target.streams > 1 else _FIXED_HANDICAP
    if candidate.lossy and candidate.parity is None and not candidate.target.batch:
        handicap *= _UNPROVED_HANDICAP
    return candidate.samples[bucket].median_ms * handicap


def check_any_left(candidates: list[Candidate], config: GraphConfig) -> None:
    if not any(candidate.session is not None and not candidate.status for candidate in candidates):
        raise _nothing_left(candidates, config)


def _nothing_left(candidates: list[Candidate], config: GraphConfig) -> BackendError | ParityError:
    whys = [(item, item.status, item.why) for item in candidates if item.status]
    whys += [(item, status, f"at batch {bucket} {why}") for item in candidates for bucket, (status, why) in item.lost.items()]
    reasons = "\n".join(f"  {candidate.choice}: {why}" for candidate, _, why in whys)
    if any(status == "refused" for _, status, _ in whys):
        return ParityError(f"no candidate for precision={config.precision!r} agrees with eager:\n{reasons}")
    return BackendError(f"no candidate could be built:\n{reasons}")
