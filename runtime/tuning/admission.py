"""Which candidates are prepared, and in which order: by what they promise, what they cost, and the time and memory left."""

from __future__ import annotations

from collections.abc import Sequence

from ...specs import BF16, FP8, FP16, FP32, INT8, INT8_BF16
from ..base.config import GraphConfig
from ..base.memory import free_megabytes
from .budget import Budget
from .candidate import Candidate
from .cuts import Cuts
from .prediction import Machine, Prediction, Work

_LONG_SECONDS = 20.0
# Times the leader's time beyond which a candidate is not prepared; and beyond which it is not where that takes long.
_HOPE, _LONG_HOPE = 2.5, 1.2
_CALLS_TO_PROVE = 14.0  # of one finalist at one batch size, to be measured and proved
_MOST_KEPT = 1 / 4  # of max_tuning_seconds for those: which arithmetic it is matters more than that all sizes are measured
_OPENING = 1.5  # times the memory of an open candidate, while one is opened
# What takes its ranges from images must promise so much to go before what does not: the images cost more than any preparation,
# and once in three times the arithmetic is refused.
_FROM_IMAGES = 1.3
# What stands between the layers is in no prediction, and moves half the bytes in bf16: of eight networks measured beside the
# best by hand (docs/by-hand.json), 0 to 21 % faster, and 6 % on the whole.
_REST_IN_BF16 = 0.94
_WATCHED = 1.5  # times a row's time, where every value of the graph is looked at
_ON_TENSOR_CORES = (BF16, FP8, INT8_BF16, INT8, FP16, FP32)  # fp16 is no faster than bf16, and passes less often
_FIRST_ON_GPUS = (("kernels", BF16), ("kernels", INT8_BF16))  # of what takes long: cuDNN's fused convolutions, and int8


