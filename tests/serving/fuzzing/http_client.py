"""Bytes to a port and answers back, read by h11, which takes nothing that HTTP/1.1 does not allow."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

import h11
from case import Answer, HttpCase, Outcome
from oracle import problems_of

# A server on a busy machine may take long; one that hangs takes for ever.
PATIENCE = 60.0
# How long bytes that may or may not be a whole request are given before the client sends its end: an answer that is under way
# when that comes is lost, as it is with every server that takes it for a client that left.
_LINGER = 0.05


class AnswerReader:
    """The answers in a stream of bytes. `partial` says whether one has begun that is not complete."""

    def __init__(self, *, heads: bool = False) -> None:
        self.answers: list[Answer] = []
        self._heads = heads
        self._begin(b"")

    def _begin(self, data: bytes) -> None:
        self._connection = h11.Connection(h11.CLIENT)
        self._connection.send(h11.Request(method="HEAD" if self._heads else "GET", target="/", headers=[("Host", "localhost")]))
        self._connection.send(h11.EndOfMessage())
        self._status, self._headers, self._body = 0, {}, b""
        self.partial = False
        if data:
            self.feed(data)

    def feed(self, data: bytes) -> None:
        """Read on; b"" is the end. Raises h11.RemoteProtocolError for what is no HTTP answer or ends within one."""
        if not data and not self.partial:
            return
        self.partial = True
        self._connection.receive_data(data)
        while True:
            event = self._connection.next_event()
            if isinstance(event, h11.Response):
                self._status = event.status_code
                self._headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
            elif isinstance(event, h11.Data):
                self._body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                self.answers.append(Answer(self._status, self._headers, self._body))
                rest = bytes(self._connection.trailing_data[0])
                if self._heads and rest and not rest.startswith(b"HTTP/1."):
                    # The refusal of a head that could not be read to its end has a body, whatever method it began with.
                    self.answers[-1] = Answer(self._status, self._headers, rest)
                    rest = b""
                self._begin(rest)
                return
            elif not isinstance(event, h11.InformationalResponse):
                return


async def run(case: HttpCase, address: tuple[str, int]) -> Outcome:
    """Send a case and judge what comes back."""
    outcome = Outcome()
    reading = AnswerReader(heads=case.heads)
    try:
        async with asyncio.timeout(PATIENCE):
            ended = await _exchange(case, address, reading)
    except TimeoutError:
        outcome.problems.append(f"no end within {PATIENCE:g} s, {len(reading.answers)} answers so far")
        return outcome
    except h11.RemoteProtocolError as error:
        outcome.problems.append(f"no HTTP answer: {error}")
        return outcome
    except ConnectionRefusedError:
        outcome.problems.append("the connection was refused")
        return outcome
    outcome.statuses = [str(answer.status) for answer in reading.answers] or [ended]
    if case.ending == "abort":
        return outcome
    for answer in reading.answers:
        outcome.problems += problems_of(answer, head=case.heads)
        if answer.status not in case.statuses:
            outcome.problems.append(f"status {answer.status}: {answer.body[:300]!r}")
    if case.answers is not None and len(reading.answers) != case.answers:
        outcome.problems.append(f"{len(reading.answers)} answers instead of {case.answers}, then {ended}")
    elif case.checks and not outcome.problems:
        for check, answer in zip(case.checks, reading.answers, strict=True):
            if wrong := check(answer):
                outcome.problems.append(wrong)
    return outcome


async def _exchange(case: HttpCase, address: tuple[str, int], reading: AnswerReader) -> str:
    """How the connection ended: "closed", "reset" or "left" by the client."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        for number, piece in enumerate(case.pieces):
            if number:
                await asyncio.sleep(0.001)  # so that it comes in a packet of its own
            writer.write(piece)
            await writer.drain()
        if case.ending == "abort":
            _reset_at_close(writer)
            return "left"
        if case.ending == "half":
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LINGER):
                    while not reading.answers or reading.partial:
                        if not await _read(reader, reading):
                            return "closed"
            writer.write_eof()
        while case.answers is None or len(reading.answers) < case.answers:
            if case.ending == "wait" and reading.answers and not reading.partial:
                return "left"  # it waits for another request, for longer than anybody wants to wait here
            if not await _read(reader, reading):
                return "closed"
    except OSError:
        return "reset"
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return "left"


async def _read(reader: asyncio.StreamReader, reading: AnswerReader) -> bool:
    data = await reader.read(65536)
    reading.feed(data)
    return bool(data)


def _reset_at_close(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
