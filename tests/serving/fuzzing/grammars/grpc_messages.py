"""ModelInferRequests that protobuf can read: right ones, and ones whose names, types, shapes and contents do not go
together."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from case import GrpcCase
from drawing import NUMBERS, Draw
from tritonclient.grpc import service_pb2 as pb
from world import BATCH, LABELS, SIDE, World, images, wrong_scores

WEIGHT = 16

_IMAGES = images()
_NAMES = ("tiny", "tiny", "tiny", "tiny_classify", "tiny_decode", "nope", "", "..", "tiny\0")
_TENSORS = ("images", "images", "images", "IMAGE", "scores", "", "é\0", "a" * 1025)
_TYPES = ("FP32", "FP32", "FP32", "BYTES", "BOOL", "FP16", "BF16", "UINT8", "INT64", "FP64", "UINT64", "INT8", "", "fp32")
_CONTENTS = (
    "bool_contents",
    "int_contents",
    "int64_contents",
    "uint_contents",
    "uint64_contents",
    "fp32_contents",
    "fp64_contents",
    "bytes_contents",
)
_PARAMETERS = (
    "priority", "timeout", "sequence_id", "sequence_start", "classification", "binary_data", "binary_data_size",
    "binary_data_output",
    "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size", "triton_enable_empty_final_response", "",
)  # fmt: skip
Check = Callable[[list[bytes]], str | None]


def case(draw: Draw, world: World) -> GrpcCase:
    """One call, or a stream of several."""
    if draw.chance(0.2):
        message, check = good(draw, world)
        return GrpcCase(method="ModelInfer", messages=(message,), codes=frozenset({"OK"}), check=check)
    if draw.chance(0.1):
        return _stream(draw, world)
    if draw.chance(0.1):
        return _control(draw, world)
    return GrpcCase(method="ModelInfer", messages=(_odd(draw, world).SerializeToString(),), cancel=draw.chance(0.05))


def good(draw: Draw, world: World) -> tuple[bytes, Check]:
    """A request that is right, with what is wrong with its answer."""
    rows = world.rows(draw.random, draw.weighted({1: 6, 2: 2, BATCH: 1}))
    scores = world.scores(rows)
    message = pb.ModelInferRequest(model_name="tiny", model_version=draw.pick(("", "1")), id=draw.pick(("", "7", "é")))
    tensor = message.inputs.add(name="images", datatype="FP32", shape=rows.shape)
    if draw.chance(0.3):
        tensor.contents.fp32_contents.extend(rows.ravel().tolist())
    else:
        message.raw_input_contents.append(rows.tobytes())
    classes = draw.between(1, 3) if draw.chance(0.3) else 0
    if classes:
        message.outputs.add(name="scores").parameters["classification"].int64_param = classes
    if draw.chance(0.2):
        message.parameters["priority"].int64_param = draw.between(0, 3)
        message.parameters["timeout"].int64_param = 60_000_000

    def check(received: list[bytes]) -> str | None:
        answer = pb.ModelInferResponse.FromString(received[0])
        if (answer.model_name, answer.id) != ("tiny", message.id) or len(answer.outputs) != 1:
            return f"of another request: {answer.model_name!r} {answer.id!r}"
        if not classes:
            return wrong_scores(np.frombuffer(answer.raw_output_contents[0], "<f4"), scores)
        first, second = np.argsort(-scores[0], kind="stable")[:2]
        strings = answer.raw_output_contents[0]
        found = f":{first}:{LABELS[first]}".encode() in strings
        nearly_equal = scores[0][first] - scores[0][second] < 1e-4
        return None if found or nearly_equal else f"{strings[:100]!r} without {LABELS[first]}"

    return message.SerializeToString(), check


def _odd(draw: Draw, world: World) -> Any:
    message = pb.ModelInferRequest(
        model_name=draw.pick(_NAMES), model_version=draw.pick(("", "", "1", "2", "x", "-1", "01")), id=_text(draw)
    )
    _parameters(draw, message.parameters)
    size = 3 * SIDE * SIDE
    for _ in range(draw.weighted({1: 8, 0: 1, 2: 2, 65: 0.3})):
        shape = draw.pick(
            (
                [1, 3, SIDE, SIDE],
                [1, 3, SIDE, SIDE],
                [1, 1],
                [2, 1],
                [1],
                [0],
                [],
                [-1],
                [2**40] * 2,
                [2**62] * 4,
                [1] * 20,
                [0, 3, SIDE, SIDE],
                [draw.pick(NUMBERS[:27])],
            )
        )
        tensor = message.inputs.add(name=draw.pick(_TENSORS), datatype=draw.pick(_TYPES), shape=shape)
        _parameters(draw, tensor.parameters)
        if draw.chance(0.4):
            for _ in range(draw.weighted({1: 6, 2: 1, 0: 1})):
                _fill(draw, tensor.contents, draw.pick(_CONTENTS), draw.pick((size, 1, 0, 2, size - 1)))
            tensor.contents.SetInParent()
    for _ in range(draw.weighted({0: 5, 1: 5, 2: 1})):
        _parameters(
            draw, message.outputs.add(name=draw.weighted({"scores": 8, "probabilities": 1, "": 1, "images": 1})).parameters
        )
    for _ in range(draw.weighted({1: 8, 0: 4, 2: 1, 3: 0.5})):
        image = draw.pick(_IMAGES)
        raw = draw.pick(
            (
                world.rows(draw.random, 1).tobytes(),
                bytes(4 * size - 1),
                b"",
                bytes(4),
                len(image).to_bytes(4, "little") + image,
                draw.bytes(40),
            )
        )
        message.raw_input_contents.append(raw)
    return message


def _fill(draw: Draw, contents: Any, field: str, count: int) -> None:
    values: dict[str, Any] = {
        "bool_contents": True,
        "int_contents": draw.pick((0, -1, 127, 128, 2**31 - 1, -(2**31))),
        "int64_contents": draw.pick((0, -(2**63), 2**63 - 1)),
        "uint_contents": draw.pick((0, 255, 256, 2**32 - 1)),
        "uint64_contents": draw.pick((0, 2**64 - 1)),
        "fp32_contents": draw.pick((0.0, float("nan"), float("inf"), 3e38)),
        "fp64_contents": draw.pick((0.0, 1e308, float("-inf"))),
        "bytes_contents": draw.pick((b"", b"x", draw.pick(_IMAGES))),
    }
    getattr(contents, field).extend([values[field]] * count)


def _parameters(draw: Draw, target: Any) -> None:
    for _ in range(draw.weighted({0: 12, 1: 4, 2: 2, 3: 1})):
        number = draw.pick((0, 1, -1, 2, 7, 3072, 2**31, 2**62, -(2**63), 2**63 - 1))
        kind = draw.pick(("bool_param", "int64_param", "int64_param", "string_param", "double_param", "uint64_param", None))
        value = {
            "bool_param": draw.chance(0.5),
            "int64_param": number,
            "string_param": _text(draw),
            "double_param": draw.pick((0.5, float("nan"), float("inf"))),
            "uint64_param": abs(number),
        }
        parameter = target[draw.pick(_PARAMETERS)]
        if kind is not None:
            setattr(parameter, kind, value[kind])


def _text(draw: Draw) -> str:
    """Protobuf's strings are valid UTF-8."""
    return draw.pick(("", "r0", "r1", "1", draw.text().encode("utf-8", "replace").decode()))


