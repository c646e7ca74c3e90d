"""One model's queue and the threads that run it: requests in, their own rows of the outputs back."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ...errors import ExecutionError, HeadraceError, InputError, OverloadedError, RankLostError
from .collate import Collator, Placed
from .executor import BatchExecutor, Watch
from .latency_table import LatencyTable
from .policy import DEFAULT_PRIORITY, BatchPolicy, Dispatch, Reject, Wait
from .presence import Presence
from .queue_rules import QueueRules
from .staging import Staging
from .statistics import ModelStatistics, failure
from .ticket import Best, Instance, Joining, Rows, Runner, Ticket, close
from .waiting_line import WaitingLine
from .work import Work, Workload

log = logging.getLogger("headrace.serving")

_RANK_BACK_SECONDS = 5


class Batcher:
    """Runs one model's requests in batches on one worker thread per instance.

    `instances` holds, for each instance, the session of every bucket of `table`. `devices` says where each is, by default all
    on one: a batch goes to a device that computes nothing, if there is one. Outputs of a request are views of the batch's
    outputs. With `staging`, rows that are written into their `slot` need no copy. `best` takes so many best classes of each row
    from a batch's outputs, for requests that ask for no more. `rules` are those of the model's config, `joining` says
    which requests may share a batch. An instance of several processes that lacks one rests while another can compute, and what
    it was computing is computed by that, once for each request. Nothing polls: workers sleep on one condition until the queue
    or the time that the policy named says otherwise.
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        table: LatencyTable,
        *,
        name: str = "model",
        policy: BatchPolicy | None = None,
        rules: QueueRules | None = None,
        statistics: ModelStatistics | None = None,
        max_queue: int = 256,
        staging: Staging | None = None,
        best: Best | None = None,
        devices: Sequence[int] | None = None,
        joining: Joining = Joining.PADDED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.table = table
        self.statistics = statistics or ModelStatistics()
        self._name = name
        self._policy = policy or BatchPolicy()
        self._rules = rules or QueueRules()
        self._max_queue = max_queue
        self._staging = staging or Staging([], 0)
        self._joining = joining
        self._clock = clock
        self._executor = BatchExecutor(self.table, self.statistics, self._staging, best=best, joining=joining, clock=clock)
        self._serial = itertools.count()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._line = WaitingLine()
        self._busy_until = [0.0] * len(instances)
        self._running = [0] * len(instances)
        self._closing = False
        self._instances = [dict(instance) for instance in instances]
        self._presence = Presence(self._instances)
        self._devices = list(devices or [0] * len(instances))
        # Instances from this number on rest, until `activate` says otherwise.
        self._active = len(instances)
        self._rest = threading.Condition(self._lock)
        self._workload = Workload()
        self._threads = [self._thread(number) for number in range(len(instances))]
        for thread in self._threads:
            thread.start()

    def _thread(self, number: int) -> threading.Thread:
        return threading.Thread(target=self._work, args=(number,), name=f"headrace-{self._name}-{number}", daemon=True)

    @property
    def depth(self) -> int:
        """Requests that were admitted and do not run yet."""
        return len(self._line)

    def load(self) -> tuple[int, int, int]:
        """Requests whose tensors are still on their way here (images being decoded), that wait in the queue, and that run."""
        with self._lock:
            return self._line.coming, len(self._line.queue), sum(self._running)

    def work(self) -> Work:
        """What was done so far."""
        with self._lock:
            return self._workload.done

    def under_pressure(self, call: Callable[[], None]) -> None:
        """Have `call` called, once and in a thread that holds the batcher's lock, when there is more to do than is done."""
        with self._lock:
            self._workload.under_pressure(call)

    def watch(self, call: Watch) -> None:
        """Have `call` called with each batch's inputs, outputs and number of real rows, once its requests are answered. It must
        copy what it keeps, take next to no time and raise nothing."""
        self._executor.watch = call

    @property
    def instances(self) -> int:
        """How many there are."""
        return len(self._instances)

    def sessions(self, number: int = 0) -> dict[int, Runner]:
        """Those of an instance."""
        with self._lock:
            return dict(self._instances[number])

    def exchange(self, bucket: int, session: Runner, *, number: int = 0, quicker: float = 1.0) -> bool:
        """From the next batch on run that bucket with another session, which takes 1/`quicker` of the time. The former one is
        the caller's. False, and nothing is changed, once the batcher is closing."""
        with self._lock:
            if self._closing:
                return False
            self._instances[number][bucket] = session
            self.table.quicken(bucket, quicker)
            return True

    def hope(self, bucket: int, times: float) -> None:
        """Form batches of that bucket as if they were so many times as quick as those of the next smaller one, until its
        session is exchanged."""
        with self._lock:
            self.table.hope(bucket, times)

    def grow(self, instance: Instance, *, device: int = 0) -> bool:
        """Run batches on one more instance, which is the batcher's from now on. False once the batcher is closing."""
        with self._lock:
            if self._closing:
                return False
            number = len(self._instances)
            self._instances.append(dict(instance))
            self._devices.append(device)
            self._busy_until.append(0.0)
            self._running.append(0)
            self._threads.append(self._thread(number))
            self._active = number + 1
            self._threads[number].start()
            return True

    def activate(self, count: int) -> None:
        """Let the first `count` instances run batches, and the others rest."""
        with self._lock:
            self._active = count
            self._rest.notify_all()
            self._changed.notify_all()

    def look_again(self) -> None:
        """For when an instance of several processes has lost one, or has all of them again."""
        with self._lock:
            self._rest.notify_all()
            self._changed.notify_all()

    def drop(self) -> None:
        """Give up the last instance after the batch that it runs, and close its sessions."""
        with self._lock:
            if self._closing:
                return  # its sessions are closed with the others
            number = len(self._instances) - 1
            self._active = min(self._active, number)
            instance, thread = self._instances.pop(), self._threads[number]
            self._rest.notify_all()
            self._changed.notify_all()
        thread.join()
        with self._lock:
            del self._threads[number], self._running[number], self._busy_until[number], self._devices[number]
        close(instance)

    def admit(
        self,
        rows: int,
        *,
        timeout: float,
        priority: int = 0,
        best: int = 0,
        wait: float = 0.0,
        arrived: float | None = None,
    ) -> Ticket:
        """Take a place for so many rows, to be answered within `timeout` seconds; priority 0 means none given. Under a queue
        policy of the model, it may be queued for `wait` seconds, if that is not 0. With `best` the answer is the classes of so
        many of the best, and their probabilities, where the model gives one class of several.

        The time counts from `arrived`, on the batcher's clock, where that was before now. Raises OverloadedError when the queue
        is full, the server is stopping, or it would be too late by the profile, and InputError when the rows do not fit in one
        batch.
        """
        if not 1 <= rows <= self.table.largest:
            raise InputError(f"a request may hold 1 to {self.table.largest} rows for model '{self._name}', got {rows}")
        now = self._clock()
        arrived = now if arrived is None else arrived
        if best and not self._executor.gives_best:
            raise InputError(f"model '{self._name}' does not give one class of several")
        level, serial, deadline = self._rules.level(priority) or DEFAULT_PRIORITY, next(self._serial), arrived + timeout
        ticket = Ticket(rows, deadline, level, arrived, serial, best)
        ticket.order, ticket.wait = self._rules.order(level, deadline, serial), wait
        with self._lock:
            rejection = self._rejection(ticket, now)
            if rejection is None:
                self._line.join(ticket)
        if rejection is not None:
            self.statistics.failed(0, failure(rejection))
            raise rejection
        ticket.future.add_done_callback(lambda _: self._withdraw(ticket))
        return ticket

    def _rejection(self, ticket: Ticket, now: float) -> OverloadedError | None:
        if self._closing:
            return OverloadedError("the server is shutting down")
        policy = self._rules.policy(ticket.priority)
        if policy and policy.size and self._line.of_priority(ticket.priority) >= policy.size:
            return OverloadedError(
                f"Exceeds maximum queue size: max_queue_size of model '{self._name}' lets {policy.size} wait; try again later"
            )
        ahead, ahead_rows = self._line.ahead(ticket.order)
        rejection = self._policy.admit(
            now,
            rows=ticket.rows,
            deadline=ticket.deadline,
            ahead=ahead,
            ahead_rows=ahead_rows,
            waiting=self.depth,
            limit=self._max_queue,
            busy_until=[self._busy_until[number] for number in self._presence.able(self._active)],
            table=self.table,
        )
        if rejection is None:
            return None
        retry = max(1, round(rejection.seconds))
        if rejection.full:
            return OverloadedError(
                f"the queue of model '{self._name}' is full ({self._max_queue} requests); try again later", retry_after=retry
            )
        return OverloadedError(
            f"model '{self._name}' cannot answer within {1000 * max(0.0, ticket.deadline - now):.3g} ms, "
            f"about {1000 * rejection.seconds:.3g} ms are needed; allow more time or try again later",
            retry_after=retry,
        )

    @contextmanager
    def slot(self, ticket: Ticket) -> Iterator[Rows | None]:
        """The ticket's place among the rows that come, to be written within the block of code; None when there is none. It
        stays the ticket's until that block is left, also when the request is given up meanwhile."""
        with self._lock:
            if ticket.state == "coming" and ticket.place is None:
                ticket.place = self._staging.take(ticket.rows)
            ticket.writing = ticket.place is not None
        try:
            yield self._staging.views(ticket.place, ticket.rows) if ticket.place is not None else None
        finally:
            with self._lock:
                ticket.writing = False
                if ticket.state == "done":
                    self._leave_place(ticket)

    def submit(self, ticket: Ticket, inputs: Rows, placed: Placed | None = None) -> None:
        """Queue an admitted request; each input has the ticket's rows first. Does nothing if it was given up meanwhile. Inputs
        that lie in a larger memory are gathered from where they are `placed`."""
        with self._lock:
            if ticket.state != "coming":
                return
            ticket.inputs, ticket.placed = inputs, placed
            ticket.queued = self._clock()
            self._line.ready(ticket)
            self._changed.notify()

    def expire(self, ticket: Ticket) -> None:
        """For when a request's deadline has passed: reject it unless it runs already."""
        if self._give_up(ticket, OverloadedError(f"the deadline passed before model '{self._name}' could run the request")):
            self.table.settle(in_time=False)

    def reject(self, ticket: Ticket, error: HeadraceError) -> None:
        """Answer with an error, unless the request already runs or was answered."""
        self._give_up(ticket, error)

    def _give_up(self, ticket: Ticket, error: HeadraceError) -> bool:
        """As `reject`; whether it waited still."""
        with self._lock:
            waiting = ticket.state in ("coming", "queued")
            self._remove(ticket)
        if waiting and ticket.wanted():
            self._fail([ticket], error)
        return waiting

    def close(self, *, drain: bool = True) -> None:
        """Admit nothing more, run what was admitted (or with drain=False fail it), and end the threads."""
        with self._lock:
            self._closing = True
            self._workload.under_pressure(None)
            self._rest.notify_all()
            dropped = [] if drain else self._line.tickets()
            for ticket in dropped:
                self._remove(ticket)
            self._changed.notify_all()
        waiting = [ticket for ticket in dropped if ticket.wanted()]
        self._fail(waiting, OverloadedError("the server is shutting down"))
        for thread in list(self._threads):
            thread.join()
        for instance in self._instances:
            close(instance)

    def _withdraw(self, ticket: Ticket) -> None:
        if ticket.future.cancelled():
            with self._lock:
                self._remove(ticket)
            self.statistics.failed(int((self._clock() - ticket.arrived) * 1e9), "CANCELED")

    def _remove(self, ticket: Ticket) -> None:
        """Take a ticket out of line, with the lock held; nothing happens to one that runs."""
        if self._line.remove(ticket):
            ticket.state = "done"
            self._leave_place(ticket)
            self._changed.notify_all()

    def _leave_place(self, ticket: Ticket) -> None:
        """With the lock held. Whoever writes there does it when that ends."""
        if ticket.place is not None and not ticket.writing:
            self._staging.give(ticket.place, ticket.rows)
            ticket.place, ticket.inputs = None, []

    def _next_batch(self, number: int) -> tuple[list[Ticket], int] | None:
        """Sleep until instance `number` has a batch to run: its tickets and bucket. None when there will be no more."""
        pressed = True
        while True:
            rejected, why = None, "could not run the request before its deadline; allow more time"
            with self._lock:
                while rejected is None:
                    able = self._presence.able(self._active)
                    resting = number not in able
                    if (self._closing and (resting or not self._line)) or number >= len(self._instances):
                        self._changed.notify_all()  # the others have no more to wait for, either
                        return None
                    if resting:
                        self._changed.notify()  # whoever woke it meant one that does not rest
                        self._rest.wait()
                        continue
                    free = sum(1 for other in able if not self._running[other])
                    now = self._clock()
                    if (rejected := self._waited_out(now)) is not None:
                        why = "did not come to the request in the time that its queue policy allows: Request timeout expired"
                        continue
                    decision = self._policy.decide(
                        now, self._line.queue, self.table, free=free, coming=self._line.coming_rows, instances=len(able)
                    )
                    if isinstance(decision, Dispatch) and self._better_elsewhere(number):
                        self._changed.notify()  # to the one that sleeps longest, which passes it on as well unless it is there
                        self._changed.wait()
                    elif isinstance(decision, Dispatch):
                        taken, bucket = self._together(self._line.queue[: decision.count], decision.bucket)
                        self._line.run(taken)
                        batch = [ticket for ticket in taken if ticket.wanted()]
                        for ticket in taken:
                            if ticket.future.cancelled():
                                self._leave_place(ticket)
                        self._staging.turn()
                        if batch:
                            self._workload.begins(pressed)
                            self._running[number] = len(batch)
                            if self._line.queue:  # another idle instance may take the rest
                                self._changed.notify()
                            self._busy_until[number] = now + self.table.seconds(bucket)
                            return batch, bucket
                    elif isinstance(decision, Reject):
                        rejected = self._line.queue[decision.index]
                        self._remove(rejected)
                        self.table.settle(in_time=False)
                    elif isinstance(decision, Wait):
                        pressed = False
                        self._changed.wait(None if decision.until is None else decision.until - now)
            if rejected.wanted():
                self._fail([rejected], OverloadedError(f"model '{self._name}' {why}"))

    def _together(self, taken: list[Ticket], bucket: int) -> tuple[list[Ticket], int]:
        """Those of the first requests that may run together, and their bucket."""
        if self._joining is Joining.PADDED:
            return taken, bucket
        first = [array.shape[1:] for array in taken[0].inputs]
        alike = list(itertools.takewhile(lambda ticket: [array.shape[1:] for array in ticket.inputs] == first, taken))
        alike = alike[:1] if self._joining is Joining.ALONE else alike
        return alike, self.table.bucket_for(sum(ticket.rows for ticket in alike))

    def _waited_out(self, now: float) -> Ticket | None:
        """With the lock held: one that has waited longer than its queue policy allows, out of line, to be rejected. Those that
        are delayed instead go behind the others of their level."""
        if self._rules.default is None:
            return None
        late = [ticket for ticket in self._line.queue if ticket.wait and now - ticket.queued > ticket.wait]
        for ticket in late:
            policy = self._rules.policy(ticket.priority)
            if policy is None or not policy.delays:
                self._remove(ticket)
                return ticket
            self._line.put_behind(ticket)
        return None

    def _better_elsewhere(self, number: int) -> bool:
        """Whether the device of an instance computes, and another does not; with the lock held."""
        devices = self._devices[: self._active]
        busy = {device for device, running in zip(devices, self._running, strict=False) if running}
        return self._devices[number] in busy and not busy.issuperset(devices)

    def _work(self, number: int) -> None:
        """The life of one instance."""
        sessions, collator = self._instances[number], Collator(self.table.largest)
        while (work := self._next_batch(number)) is not None:
            batch, bucket = work
            try:
                self._executor.run(sessions[bucket], collator, batch, bucket)
            except RankLostError as error:  # which is started again
                log.error("model %s failed on a batch of %d: %s", self._name, len(batch), error)
                batch = self._once_more(number, batch)
                self._fail(batch, OverloadedError(f"model '{self._name}': {error}", retry_after=_RANK_BACK_SECONDS))
            except Exception as error:  # whatever a backend raises ends this batch only
                log.error("model %s failed on a batch of %d", self._name, len(batch), exc_info=error)
                self._fail(batch, ExecutionError(f"model '{self._name}' failed on this request; the server's log says why"))
            finally:
                with self._lock:
                    self._running[number] = 0
                    self._workload.ended(sum(ticket.rows for ticket in batch))
                    for ticket in batch:
                        self._leave_place(ticket)
                    self._changed.notify()

    def _once_more(self, number: int, batch: list[Ticket]) -> list[Ticket]:
        """Queue those of a lost batch that another instance can compute; the others."""
        with self._lock:
            if self._closing or not self._presence.others(number, self._active):
                return batch
            for ticket in (again := [ticket for ticket in batch if not ticket.again]):
                ticket.again = True
                if ticket.place is not None:  # which others come into
                    inputs = [array.copy() for array in ticket.inputs]
                    self._leave_place(ticket)
                    ticket.inputs = inputs
                self._line.come_back(ticket)
            self._changed.notify_all()
        return [ticket for ticket in batch if ticket not in again]

    def _fail(self, tickets: Sequence[Ticket], error: HeadraceError) -> None:
        now = self._clock()
        for ticket in tickets:
            ticket.state = "done"
            self.statistics.failed(int((now - ticket.arrived) * 1e9), failure(error))
            ticket.future.set_exception(error)
