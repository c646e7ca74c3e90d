"""Frames of HTTP/2 (RFC 9113) on the gRPC port, right and wrong, and what is no HTTP/2 at all."""

from __future__ import annotations

import struct

from case import Http2Case
from drawing import Draw
from world import World

WEIGHT = 6

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
_END_STREAM, _END_HEADERS, _PADDED, _PRIORITY = 1, 4, 8, 32
_LIVE = b"\0\0\0\0\x02\x08\x01"  # a message of 2 bytes: ServerLiveResponse(live=true)


def frame(kind: int, flags: int, stream: int, payload: bytes, length: int | None = None) -> bytes:
    """One frame, whose length may be a lie."""
    return (
        struct.pack(">I", len(payload) if length is None else length)[1:]
        + bytes([kind, flags])
        + struct.pack(">I", stream % 2**32)
        + payload
    )


def case(draw: Draw, world: World) -> Http2Case:
    """What one connection says."""
    if draw.chance(0.2):
        data = PREFACE + frame(SETTINGS, 0, 0, b"") + b"".join(_call(draw, 1))
        return Http2Case(pieces=draw.pieces(data), contains=_LIVE)
    if draw.chance(0.1):
        data = draw.pick(
            (
                b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                draw.bytes(300),
                PREFACE[: draw.between(0, 23)],
                b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + draw.bytes(200),
            )
        )
        return Http2Case(pieces=draw.pieces(data) or (b"\0",), ending=draw.weighted({"half": 10, "wait": 0.5}))
    parts = [frame(SETTINGS, 0, 0, _settings(draw)) if draw.chance(0.7) else b""]
    for number in range(draw.between(1, 6)):
        parts += _call(draw, 2 * number + 1) if draw.chance(0.4) else [_frame(draw)]
    if draw.chance(0.3):
        draw.random.shuffle(parts)
    data = PREFACE + b"".join(parts)
    if draw.chance(0.4):
        data = draw.damage(data, (PREFACE, b"\0\0\0", b"\xff\xff\xff", b"\0\0\0\4\0\0\0\0\0"))
    return Http2Case(pieces=draw.pieces(data), ending=draw.weighted({"half": 10, "abort": 2}))


def _literal(name: bytes, value: bytes, kind: int = 0) -> bytes:
    """A header field without indexing (RFC 7541, 6.2.2), its strings not compressed."""
    return bytes([kind]) + bytes([len(name)]) + name + bytes([len(value)]) + value


def _call(draw: Draw, stream: int) -> list[bytes]:
    fields = [
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/inference.GRPCInferenceService/ServerLive"),
        (b":authority", b"x"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers"),
    ]  # fmt: skip
    block = b"".join(_literal(name, value, draw.pick((0, 0x10))) for name, value in fields)
    cut = draw.between(0, len(block)) if draw.chance(0.3) else len(block)
    parts = [frame(HEADERS, _END_HEADERS if cut == len(block) else 0, stream, block[:cut])]
    if cut < len(block):
        parts.append(frame(CONTINUATION, _END_HEADERS, stream, block[cut:]))
    return [*parts, frame(DATA, _END_STREAM, stream, bytes(5))]


def _settings(draw: Draw) -> bytes:
    return b"".join(struct.pack(">HI", draw.between(0, 9), draw.number() % 2**32) for _ in range(draw.between(0, 4)))


def _frame(draw: Draw) -> bytes:
    kind = draw.pick((DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION, 10, 255))
    stream = draw.pick((0, 0, 1, 1, 2, 3, 5, 2**31 - 1, 2**31, 2**32 - 1))
    flags = draw.pick((0, _END_STREAM, _END_HEADERS, 5, _PADDED, _PRIORITY, 0x2D, 255))
    payload = {
        HEADERS: lambda: _block(draw),
        CONTINUATION: lambda: _block(draw),
        SETTINGS: lambda: _settings(draw) + draw.bytes(1),
        PING: lambda: draw.bytes(9, 7),
        WINDOW: lambda: struct.pack(">I", draw.number() % 2**32),
        RST: lambda: struct.pack(">I", draw.between(0, 20)),
        GOAWAY: lambda: struct.pack(">II", draw.number() % 2**32, draw.between(0, 20)) + draw.bytes(20),
        PRIORITY: lambda: struct.pack(">IB", draw.number() % 2**32, draw.between(0, 255)),
        DATA: lambda: draw.pick((bytes(5), b"\1\0\0\0\5hello", b"\0\xff\xff\xff\xff", b"\2\0\0\0\0")),
    }.get(kind, lambda: draw.bytes(40))()
    return frame(kind, flags, stream, payload, draw.pick((None, None, None, None, 0, len(payload) + 1, 2**14 + 1, 2**24 - 1)))


def _block(draw: Draw) -> bytes:
    """A header block with indices that lead nowhere, tables that are too large, and names that are none."""
    parts = [
        draw.pick(
            (
                bytes([0x80 | draw.between(0, 127)]), b"\xff" + b"\xff" * draw.between(1, 6), b"\x20", b"\x3f\xe1\xff\x03",
                b"\x7f" + draw.bytes(3),
                _literal(draw.pick((b":path", b":status", b"TE", b"te", b"", b"\0", b"connection", b"grpc-timeout",
                b"grpc-encoding", b"x" * 100)), draw.bytes(30), draw.pick((0, 0x10, 0x40))),
                b"\x00\x81" + draw.bytes(6),
            )
        )
        for _ in range(draw.between(0, 6))
    ]  # fmt: skip
    return b"".join(parts)