def _stream(draw: Draw, world: World) -> GrpcCase:
    messages = [
        good(draw, world)[0] if draw.chance(0.5) else _odd(draw, world).SerializeToString() for _ in range(draw.between(1, 12))
    ]

    def check(received: list[bytes]) -> str | None:
        answers = [pb.ModelStreamInferResponse.FromString(answer) for answer in received]
        wrong = [answer for answer in answers if bool(answer.error_message) == bool(answer.infer_response.outputs)]
        if len(answers) != len(messages) or wrong:
            return f"{len(answers)} answers to {len(messages)} messages, {len(wrong)} neither an answer nor an error"
        internal = [answer.error_message for answer in answers if "internal error" in answer.error_message]
        return f"{internal[0]!r}" if internal else None

    return GrpcCase(method="ModelStreamInfer", messages=tuple(messages), stream=True, check=check, cancel=draw.chance(0.1))


def _control(draw: Draw, world: World) -> GrpcCase:
    """Metadata, statistics, shared memory, trace settings; log settings that keep errors logged; models of other names than
    `tiny`."""
    source: random.Random = draw.random
    text, size = _text(draw), draw.pick((0, 1, 3072, 65536, 2**63, 2**64 - 1))
    name = draw.pick(("tiny", "spare", "nope", text))
    message: Any = source.choice(
        (
            pb.ModelReadyRequest(name=name, version=draw.pick(("", "1", "x"))),
            pb.ModelMetadataRequest(name=name, version=text),
            pb.ModelConfigRequest(name=name, version=draw.pick(("", "1", "x"))),
            pb.ModelStatisticsRequest(name=name, version=draw.pick(("", "1", "x"))),
            pb.RepositoryIndexRequest(repository_name=text, ready=draw.chance(0.5)),
            pb.SystemSharedMemoryStatusRequest(name=text),
            pb.SystemSharedMemoryRegisterRequest(
                name=text,
                key=draw.pick((world.key, "sem.x", "../x", text)),
                offset=draw.pick((0, 4, 2**64 - 1)),
                byte_size=size,
            ),
            pb.SystemSharedMemoryUnregisterRequest(name=text),
            pb.CudaSharedMemoryRegisterRequest(name=text, raw_handle=draw.bytes(20), byte_size=size),
            pb.TraceSettingRequest(model_name=name),
            pb.LogSettingsRequest(),
            pb.RepositoryModelLoadRequest(model_name=draw.pick(("nope", "..", "\0"))),
            pb.RepositoryModelUnloadRequest(model_name=draw.pick(("nope", "..", "\0"))),
        )
    )
    if isinstance(message, pb.TraceSettingRequest):
        for _ in range(draw.between(0, 2)):
            message.settings[draw.pick(("trace_level", "trace_file", text))].value.extend([text] * draw.between(0, 2))
    if isinstance(message, pb.LogSettingsRequest):
        setattr(
            message.settings[draw.pick(("log_info", "log_warning", "log_file", text))],
            draw.pick(("bool_param", "uint32_param")),
            draw.between(0, 1),
        )
    if isinstance(message, (pb.RepositoryModelLoadRequest, pb.RepositoryModelUnloadRequest)):
        _parameters_of_control(draw, message.parameters)
    method = type(message).__name__.removesuffix("Request")
    return GrpcCase(method=method, messages=(message.SerializeToString(),))


def _parameters_of_control(draw: Draw, target: Any) -> None:
    for _ in range(draw.between(0, 2)):
        kind = draw.pick(("bool_param", "int64_param", "string_param", "bytes_param"))
        value: dict[str, Any] = {
            "bool_param": True,
            "int64_param": 1,
            "string_param": _text(draw),
            "bytes_param": draw.bytes(9),
        }
        setattr(target[draw.pick(("config", "unload_dependents", "file:1/model.onnx", ""))], kind, value[kind])
