"""Messages on their way, which grpcio collects without saying how long they are, or how much of them is there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from ...errors import OverloadedError
from ..guard.byte_budget import ByteBudget
from .turns import Turns

# A message that is not there after this long counts as the longest that there may be; and how often that is looked at.
_GRACE_SECONDS, _LOOK_SECONDS = 1.0, 0.25


@dataclass(eq=False, slots=True)
class _Arriving:
    context: Any
    client: str
    since: float
    held: bool = False


class Arrivals:
    """The messages of unary calls, each within `seconds`. One that takes long holds `largest` bytes of the budget meanwhile:
    whoever sends most of a long message and stops there would have memory that is counted nowhere. `give_back` is told how many
    bytes those may have taken that were ended. For one event loop."""

    def __init__(
        self, budget: ByteBudget, turns: Turns, *, largest: int, seconds: float, give_back: Callable[[int], None]
    ) -> None:
        self._budget, self._turns, self._give_back = budget, turns, give_back
        self._largest, self._seconds = largest, seconds
        self._arriving: dict[_Arriving, None] = {}  # in the order in which they began
        self._looking = False
        self._ending: set[asyncio.Task[None]] = set()

    async def read(self, context: Any, client: str) -> bytes:
        """The only message of a call. Ends the call where there is none, or none in time."""
        loop = asyncio.get_running_loop()
        arriving = _Arriving(context, client, loop.time())
        self._arriving[arriving] = None
        if not self._looking:
            self._looking = True
            loop.call_later(_LOOK_SECONDS, self._look)
        try:
            data = await self._turns.read(context)
        finally:
            del self._arriving[arriving]
            if arriving.held:
                self._budget.give(self._largest, client)
        if data is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")
        assert isinstance(data, bytes)
        return data

    def _look(self) -> None:
        loop, before = asyncio.get_running_loop(), len(self._ending)
        for arriving in self._arriving:
            age = loop.time() - arriving.since
            if age > self._seconds:
                self._end(arriving, grpc.StatusCode.DEADLINE_EXCEEDED, f"the message did not arrive within {self._seconds:g} s")
            elif age > _GRACE_SECONDS and not arriving.held:
                try:
                    self._budget.take(self._largest, arriving.client)
                    arriving.held = True
                except OverloadedError:
                    self._end(
                        arriving,
                        grpc.StatusCode.UNAVAILABLE,
                        f"the message did not arrive within {_GRACE_SECONDS:g} s, and too many others are on their way that "
                        "slowly; send fewer at a time",
                    )
        if ended := len(self._ending) - before:
            self._give_back(ended * self._largest)
        self._looking = bool(self._arriving)
        if self._looking:
            loop.call_later(_LOOK_SECONDS, self._look)

    def _end(self, arriving: _Arriving, code: grpc.StatusCode, text: str) -> None:
        async def end() -> None:
            if arriving in self._arriving:
                with contextlib.suppress(grpc.aio.BaseError):  # ends with one in any case; another when the client has gone
                    await arriving.context.abort(code, text)

        task = asyncio.ensure_future(end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
