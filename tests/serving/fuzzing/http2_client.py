"""Bytes to the gRPC port, and the frames (RFC 9113, 4.1) that come back: only their form is read."""

from __future__ import annotations

import asyncio
import contextlib

from case import Http2Case, Outcome
from http_client import PATIENCE

_KNOWN_FRAMES = range(10)


def frames(data: bytes) -> list[tuple[int, bytes]]:
    """Type and payload of each frame. Raises ValueError for what is none."""
    found, at = [], 0
    while at < len(data):
        if len(data) - at < 9:
            raise ValueError(f"{len(data) - at} bytes after the last frame")
        size, kind = int.from_bytes(data[at : at + 3], "big"), data[at + 3]
        if kind not in _KNOWN_FRAMES or at + 9 + size > len(data):
            raise ValueError(f"a frame of type {kind} with {size} bytes, of which {len(data) - at - 9} came")
        found.append((kind, data[at + 9 : at + 9 + size]))
        at += 9 + size
    return found


async def run(case: Http2Case, address: tuple[str, int]) -> Outcome:
    """Send a case and judge what comes back."""
    outcome, received, ended = Outcome(), b"", "closed"
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(*address)
            try:
                for number, piece in enumerate(case.pieces):
                    if number:
                        await asyncio.sleep(0.001)
                    writer.write(piece)
                    await writer.drain()
                if case.ending == "abort":
                    return Outcome(statuses=["left"])
                while case.contains and case.contains not in received and (data := await reader.read(65536)):
                    received += data
                if case.ending == "half":
                    writer.write_eof()
                while data := await reader.read(65536):
                    received += data
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except TimeoutError:
        return Outcome(problems=[f"no end within {PATIENCE:g} s"])
    except ConnectionRefusedError:
        return Outcome(problems=["the connection was refused"])
    except OSError:
        ended = "reset"
    outcome.statuses = [ended]
    if case.contains and case.contains not in received:
        outcome.problems.append(f"the answer {case.contains!r} did not come, but {received[:200]!r}")
    try:
        frames(received)
    except ValueError as error:
        if ended == "closed" and not received.startswith(b"HTTP/1."):
            outcome.problems.append(f"no HTTP/2: {error}")
    return outcome
