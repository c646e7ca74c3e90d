"""A front end's requests in one engine: each has a block of the shared memory until both sides are done with it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import mmap
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ...errors import (
    ExecutionError,
    HeadraceError,
    InputError,
    NotFoundError,
    OverloadedError,
    RequestError,
    TooLargeError,
    UnsupportedError,
)
from ..batching.ticket import Rows, Ticket
from .arena import Arena, BlockLayout
from .channel import Channel
from .messages import Admit, Alive, Cancel, Done, Expire, Failed, Message, Rejected, Settled, Submit

# An engine from which nothing came for so long hangs, and so does one that does not answer within this that a deadline passed.
_SILENT_SECONDS, _EXPIRY_SECONDS = 3.0, 0.5
# What clients are asked to wait when the engine is gone; a small model is back by then.
_RESTART_SECONDS = 2
_ERRORS: dict[int, type[RequestError]] = {
    kind.status: kind for kind in (InputError, NotFoundError, TooLargeError, ExecutionError, UnsupportedError)
}


class RemoteTicket(Ticket):
    """A request that the engine has been asked to take.

    `open` until the engine is done with it, `writing` while this process writes into its block; the block is
    free for others when it is neither. `state` is "coming", then "done" once the future has, or is about to have, its result.
    """

    __slots__ = ("layout", "number", "offset", "open", "writing")

    def __init__(
        self,
        number: int,
        layout: BlockLayout,
        offset: int,
        *,
        rows: int,
        deadline: float,
        priority: int,
        arrived: float,
        best: int,
    ) -> None:
        super().__init__(rows, deadline, priority, arrived, number, best)
        self.number = number
        self.layout = layout
        self.offset = offset
        self.open = True
        self.writing = False


class Connection:
    """One engine, from its start to its end: the channel to it, the memory shared with it, and the requests in it.

    The engine's messages that are not about a request go to `on_message`. When it ends, every open request fails with an
    OverloadedError, and `on_end` is called. Memory is never used again for another engine: a thread may still write to it.
    """

    def __init__(
        self,
        connected: socket.socket,
        memory: mmap.mmap,
        *,
        on_message: Callable[[Message], None],
        on_end: Callable[[Connection], None],
    ) -> None:
        self._memory = memory
        self._arena = Arena(len(memory))
        self._lock = threading.Lock()
        self._tickets: dict[int, RemoteTicket] = {}
        self._numbers = itertools.count(1)
        self._pass_on = on_message
        self._on_end = on_end
        self._ended = False
        self._heard = time.monotonic()
        self.channel = Channel(connected, self._on_message, self._end)

    @property
    def waiting(self) -> int:
        """Requests that the engine is not done with."""
        return len(self._tickets)

    @property
    def alive(self) -> bool:
        """Whether the engine was heard of lately."""
        return time.monotonic() - self._heard < _SILENT_SECONDS

    @property
    def free_bytes(self) -> int:
        """Bytes of the shared memory that no request has."""
        with self._lock:
            return self._arena.free_bytes

    def admit(
        self, model: int, layout: BlockLayout, rows: int, timeout: float, priority: int, best: int = 0, wait: float = 0.0
    ) -> RemoteTicket:
        """Take a block, and ask the engine for a place; a rejection comes through the ticket. Raises OverloadedError."""
        now = time.monotonic()
        with self._lock:
            if self._ended or not self.alive:
                raise engine_gone()
            offset = self._arena.take(layout.size(rows, best))
            if offset is None:
                raise OverloadedError("the memory for requests on their way to the model is full; try again later")
            ticket = RemoteTicket(
                next(self._numbers),
                layout,
                offset,
                rows=rows,
                deadline=now + timeout,
                priority=priority,
                arrived=now,
                best=best,
            )
            self._tickets[ticket.number] = ticket
        self.channel.send(Admit(ticket.number, model, rows, priority, best, offset, now, timeout, wait))
        ticket.future.add_done_callback(lambda _: self._withdraw(ticket))
        return ticket

    @contextlib.contextmanager
    def slot(self, ticket: RemoteTicket) -> Iterator[Rows | None]:
        """The inputs of the ticket's block, to be written within the block of code; None when the request has ended."""
        with self._writing(ticket) as wanted:
            yield ticket.layout.inputs(self._memory, ticket.offset, ticket.rows) if wanted else None

    def submit(self, ticket: RemoteTicket, inputs: Sequence[np.ndarray]) -> None:
        """Put the inputs into the ticket's block, unless they lie there, and notify the engine. Arrays of another shape than
        the signature's reject the ticket with an InputError."""
        with self._writing(ticket) as wanted:
            if not wanted:
                return
            places = ticket.layout.inputs(self._memory, ticket.offset, ticket.rows)
            shapes = [place.shape for place in places]
            if fits := shapes == [given.shape for given in inputs]:
                for place, given in zip(places, inputs, strict=True):
                    if place.__array_interface__["data"] != given.__array_interface__["data"]:
                        np.copyto(place, given)
                ticket.queued = time.monotonic()
                self.channel.send(Submit(ticket.number))
        if not fits:
            self.reject(ticket, InputError(f"the inputs must have the shapes {[list(shape) for shape in shapes]}"))

    def expire(self, ticket: RemoteTicket) -> None:
        """Have the engine reject it unless it runs; the answer comes through the ticket, from here if the engine hangs."""
        self.channel.send(Expire(ticket.number))
        asyncio.get_running_loop().call_later(_EXPIRY_SECONDS, self._give_up, ticket, time.monotonic())

    def _give_up(self, ticket: RemoteTicket, since: float) -> None:
        if self._heard < since and self._claim(ticket) and ticket.future.set_running_or_notify_cancel():
            ticket.future.set_exception(engine_gone())

    def reject(self, ticket: RemoteTicket, error: HeadraceError) -> None:
        """Answer with an error here, and give up the place there."""
        if self._claim(ticket):
            self.channel.send(Rejected(ticket.number))
            if ticket.future.set_running_or_notify_cancel():
                ticket.future.set_exception(error)

    @contextlib.contextmanager
    def _writing(self, ticket: RemoteTicket) -> Iterator[bool]:
        with self._lock:
            wanted = ticket.open and ticket.state != "done"
            ticket.writing = ticket.writing or wanted
        try:
            yield wanted
        finally:
            if wanted:
                with self._lock:
                    ticket.writing = False
                    self._release(ticket)

    def _claim(self, ticket: RemoteTicket) -> bool:
        """Whether the caller is the one that decides what becomes of the ticket's future."""
        with self._lock:
            if ticket.state == "done":
                return False
            ticket.state = "done"
            return True

    def _withdraw(self, ticket: RemoteTicket) -> None:
        if ticket.future.cancelled() and self._claim(ticket):
            self.channel.send(Cancel(ticket.number))

    def _release(self, ticket: RemoteTicket) -> None:
        """Give the block back when nobody uses it any more, with the lock held."""
        if not ticket.open and not ticket.writing and ticket.offset >= 0:
            self._arena.give(ticket.offset)
            ticket.offset = -1

    def _on_message(self, message: Message) -> None:
        self._heard = time.monotonic()
        if isinstance(message, Alive):
            return
        if not isinstance(message, Done | Failed):
            self._pass_on(message)
            return
        ticket = self._tickets.pop(message.ticket, None)
        if ticket is None:
            return
        outputs: Rows = []
        if isinstance(message, Done):
            views = ticket.layout.outputs(self._memory, ticket.offset, ticket.rows, ticket.best)
            outputs = [view.copy() for view in views]
            ticket.began, ticket.ended, ticket.batch = message.began, message.ended, message.batch
        with self._lock:
            ticket.open = False
            self._release(ticket)
        if self._claim(ticket) and ticket.future.set_running_or_notify_cancel():
            if isinstance(message, Done):
                ticket.future.set_result(outputs)
            else:
                ticket.future.set_exception(error_of(message))

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            lost = list(self._tickets.values())
            self._tickets.clear()
        for ticket in lost:
            ticket.open = False
            if self._claim(ticket) and ticket.future.set_running_or_notify_cancel():
                ticket.future.set_exception(engine_gone())
        self._on_end(self)


def engine_gone() -> OverloadedError:
    """For what cannot be answered because there is no engine, or no longer the one that had it."""
    return OverloadedError("the engine is starting again; try again soon", retry_after=_RESTART_SECONDS)


def error_of(message: Failed | Settled) -> RequestError:
    """The error that the engine has raised."""
    if message.status == OverloadedError.status:
        return OverloadedError(message.text, retry_after=message.retry_after)
    return _ERRORS.get(message.status, ExecutionError)(message.text)
