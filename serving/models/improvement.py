"""What makes a model quicker than its first session does is tried under its real traffic, while that session serves.

Sessions for one batch size alone are opened once batches of that size come, proved on rows, and run in turn with the first
session, which some batches are compared with; a second instance, once there is more to do than one does. Each stays where it
gains more than 5 % and the memory bound allows it. Whatever fails leaves the service as it was, with a line in the log and a
count in the metrics.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from ...runtime.base.memory import give_back_memory
from ..batching.batcher import Batcher
from ..batching.contest import WORTH_IT, Contest, RandomWalk
from ..batching.ticket import Instance, Rows, Runner, close
from .memory_bound import MIB, MemoryBound

log = logging.getLogger("headrace.serving")

# A slice of time with one instance, or with two, is so long and has so many batches at least; most of them must have found
# requests waiting, or the slice says nothing, and after so many such slices there is no more to do than one does.
_SLICE_SECONDS, _SLICE_BATCHES, _PRESSED, _IDLE_SLICES = 0.25, 8, 0.8, 8
_LONGEST_SLICE_SECONDS = 20.0
_LEAVING_SECONDS = 0.1  # for one that has only to notice that it is to end
# What is opened is measured by the memory of the whole process, so one thing at a time.
_opening = threading.Lock()
_under_way: set[threading.Thread] = set()


@dataclass(frozen=True)
class Candidate:
    """What may be opened: how, and how many bytes of memory it is expected to take."""

    open: Callable[[], Instance]
    expected: int


class Improvement:
    """Tries what may serve a model better than the first instances of its `batcher` do.

    `own` has what to try for single buckets. `second` says how to make one more instance from the first one's sessions; None
    tries no other number. `prove` raises for sessions that do not answer as they should, and `unlike` says how outputs differ
    from those that the first session gives for the same rows. `grown` is told how many instances
    there are. `outcomes` counts, for "fixed batch" and "instance", what was "kept", "lost", "memory" and "failed". Nothing is
    done before `start`, nor after `stop`, which does not wait.
    """

    def __init__(
        self,
        name: str,
        batcher: Batcher,
        memory: MemoryBound,
        *,
        own: Mapping[int, Candidate],
        second: Callable[[Instance], Candidate] | None,
        prove: Callable[[Instance], None],
        unlike: Callable[[Rows, Rows], str | None],
        grown: Callable[[int], None] = lambda count: None,
        slice_seconds: float = _SLICE_SECONDS,
    ) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self._name = name
        self._batcher = batcher
        self._memory = memory
        self._own = own
        self._second = second
        self._prove = prove
        self._unlike = unlike
        self._grown = grown
        self._slice_seconds = slice_seconds
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._contests: dict[int, Contest] = {}
        self._running: dict[int, tuple[Runner, int]] = {}  # the challengers of contests, and the bytes that they took
        self._staying: dict[int, tuple[Runner, int]] = {}  # those that won, and are compared with the first now and then
        self._formers: dict[int, dict[int, Runner]] = {}  # what ran their buckets in the other instances
        self._kept = 0
        self._thread = threading.Thread(target=self._work, name=f"headrace-{name}-improvement", daemon=True)

    def start(self) -> None:
        """Look at the traffic from now on, in a thread of its own, which sleeps until there is something to try."""
        sessions = self._batcher.sessions()
        for bucket in self._own:
            asked = partial(self._events.put, partial(self._open, bucket))
            self._contests[bucket] = Contest(sessions[bucket], asked, unlike=self._unlike)
            self._batcher.exchange(bucket, self._contests[bucket])
            self._batcher.hope(bucket, WORTH_IT)  # else the first session's times may keep such batches from ever coming
        self._listen()
        if self._own or self._second is not None:
            _under_way.add(self._thread)
            self._thread.start()

    def stop(self) -> None:
        """Try nothing more. What is being opened just now is closed again once it is open."""
        self._stopped.set()
        self._events.put(None)

    def _listen(self) -> None:
        if self._second is not None:
            self._batcher.under_pressure(partial(self._events.put, self._grow))

    def _work(self) -> None:
        try:
            while (event := self._events.get()) is not None and not self._stopped.is_set():
                event()
        finally:
            self._memory.keep(-self._kept)
            _under_way.discard(threading.current_thread())

    def _open(self, bucket: int) -> None:
        """Have a bucket's own session run in turn with the first."""
        contest = self._contests[bucket]
        joined = self._join("fixed batch", f"the session for batches of {bucket}", lambda: self._own[bucket])
        if joined is None:
            self._end(bucket)
            return
        instance, taken = joined
        self._running[bucket] = instance[bucket], taken
        if not contest.challenge(instance[bucket], lambda *verdict: self._events.put(partial(self._settle, bucket, *verdict))):
            close(instance)

    def _settle(self, bucket: int, kept: bool, times: float, why: str) -> None:
        """What a contest came to."""
        what = f"the session for batches of {bucket}"
        if kept:
            challenger, taken = self._staying[bucket] = self._running.pop(bucket)
            self._tell("fixed batch", "kept", f"{what} stays: {times:.2f} times as quick, {taken // MIB} MiB")
            self._take_over(bucket, challenger, times)
            return
        stayed = bucket in self._staying
        challenger, taken = (self._staying if stayed else self._running).pop(bucket)
        if why:
            self._tell("fixed batch", "failed", f"{what} is closed: {why}", level=logging.WARNING)
        else:
            self._tell("fixed batch", "lost", f"{what} is closed: {times:.2f} times as quick, less than {WORTH_IT:g}")
        self._end(bucket, quicker=1 / times if stayed else 1.0)
        for number, session in self._formers.pop(bucket, {}).items():
            self._batcher.exchange(bucket, session, number=number)
        challenger.close()
        self._count(-taken)
        give_back_memory()

    def _take_over(self, bucket: int, challenger: Runner, times: float) -> None:
        """Let a bucket's own session run in every instance, beside the first one for as long as other buckets keep that."""
        first = self._contests[bucket].first
        self._batcher.exchange(bucket, self._contests[bucket], quicker=times)
        self._formers[bucket] = {}
        for number in range(1, self._batcher.instances if has_twin(challenger) else 1):
            self._formers[bucket][number] = self._batcher.sessions(number)[bucket]
            self._batcher.exchange(bucket, another(challenger), number=number)
        if all(_bare(session) is not first for session in self._batcher.sessions().values()):
            for other in list(self._staying):
                self._end(other)
            first.close()

    def _end(self, bucket: int, quicker: float = 1.0) -> None:
        """Let a bucket's session run without a contest."""
        self._batcher.exchange(bucket, self._contests.pop(bucket).leave(), quicker=quicker)

    def _grow(self) -> None:
        """Try one instance more, in slices of time with it and without."""
        assert self._second is not None, "else nobody listens"
        if self._running:  # times of batches beside each other would tell nothing of either
            self._listen()
            return
        before = self._batcher.instances
        sessions = {bucket: _bare(session) for bucket, session in self._batcher.sessions().items()}
        second = self._second
        joined = self._join("instance", "a second instance", lambda: second(sessions))
        if joined is None:
            return
        instance, taken = joined
        if not self._batcher.grow(instance):
            close(instance)
            return
        kept, times = self._compared(before)
        if self._stopped.is_set():
            return  # the batcher closes what it has
        if kept:
            self._tell("instance", "kept", f"a second instance stays: {times:.2f} times as many rows, {taken // MIB} MiB")
            self._batcher.activate(before + 1)
            self._grown(before + 1)
            return
        self._batcher.drop()
        self._count(-taken)
        give_back_memory()
        if kept is None:  # the traffic has ebbed away
            self._listen()
        else:
            self._tell("instance", "lost", f"a second instance is closed: {times:.2f} times as many rows")

    def _compared(self, before: int) -> tuple[bool | None, float]:
        """Whether to keep the instance more, None where the traffic does not tell, and how many times as much both serve."""
        walk, gains, idle, order = RandomWalk(), list[float](), 0, (before, before + 1)
        while not self._stopped.is_set() and idle < _IDLE_SLICES:
            rates = {count: self._rate(count, enough=count == before) for count in order}
            order = order[::-1]
            if (alone := rates[before]) is None or (both := rates[before + 1]) is None:
                idle += 1
                continue
            gains.append(both / alone)
            if (kept := walk.vote(both > WORTH_IT * alone)) is not None:
                return kept, statistics.median(gains)
        return None, 1.0

    def _rate(self, count: int, *, enough: bool) -> float | None:
        """Rows per second with so many instances; None where there was too little to do, which is asked with `enough`."""
        self._batcher.activate(count)
        begin, earlier = time.perf_counter(), self._batcher.work()
        while not self._stopped.wait(self._slice_seconds):
            seconds, done = time.perf_counter() - begin, self._batcher.work().since(earlier)
            if done.batches >= _SLICE_BATCHES:
                return None if enough and done.pressed < _PRESSED * done.batches else done.rows / seconds
            if seconds > max(_LONGEST_SLICE_SECONDS, 8 * self._slice_seconds):
                break
        return None

    def _join(self, kind: str, what: str, make: Callable[[], Candidate]) -> tuple[Instance, int] | None:
        """Sessions that are open, proved and fit into the memory, and the bytes that they took; None, said and counted, where
        one of these is not so."""
        with _opening:
            give_back_memory()
            before, room = self._memory.resident(), self._memory.room()
            made: Instance = {}
            try:
                candidate = make()
                if candidate.expected > room:
                    needs = f"it takes about {candidate.expected // MIB} MiB"
                    self._tell(kind, "memory", f"{what} is not opened: {needs}, and the memory bound leaves {room // MIB}")
                    return None
                made = candidate.open()
                if not self._stopped.is_set():
                    self._prove(made)
            except Exception as error:  # noqa: BLE001 - whatever a backend raises, it is told below, and the service stays as it was
                close(made)
                if not self._stopped.is_set():
                    self._tell(kind, "failed", f"{what} is not used: {error}", level=logging.WARNING)
                return None
            give_back_memory()
            taken = max(0, self._memory.resident() - before)
            if taken > room and not self._stopped.is_set():
                takes = f"it takes {taken // MIB} MiB, and the memory bound leaves {room // MIB}"
                self._tell(kind, "memory", f"{what} is closed: {takes}")
            if taken > room or self._stopped.is_set():
                close(made)
                give_back_memory()
                return None
            self._count(taken)
            return made, taken

    def _count(self, size: int) -> None:
        self._kept += size
        self._memory.keep(size)

    def _tell(self, kind: str, outcome: str, line: str, level: int = logging.INFO) -> None:
        log.log(level, "%s: %s", self._name, line)
        self.outcomes[kind, outcome] += 1


def _bare(session: Runner) -> Runner:
    """The session that a contest would go on with."""
    return session.session if isinstance(session, Contest) else session


def has_twin(session: Runner) -> bool:
    """Whether `another` session over the same weights may run beside that one."""
    return getattr(session, "twin", None) is not None


def another(session: Runner) -> Runner:
    """Such a session, the caller's to close."""
    twin: Callable[[], Runner] = session.twin  # type: ignore[attr-defined]
    return twin()


def leave() -> None:
    """End a process that is done, where a library is still opening a session: that cannot be interrupted, and would crash when
    what it uses is taken down around it. Returns where there is none."""
    left = list(_under_way)
    for thread in left:
        with contextlib.suppress(RuntimeError):  # it has not begun
            thread.join(_LEAVING_SECONDS)
    if any(thread.is_alive() for thread in left):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
