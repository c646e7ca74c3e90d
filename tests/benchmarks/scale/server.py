"""One server in virtual time: event loops, decoders, the batcher's own policy, an engine; and what its end does to requests."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.serving.batching.policy import BatchPolicy, service_order

from ..simulation.virtual import Dropped, Started, VirtualBatcher
from .cores import Cores, Workers
from .model import ServerSpec

if TYPE_CHECKING:
    from simpy import Environment, Event

__all__ = ["Outcome", "Server"]

# What became of a request: answered; refused on arrival, given up by the policy or too late before it ran (all 503); lost with
# the server it was at, or with no server there at all.
Outcome = Literal["answered", "refused", "dropped", "expired", "failed"]

# Reading a request of tens of kilobytes and finding its model is most of what handling it takes; writing a few labels the rest.
_IN_SHARE = 0.7


@dataclass(slots=True, eq=False)
class _Attempt:
    """A request at one server; `answer` happens with its outcome, `settled` when that is known inside."""

    answer: Event
    settled: Event
    order: tuple[int, float, int]
    deadline: float = math.inf
    queued: float = math.nan
    rows: int = 1
    priority: int = 0
    outcome: Outcome | None = None


class Server:
    """What a balancer sees: it takes requests while it is `up`, and loses those it has when it fails.

    `cores` are those of the machine where others use them too, as a load generator does.
    """

    def __init__(
        self, env: Environment, spec: ServerSpec, source: random.Random, *, name: str = "server", cores: Cores | None = None
    ) -> None:
        self.name, self.up = name, True
        self.batch_sizes: Counter[int] = Counter()
        self._env, self._spec, self._source, self._given = env, spec, source, cores
        self._life = _Life(self, env, spec, source, cores)

    def send(self, timeout: float) -> Event:
        """A request that allows so many seconds; what is returned happens with its outcome. Refused at once while down."""
        done = self._env.event()
        if self.up:
            self._env.process(self._life.serve(done, timeout))
        else:
            done.succeed("failed")
        return done

    def fail(self) -> None:
        """End, and lose whatever is there."""
        self.up = False
        self._life.end()

    def restart(self) -> None:
        """Serve again, with nothing known of before."""
        self._life = _Life(self, self._env, self._spec, self._source, self._given)
        self.up = True


class _Life:
    """A server's process from its start to its end."""

    def __init__(self, server: Server, env: Environment, spec: ServerSpec, source: random.Random, cores: Cores | None) -> None:
        self._server, self._env, self._spec, self._source = server, env, spec, source
        self._cores = cores or Cores(env, spec.speeds)
        self._loop = Workers(env, self._cores, spec.front_ends)
        self._decoders = Workers(env, self._cores, spec.decoders)
        policy = BatchPolicy(max_delay=spec.max_delay)
        self._batcher: VirtualBatcher[_Attempt] = VirtualBatcher(
            policy, spec.table, instances=spec.instances, max_queue=spec.max_queue
        )
        self._open: dict[_Attempt, None] = {}
        self._serial, self._alarm, self._over = 0, math.inf, False

    def serve(self, answer: Event, timeout: float) -> Generator[Event, Any, None]:
        """A request from its first byte to its outcome."""
        spec, env = self._spec, self._env
        self._serial += 1
        attempt = _Attempt(answer, env.event(), (0, math.inf, self._serial))
        self._open[attempt] = None
        yield env.timeout(spec.handing_over / 2)
        yield self._loop.run(lambda: _IN_SHARE * spec.handling)
        if self._over:
            return
        attempt.deadline = env.now + timeout
        attempt.order = service_order(0, attempt.deadline, self._serial)
        attempt.priority = attempt.order[0]
        if self._batcher.admit(env.now, attempt) is None:
            yield from self._run(attempt)
        else:
            attempt.outcome = "refused"
        if self._over:
            return
        yield self._loop.run(lambda: (1 - _IN_SHARE) * spec.handling)
        yield env.timeout(spec.handing_over / 2)
        if not self._over:
            del self._open[attempt]
            answer.succeed(attempt.outcome)

    def _run(self, attempt: _Attempt) -> Generator[Event, Any, None]:
        """Decode an admitted request, queue it, and wait for what becomes of it."""
        if math.isfinite(attempt.deadline):
            callbacks = self._env.timeout(attempt.deadline - self._env.now).callbacks
            assert callbacks is not None, "it has not happened yet"
            callbacks.append(lambda _: self._expire(attempt))
        decoded = self._decoders.run(lambda: self._decode_seconds(attempt))
        yield decoded | attempt.settled
        if attempt.outcome is None and not self._over:
            self._batcher.submit(self._env.now, attempt)
            self._turn()
        if attempt.outcome is None:
            yield attempt.settled

    def _decode_seconds(self, attempt: _Attempt) -> float:
        return self._spec.decode.draw(self._source) if attempt.outcome is None and not self._over else 0.0

    def _expire(self, attempt: _Attempt) -> None:
        if not self._over and attempt.outcome is None and self._batcher.withdraw(attempt):
            self._settle(attempt, "expired")
            self._turn()

    def _turn(self) -> None:
        """What the idle instances' threads do now."""
        while True:
            step = self._batcher.turn(self._env.now)
            if isinstance(step, Started):
                self._env.process(self._batch(step))
            elif isinstance(step, Dropped):
                self._settle(step.request, "dropped")
            else:
                if step.until is not None and not self._env.now < self._alarm <= step.until:
                    self._alarm = step.until
                    callbacks = self._env.timeout(step.until - self._env.now).callbacks
                    assert callbacks is not None, "it has not happened yet"
                    callbacks.append(lambda _: None if self._over else self._turn())
                return

    def _batch(self, started: Started[_Attempt]) -> Generator[Event, Any, None]:
        seconds = self._spec.batch[started.bucket].draw(self._source)
        begin = self._env.now
        yield self._env.timeout(seconds) if self._spec.gpu else self._cores.batch(seconds)
        if self._over:
            return
        self._batcher.ended(started, self._env.now - begin)
        self._server.batch_sizes[started.rows] += 1
        for attempt in started.requests:
            self._settle(attempt, "answered")
        self._turn()

    def _settle(self, attempt: _Attempt, outcome: Outcome) -> None:
        attempt.outcome = outcome
        self._batcher.table.settle(in_time=outcome == "answered" and self._env.now <= attempt.deadline)
        attempt.settled.succeed()

    def end(self) -> None:
        """Everything is lost."""
        self._over = True
        lost, self._open = list(self._open), {}
        for attempt in lost:
            attempt.answer.succeed("failed")
