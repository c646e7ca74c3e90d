"""One server in virtual time: event loops, decoders, the batcher's own policy, an engine; and what its end does to requests."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from headrace.serving.batching.policy import BatchPolicy, service_order

from ..simulation.clock import Clock
from ..simulation.engine import Batch, Engine, Request, Workers
from .cores import Cores
from .model import ServerSpec

__all__ = ["Outcome", "Server"]

# What became of a request: answered; refused on arrival, given up by the policy or too late before it ran (all 503); lost with
# the server it was at, or with no server there at all.
Outcome = Literal["answered", "refused", "dropped", "expired", "failed"]

# Reading a request of tens of kilobytes and finding its model is most of what handling it takes; writing a few labels the rest.
_IN_SHARE = 0.7


@dataclass(slots=True, eq=False, kw_only=True)
class _Attempt(Request):
    """A request at one server; `answer` is called with its outcome when that reaches the client."""

    answer: Callable[[Outcome], object]


class Server:
    """What a balancer sees: it takes requests while it is `up`, and loses those it has when it fails.

    `cores` are those of the machine where others use them too, as a load generator does.
    """

    def __init__(self, clock: Clock, spec: ServerSpec, source: random.Random, *, cores: Cores | None = None) -> None:
        self.up = True
        self._make = lambda: _Life(clock, spec, source, cores)
        self._life = self._make()

    def send(self, timeout: float, answer: Callable[[Outcome], object]) -> None:
        """Take a request that allows so many seconds; `answer` is called with its outcome. Lost at once while down."""
        if self.up:
            self._life.serve(timeout, answer)
        else:
            answer("failed")

    def fail(self) -> None:
        """End, and lose whatever is there."""
        self.up = False
        self._life.end()

    def restart(self) -> None:
        """Serve again, with nothing known of before."""
        self._life = self._make()
        self.up = True


class _Life:
    """A server's process from its start to its end."""

    def __init__(self, clock: Clock, spec: ServerSpec, source: random.Random, cores: Cores | None) -> None:
        self._clock, self._spec, self._source = clock, spec, source
        self._cores = cores or Cores(clock, spec.speeds)
        self._loop = Workers(self._cores.thread, spec.front_ends)
        self._decoders = Workers(self._cores.thread, spec.decoders)
        self._engine = Engine(
            clock,
            BatchPolicy(max_delay=spec.max_delay),
            spec.table,
            run=self._batch,
            settle=self._write,
            instances=spec.instances,
            max_queue=spec.max_queue,
        )
        self._open: dict[_Attempt, None] = {}
        self._serial, self._over = 0, False

    def serve(self, timeout: float, answer: Callable[[Outcome], object]) -> None:
        """A request from its first byte to its outcome."""
        self._serial += 1
        now = self._clock.now
        attempt = _Attempt(1, math.inf, now, 0, (0, math.inf, self._serial), answer=answer)
        self._open[attempt] = None
        read = partial(self._loop.run, lambda: _IN_SHARE * self._spec.handling, partial(self._admit, attempt, timeout))
        self._clock.after(self._spec.handing_over / 2, read)

    def _admit(self, attempt: _Attempt, timeout: float) -> None:
        if self._over:
            return
        attempt.deadline = self._clock.now + timeout
        attempt.order = service_order(0, attempt.deadline, self._serial)
        attempt.priority = attempt.order[0]
        if self._engine.admit(attempt) is None:
            self._decoders.run(partial(self._decode_seconds, attempt), partial(self._decoded, attempt))
        else:
            attempt.outcome = "refused"
            self._write(attempt)

    def _decode_seconds(self, attempt: _Attempt) -> float:
        return self._spec.decode.draw(self._source) if attempt.outcome == "waiting" and not self._over else 0.0

    def _decoded(self, attempt: _Attempt) -> None:
        if attempt.outcome == "waiting" and not self._over:
            self._engine.submit(attempt)

    def _batch(self, batch: Batch, ended: Callable[[], None]) -> None:
        run = self._clock.after if self._spec.gpu else self._cores.batch
        run(self._spec.batch[batch.bucket].draw(self._source), ended)

    def _write(self, attempt: _Attempt) -> None:
        wrote = partial(self._clock.after, self._spec.handing_over / 2, partial(self._answer, attempt))
        self._loop.run(lambda: (1 - _IN_SHARE) * self._spec.handling, wrote)

    def _answer(self, attempt: _Attempt) -> None:
        if not self._over:
            del self._open[attempt]
            attempt.answer(attempt.outcome)

    def end(self) -> None:
        """Everything is lost."""
        self._over = True
        self._engine.close()
        lost, self._open = list(self._open), {}
        for attempt in lost:
            attempt.answer("failed")
