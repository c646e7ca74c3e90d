"""HTTP load: persistent connections on one event loop, requests rendered once, answers parsed by httptools."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import httptools

from .answers import read_answer
from .load import LoadRequest, LoadResult, Tally, read_images, tally_for
from .messages import message

RECONNECT_SECONDS = 0.25
RECONNECT_ATTEMPTS = 20
REJECTIONS = (429, 503)  # "not now": what an overloaded service says


def prepare(request: LoadRequest) -> Callable[[float], LoadResult]:
    """Read and render everything; what is returned sends it, beginning at a moment of the monotonic clock."""
    messages = [
        message(request.url, body, Path(path).suffix, request.encoding, field=request.field)
        for path, body in zip(request.images, read_images(request), strict=True)
    ]

    def send(start: float) -> LoadResult:
        try:
            import uvloop
        except ModuleNotFoundError:  # not on every platform
            return asyncio.run(drive(request, messages, start))
        return uvloop.run(drive(request, messages, start))

    return send


class _Connection(asyncio.Protocol):
    """One persistent connection: sends, waits for the whole answer, asks for the next due time."""

    def __init__(self, tally: Tally) -> None:
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()  # True: no more requests are due
        self.sent: float | None = None  # when the request in flight was sent, and
        self._due = 0.0  # when it should have been
        self._tally = tally
        self._image = 0
        self._body = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpResponseParser(self)
        self._advance(time.monotonic())

    def _advance(self, now: float) -> None:
        due = self._tally.arrivals.next_start(now)
        if due is None:
            self._finish(True)
        elif due <= now:
            self._send(due, now)
        else:
            self._timer = asyncio.get_running_loop().call_later(due - now, self._send, due, due)

    def _send(self, due: float, now: float) -> None:
        self._due, self.sent, self._body = due, now, b""
        self._image = self._tally.next_image()
        self._transport.write(self._tally.messages[self._image])

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.abandon("malformed", str(error))

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        now = time.monotonic()
        status = self._parser.get_status_code()
        sent, self.sent = self.sent, None
        if sent is None:
            self._tally.failed("malformed", "an answer that no request asked for")
            self._finish(False)
            return
        if status == 200:
            self._tally.answered(self._image, self._due, now, self._body)
        elif status in REJECTIONS:
            self._tally.rejected(str(status), self._body.decode(errors="replace"), self._due, now)
        else:
            self._tally.failed(str(status), self._body.decode(errors="replace"))
        if self._parser.should_keep_alive():
            self._advance(now)
        else:
            self._finish(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.abandon("connection", str(exc or "the server closed the connection before answering"))

    def abandon(self, reason: str, example: str) -> None:
        """Give up the connection; a request in flight counts as failed for that reason."""
        if self.sent is not None:
            self.sent = None
            self._tally.failed(reason, example)
        self._finish(False)

    def _finish(self, exhausted: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.done.done():
            self.done.set_result(exhausted)
        self._transport.close()


class _Slot:
    """One of the N connections, opened again when the server closes it."""

    def __init__(self, tally: Tally, host: str, port: int) -> None:
        self._tally, self._host, self._port = tally, host, port
        self._connection: _Connection | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while failures < RECONNECT_ATTEMPTS:
            try:
                _, self._connection = await loop.create_connection(lambda: _Connection(self._tally), self._host, self._port)
            except OSError as error:
                failures += 1
                self._tally.failed("connection", str(error))
                await asyncio.sleep(RECONNECT_SECONDS)
                continue
            failures = 0
            if await self._connection.done:
                return

    def expire(self, before: float) -> None:
        """Abandon a request that was sent before that moment and has no answer yet."""
        if self._connection is not None and self._connection.sent is not None and self._connection.sent < before:
            self._connection.abandon("timeout", "no answer within the time limit")


async def drive(request: LoadRequest, messages: list[bytes], start: float) -> LoadResult:
    """Send those messages as `request` says from the moment `start` on, and return what happened."""
    host, port = request.parts.hostname or "127.0.0.1", request.parts.port or 80
    await asyncio.sleep(max(0.0, start - time.monotonic()))
    tally = tally_for(request, messages, start)
    slots = [_Slot(tally, host, port) for _ in range(request.connections)]
    busy = time.process_time()
    running = [asyncio.create_task(slot.run()) for slot in slots]
    while True:
        # Wakes once a second for the time limit, so that no request pays for a timer of its own.
        _, pending = await asyncio.wait(running, timeout=1.0)
        if not pending:
            break
        for slot in slots:
            slot.expire(time.monotonic() - request.timeout_seconds)
    for task in running:
        task.result()
    finished = time.monotonic()
    busy = time.process_time() - busy
    return tally.result(seconds=(finished if tally.end == math.inf else tally.end) - tally.begin, busy=busy, read=read_answer)
