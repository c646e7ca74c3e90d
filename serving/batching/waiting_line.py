"""The requests that were admitted and do not run yet, in the order of service. Not thread-safe: a batcher's lock is held."""

from __future__ import annotations

import bisect
import itertools
import math
import operator
from collections.abc import Iterator, Sequence

from .policy import Order
from .ticket import Ticket

_ORDER = operator.attrgetter("order")


class WaitingLine:
    """`queue` holds what may run; the line holds that together with the `coming` requests, whose tensors are on their way."""

    def __init__(self) -> None:
        self.queue: list[Ticket] = []
        self._line: list[tuple[Order, Ticket]] = []
        # What would have to be counted for every request that comes, and for each that wakes a worker.
        self._rows = self.coming = self.coming_rows = 0

    def __len__(self) -> int:
        return len(self._line)

    def tickets(self) -> list[Ticket]:
        """All of them."""
        return [ticket for _, ticket in self._line]

    def of_priority(self, priority: int) -> int:
        """How many of a level wait."""
        return sum(ticket.priority == priority for _, ticket in self._line)

    def ahead(self, order: Order) -> tuple[Iterator[Ticket], int]:
        """Who is served before a request of that order, and their rows."""
        # Whoever comes is mostly the last, so that those behind are few.
        place = bisect.bisect(self._line, (order,))
        behind = sum(ticket.rows for _, ticket in itertools.islice(self._line, place, None))
        return (ticket for _, ticket in itertools.islice(self._line, place)), self._rows - behind

    def join(self, ticket: Ticket) -> None:
        """Put a request that was admitted, and whose tensors come, in line."""
        bisect.insort(self._line, (ticket.order, ticket))
        self._rows += ticket.rows
        self.coming += 1
        self.coming_rows += ticket.rows

    def ready(self, ticket: Ticket) -> None:
        """Queue one whose tensors have come."""
        self._come(ticket)
        ticket.state = "queued"
        bisect.insort(self.queue, ticket, key=_ORDER)

    def run(self, tickets: Sequence[Ticket]) -> None:
        """Take the first of the queue out of line, to run."""
        del self.queue[: len(tickets)]
        self._leave(tickets)
        for ticket in tickets:
            ticket.state = "running"

    def come_back(self, ticket: Ticket) -> None:
        """Queue one again that has run, and has no answer."""
        ticket.state = "queued"
        bisect.insort(self.queue, ticket, key=_ORDER)
        bisect.insort(self._line, (ticket.order, ticket))
        self._rows += ticket.rows

    def remove(self, ticket: Ticket) -> bool:
        """Take a request out of line; False where it is not in line."""
        if ticket.state == "queued":
            self.queue.remove(ticket)
        elif ticket.state == "coming":
            self._come(ticket)
        else:
            return False
        self._leave([ticket])
        return True

    def put_behind(self, ticket: Ticket) -> None:
        """Have a queued request, which may wait as long as its deadline allows now, served after the others of its level."""
        self.queue.remove(ticket)
        del self._line[bisect.bisect(self._line, (ticket.order,))]
        ticket.wait, ticket.order = 0.0, (ticket.order[0], math.inf, ticket.order[2])
        bisect.insort(self.queue, ticket, key=_ORDER)
        bisect.insort(self._line, (ticket.order, ticket))

    def _come(self, ticket: Ticket) -> None:
        self.coming -= 1
        self.coming_rows -= ticket.rows

    def _leave(self, tickets: Sequence[Ticket]) -> None:
        self._rows -= sum(ticket.rows for ticket in tickets)
        if len(tickets) == len(self._line):
            self._line.clear()
            return
        for ticket in tickets:
            del self._line[bisect.bisect(self._line, (ticket.order,))]
