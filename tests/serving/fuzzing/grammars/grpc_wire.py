"""Protobuf below its messages: tags, wire types, varints and lengths of serialized requests as they should not be."""

from __future__ import annotations

import struct
from typing import Any

from case import GrpcCase
from drawing import Draw
from google.protobuf.message_factory import GetMessageClass
from grammars.grpc_messages import good
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from tritonclient.grpc import service_pb2 as pb
from world import World

WEIGHT = 10

_METHODS = {method.name: method for method in pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods}
# What is loaded, unloaded or said of the log is chosen with care elsewhere; here these methods get what cannot be read only.
_CAREFUL = ("RepositoryModelLoad", "RepositoryModelUnload", "LogSettings")
_STREAM = "ModelStreamInfer"


def varint(value: int, padded: int = 0) -> bytes:
    """A varint, with bytes that add nothing."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    for _ in range(padded):
        parts[-1] |= 0x80
        parts.append(0)
    return bytes(parts)


def case(draw: Draw, world: World) -> GrpcCase:
    """One call whose message was not made by protobuf."""
    name = draw.weighted(dict.fromkeys(_METHODS, 1.0) | {"ModelInfer": 12.0})
    if draw.chance(0.05):
        return _of_no_method(draw) if draw.chance(0.5) else _of_the_library(draw)
    if name == _STREAM:
        messages = tuple(_message(draw, world, name) for _ in range(draw.between(0, 6)))
        return GrpcCase(
            method=name, messages=messages, stream=True, check=lambda received: _each_answered(received, len(messages))
        )
    if name in _CAREFUL:
        return GrpcCase(method=name, messages=(b"\x0b" + draw.bytes(40),))  # a group that never ends
    return GrpcCase(method=name, messages=(_message(draw, world, name),), metadata=_metadata(draw))


def _message(draw: Draw, world: World, name: str) -> bytes:
    if draw.chance(0.4):
        data, _ = good(draw, world)
        head = max(1, len(data) - 3 * 16 * 16 * 4)  # most bytes are pixels, where damage says little
        return draw.damage(data, (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\x80" * 11, b"\x0b", b"\x0c"), within=head)
    if draw.chance(0.2):
        return draw.bytes(60)
    return _fields(draw, GetMessageClass(_METHODS[name].input_type).DESCRIPTOR)


def _fields(draw: Draw, described: Any, depth: int = 0) -> bytes:
    """Fields of a message, known and unknown, of which some have another wire type or a length that is wrong."""
    parts = []
    for _ in range(draw.between(0, 6)):
        field = draw.pick(list(described.fields)) if described.fields and draw.chance(0.9) else None
        number = field.number if field else draw.pick((0, 15, 16, 2047, 19000, 2**29 - 1, 2**29, 2**32))
        text = field is None or field.cpp_type == field.CPPTYPE_STRING
        wire = 2 if (text or field.message_type or draw.chance(0.3)) else {1: 1, 2: 5}.get(field.type, 0)
        if draw.chance(0.05):
            wire = draw.between(0, 7)
        parts.append(varint(number << 3 | wire, draw.weighted({0: 20, 1: 1, 9: 1})))
        if wire == 0:
            parts.append(
                varint(draw.pick((0, 1, 127, 128, 2**31, 2**32, 2**63, 2**64 - 1, 2**64, 2**70)), draw.weighted({0: 20, 2: 1}))
            )
        elif wire == 1:
            parts.append(struct.pack("<d", draw.pick((0.0, -0.0, float("nan"), float("inf"), 1e308))))
        elif wire == 5:
            parts.append(struct.pack("<f", draw.pick((0.0, float("nan"), 3e38))))
        elif wire == 2:
            inner = _fields(draw, field.message_type, depth + 1) if field and field.message_type and depth < 4 else _text(draw)
            if field and field.message_type and draw.chance(0.02):
                inner = _deep(draw, field.number)
            parts.append(
                varint(
                    len(inner) + draw.weighted({0: 30, 1: 1, -1: 1, 2**31: 0.5, 2**63: 0.5})
                    if inner
                    else draw.weighted({0: 20, 1: 1})
                )
            )
            parts.append(inner)
    return b"".join(parts)


def _text(draw: Draw) -> bytes:
    return draw.pick(
        (
            b"tiny",
            b"images",
            b"scores",
            b"FP32",
            b"BYTES",
            b"1",
            b"",
            b"\xff\xfe",
            b"\xed\xa0\x80",
            b"a\0b",
            draw.text().encode("utf-8", "surrogatepass"),
            draw.bytes(30),
        )
    )


def _deep(draw: Draw, number: int) -> bytes:
    """The same field in itself, deeper than parsers go."""
    data = b""
    for _ in range(draw.pick((20, 99, 101, 1000))):
        data = varint(number << 3 | 2) + varint(len(data)) + data
    return data


def _metadata(draw: Draw) -> tuple[tuple[str, str | bytes], ...]:
    if draw.chance(0.9):
        return ()
    return tuple(
        draw.pick(
            (
                ("x-request-id", "a b"),
                ("x-request-id", "\x7e" * 200),
                ("x", "y" * 3000),
                ("x-bin", draw.bytes(50)),
                ("authorization", "Bearer x"),
            )
        )
        for _ in range(draw.between(1, 4))
    )


def _of_no_method(draw: Draw) -> GrpcCase:
    method = draw.pick(
        (
            "/inference.GRPCInferenceService/",
            "/inference.GRPCInferenceService/Nope",
            "/x/y",
            "/",
            "//",
            "/inference.GRPCInferenceService/ModelInfer/",
        )
    )
    return GrpcCase(method=method, messages=(draw.bytes(20),), codes=frozenset({"UNIMPLEMENTED"}))


def _of_the_library(draw: Draw) -> GrpcCase:
    """Health and reflection, whose messages the library would read."""
    described, stream = draw.pick(((health_pb2.HealthCheckRequest, False), (reflection_pb2.ServerReflectionRequest, True)))
    messages = tuple(
        draw.bytes(30) if draw.chance(0.5) else _fields(draw, described.DESCRIPTOR)
        for _ in range(draw.between(1, 4) if stream else 1)
    )
    if stream:
        return GrpcCase(method="/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", messages=messages, stream=True)
    return GrpcCase(method="/grpc.health.v1.Health/Check", messages=messages)


def _each_answered(received: list[bytes], count: int) -> str | None:
    return None if len(received) == count else f"{len(received)} answers to {count} messages"