class Admission:
    """Decides for one tuning. On CPUs it predicts candidates by `work`, where there are several; on GPUs it knows what usually
    wins."""

    def __init__(self, work: Work | None, config: GraphConfig, device: str, budget: Budget, cuts: Cuts) -> None:
        self.config, self.device, self.budget, self.cuts = config, device, budget, cuts
        self.postponed: list[Candidate] = []
        self._prediction = None if work is None else Prediction(work, Machine.here())

    def order(self, candidates: list[Candidate], bucket: int) -> None:
        """Sort them by what is prepared first, while there is time."""
        candidates.sort(key=lambda candidate: self._urgency(candidate, bucket))

    def why_not(
        self, candidate: Candidate, leader: Candidate | None, others: Sequence[Candidate], bucket: int, rows: int
    ) -> str | None:
        """Why it is not prepared: it will not win, or there is no time or no memory for it. `leader` is the fastest so far at
        that batch size, `rows` are those of all batch sizes."""
        times = 1.0
        if self._prediction is not None and leader is not None and not self._prediction.small:
            times = self._predicted(candidate, bucket) / self._predicted(leader, bucket)
            proving = not candidate.lossy and candidate.backend.format == "onnx" and not portable(others)
            if times > (_LONG_HOPE if _takes_long(candidate) else _HOPE) and not proving:
                return f"is predicted to take {times:.1f} times as long as {leader.choice}"
        needed = candidate.backend.preparation_seconds + self._calibrating(candidate, leader, bucket)
        if why := self._no_time(candidate, leader, others, bucket, rows, needed):
            self.postponed.append(candidate)
            if times <= _LONG_HOPE and (self._prediction is not None or needed <= self.budget.seconds):
                self.cuts.add(str(candidate.choice), needed)
            return why
        return None if candidate.is_reference else no_memory(others)

    def learn(self, candidates: Sequence[Candidate], bucket: int) -> None:
        """Keep for later plans on this machine what was measured at that batch size."""
        if self._prediction is None:
            return
        tried = [item for item in candidates if bucket in item.samples]
        found = {(item.backend.name, item.target.precision.whole): item.samples[bucket].median_ms / 1000 for item in tried}
        self._prediction.learn(found, bucket, {item.backend.name: item.backend.efficiency for item in tried})
        self._prediction.machine.keep()

    def work(self, candidate: Candidate, bucket: int) -> float:
        """Seconds of work of one call, as it was measured."""
        return self.budget.pace * candidate.samples[bucket].median_ms / 1000

    def _urgency(self, candidate: Candidate, bucket: int) -> tuple[float, ...]:
        """What does not take long, by its predicted seconds; of what takes long on a GPU, what gains most as far as known, then
        what tensor cores compute."""
        seconds, precision = candidate.backend.preparation_seconds, candidate.target.precision.whole
        if self.device == "cuda":
            if seconds < _LONG_SECONDS:
                return seconds, candidate.lossy
            form = candidate.backend.name, precision
            first = _FIRST_ON_GPUS.index(form) if form in _FIRST_ON_GPUS else len(_FIRST_ON_GPUS)
            return _LONG_SECONDS, first, _ON_TENSOR_CORES.index(precision), seconds
        predicted = 0.0 if self._prediction is None else self._predicted(candidate, bucket)
        predicted *= 1.0 if candidate.calibration is None else _FROM_IMAGES
        predicted *= _REST_IN_BF16 if precision.rest == BF16.dtype else 1.0
        return _takes_long(candidate), predicted, seconds

    def _predicted(self, candidate: Candidate, bucket: int, *, in_floats: bool = False) -> float:
        assert self._prediction is not None
        backend, precision = candidate.backend, FP32 if in_floats else candidate.target.precision.whole
        return self._prediction.seconds(backend.name, precision, bucket, efficiency=backend.efficiency)

    def _calibrating(self, candidate: Candidate, leader: Candidate | None, bucket: int) -> float:
        """Seconds of work until the images have given it its ranges; 0 where they have, or nothing tells how long they take."""
        ranges = candidate.calibration
        if ranges is None or self._prediction is None or leader is None or bucket not in leader.samples:
            return 0.0
        if ranges.of_portable if candidate.backend.format == "onnx" else ranges.of_program:
            return 0.0
        times = self._predicted(candidate, bucket, in_floats=True) / self._predicted(leader, bucket)
        return _WATCHED * times * self.work(leader, bucket) * len(ranges.inputs[0]) / bucket

    def _no_time(
        self, candidate: Candidate, leader: Candidate | None, others: Sequence[Candidate], bucket: int, rows: int, needed: float
    ) -> str | None:
        """Why the time left does not allow to build it; None when it does, or when it must be built anyway."""
        others = [other for other in others if not other.is_reference]
        if candidate.is_reference:  # it is built when nothing else may run
            enough = any(other.session is not None and not other.status for other in others)
        else:  # it alone is not enough: one candidate that may be faster is always tried, and another where that is refused
            tried = ("failed", "refused") if _takes_long(candidate) else ()
            enough = any(other.session is not None or other.status in tried for other in others)
        kept = 0.0  # for what leads so far, to be measured and proved at every batch size
        if leader is not None and bucket in leader.samples:
            kept = min(_CALLS_TO_PROVE * rows / bucket * self.work(leader, bucket), _MOST_KEPT * self.budget.seconds)
        if not enough or self.config.backend or needed + kept <= self.budget.left:
            return None
        if self._first_of_int8(candidate, others) and self.budget.bears(needed):
            return None
        allowed = f"max_tuning_seconds={self.config.seconds(self.device):g}"
        return f"takes about {needed:.0f} s to prepare, more than {allowed} leaves"

    def _first_of_int8(self, candidate: Candidate, others: Sequence[Candidate]) -> bool:
        """Whether nothing else that takes its ranges from the images was tried: without it a busy machine keeps fp32, at
        twice its time. (On a GPU int8 takes minutes to build.)"""
        tried = [other for other in others if other.calibration is not None and (other.session or other.status == "refused")]
        return self._prediction is not None and candidate.calibration is not None and not tried


def portable(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that run the portable graph in fp32."""
    return [item for item in candidates if not item.lossy and item.backend.format == "onnx" and item.session]


def no_memory(candidates: Sequence[Candidate]) -> str | None:
    """Why another candidate does not fit beside those that are open: it may take as much as the largest of them, and half more
    while it is opened."""
    needed = _OPENING * max((item.memory_mb or 0.0 for item in candidates), default=0.0)
    free = free_megabytes()
    return f"takes about {needed:.0f} MB, and {free:.0f} MB of memory are free" if needed > free else None


def _takes_long(candidate: Candidate) -> bool:
    return candidate.backend.preparation_seconds >= _LONG_SECONDS
