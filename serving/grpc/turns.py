"""Long messages are taken over by the event loop one at a time, with everybody else's work between two of them.

grpcio puts a message together in one go, on the loop and with the interpreter's lock: some 0.5 ms for a MiB, so that a few long
ones that arrive together would stop everything else for as long as all of them take.
"""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections.abc import Coroutine, Generator
from typing import Any

# A message above this is long: milliseconds. After one, the loop goes around so often before the next may be taken over: a
# request over HTTP needs a few rounds to be read, parsed and answered.
_LONG, _ROUNDS = 1 << 20, 8


class Turns:
    """Whose message is next. For one event loop."""

    def __init__(self) -> None:
        self._resting = False
        self._waiting: list[asyncio.Future[None]] = []

    async def read(self, context: Any) -> Any:
        """A call's next message as bytes, or `grpc.aio.EOF`. Raises what the context's `read` raises."""
        data = await _read(context.read(), self)
        if data and len(data) > _LONG:
            self.rest()
        return data

    def rest(self) -> None:
        """Say that the loop has just been kept long."""
        if not self._resting:
            self._resting = True
            self._round(_ROUNDS)

    async def wait(self) -> None:
        """Return when the loop has done other work since it was last kept long."""
        while self._resting:
            self._waiting.append(turn := asyncio.get_running_loop().create_future())
            await turn

    @property
    def resting(self) -> bool:
        """Whether `wait` would wait."""
        return self._resting

    def _round(self, left: int) -> None:
        if left:
            asyncio.get_running_loop().call_soon(self._round, left - 1)
            return
        self._resting, waiting, self._waiting = False, self._waiting, []
        for turn in waiting:  # the first that takes a long one makes the others wait again
            if not turn.done():
                turn.set_result(None)


@types.coroutine
def _read(reading: Coroutine[Any, Any, Any], turns: Turns) -> Generator[Any, None, Any]:
    """What `reading` returns. It pauses once, until its message is there, and then copies it; the turn is between the two."""
    try:
        arriving = reading.send(None)
        try:
            yield arriving
        except BaseException as error:  # the call has failed, or this task is canceled
            reading.throw(error)
            raise
        if turns.resting:  # a coroutine less for nearly all
            try:
                yield from turns.wait().__await__()
            except BaseException:  # canceled; the message is taken nevertheless, or it would be left in memory
                with contextlib.suppress(StopIteration):
                    reading.send(None)
                raise
        reading.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("reading a message pauses once")
