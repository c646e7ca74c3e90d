"""The requests that both servers get, made from what a model says of itself."""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..protocol.messages import DATATYPES, bytes_array
from .exchange import Case, Given

_VARIES = 64  # what stands for a size that the model leaves open
_TEXT = "BYTES"


def good_cases(metadata: Mapping[str, Any], largest: int) -> list[Case]:
    """What must be answered: rows from 1 to the largest batch, named outputs and versions, classification."""
    name, outputs = metadata["name"], [output["name"] for output in metadata["outputs"]]
    if _takes_images(metadata) is None:
        return []
    few = _inputs(metadata, min(2, largest))
    cases = [
        Case(name=f"{rows} rows", model=name, inputs=_inputs(metadata, rows)) for rows in sorted({1, min(2, largest), largest})
    ]
    cases += [
        Case(name="a version by its number", model=name, inputs=few, version=metadata["versions"][0]),
        Case(name="every output by its name", model=name, inputs=few, outputs=tuple((output, {}) for output in outputs)),
        Case(name="a priority and a timeout", model=name, inputs=few, parameters={"priority": 1, "timeout": 20_000_000}),
    ]
    if not name.endswith("_decode"):
        for count in (1, 3, 1 << 30):
            asked = ((outputs[0], {"classification": count}),)
            cases.append(Case(name=f"{count} classes", model=name, inputs=few, outputs=asked))
        cases.append(Case(name="2^40 classes", model=name, inputs=few, outputs=((outputs[0], {"classification": 1 << 40}),)))
    return cases


def unanswerable_cases(metadata: Mapping[str, Any], largest: int) -> list[Case]:
    """What no server can answer, one mistake each."""
    name = metadata["name"]
    if _takes_images(metadata) is None:
        return []
    inputs, output = _inputs(metadata, 1), metadata["outputs"][0]["name"]
    first, others = inputs[0], inputs[1:]
    flat = first.array.reshape(-1)
    other_type = "FP64" if first.datatype != "FP64" else "FP32"
    swapped = Given(name=first.name, datatype=other_type, array=np.zeros(first.array.shape, DATATYPES[other_type]))

    def instead(name_: str, *given: Given) -> Case:
        return Case(name=name_, model=name, inputs=(*given, *others))

    def with_output(name_: str, *asked: tuple[str, Mapping[str, Any]]) -> Case:
        return Case(name=name_, model=name, inputs=inputs, outputs=asked)

    def with_parameter(name_: str, **parameters: Any) -> Case:
        return Case(name=name_, model=name, inputs=inputs, parameters=parameters)

    cases = [
        Case(name="an unknown model", model="no_such_model", inputs=inputs),
        Case(name="an unknown version", model=name, inputs=inputs, version="987"),
        Case(name="no inputs", model=name),
        instead("an unknown input", Given(name="no_such_input", datatype=first.datatype, array=first.array)),
        instead("an input too many", first, Given(name="no_such_input", datatype=first.datatype, array=first.array)),
        instead("an input twice", first, first),
        instead("another data type", swapped),
        instead("a dimension too few", Given(name=first.name, datatype=first.datatype, array=flat)),
        instead(
            "a size below zero",
            Given(name=first.name, datatype=first.datatype, array=first.array, shape=(-1, *first.array.shape[1:])),
        ),
        instead("no rows", Given(name=first.name, datatype=first.datatype, array=first.array[:0])),
        Case(name="too many rows", model=name, inputs=_inputs(metadata, largest + 1)),
        with_output("an unknown output", ("no_such_output", {})),
        with_output("an output twice", (output, {}), (output, {})),
        with_output("classification below zero", (output, {"classification": -1})),
        with_output("classification as text", (output, {"classification": "3"})),
        with_parameter("priority below zero", priority=-1),
        with_parameter("timeout is a fraction", timeout=0.5),
        with_parameter("no time", timeout=1),
        with_parameter("a sequence", sequence_id=3),
    ]
    if _takes_images(metadata):
        cases.append(instead("no image", Given(name=first.name, datatype=_TEXT, array=bytes_array([b"no image"], (1, 1)))))
    else:
        wrong = np.zeros((*first.array.shape[:-1], first.array.shape[-1] + 1), first.array.dtype)
        cases.append(instead("another size", Given(name=first.name, datatype=first.datatype, array=wrong)))
    return cases


def _takes_images(metadata: Mapping[str, Any]) -> bool | None:
    """Whether its one input is encoded images; None where nobody can tell what a text of its inputs should be."""
    kinds = [tensor["datatype"] for tensor in metadata["inputs"]]
    if _TEXT not in kinds:
        return False
    return True if kinds == [_TEXT] and metadata["name"].endswith(("_decode", "_classify")) else None


def _inputs(metadata: Mapping[str, Any], rows: int) -> tuple[Given, ...]:
    if _takes_images(metadata):
        return (Given(name=metadata["inputs"][0]["name"], datatype=_TEXT, array=_images(rows)),)
    random = np.random.default_rng(rows)
    return tuple(
        Given(name=one["name"], datatype=one["datatype"], array=_noise(random, one, rows)) for one in metadata["inputs"]
    )


def _noise(random: np.random.Generator, tensor: Mapping[str, Any], rows: int) -> np.ndarray:
    shape = (rows, *(_VARIES if size == -1 else size for size in tensor["shape"][1:]))
    dtype = np.dtype(DATATYPES[tensor["datatype"]])
    if dtype.kind == "f":
        return random.normal(size=shape).astype(dtype)
    return random.integers(0, 256 if dtype == np.uint8 else 2, shape).astype(dtype)


@functools.cache
def _images(count: int) -> np.ndarray:
    """Encoded photographs of noise, PNG and JPEG in turn: BYTES [count, 1]."""
    from PIL import Image

    random, encoded = np.random.default_rng(count), []
    for number in range(count):
        small = Image.fromarray(random.integers(0, 256, (9, 12, 3), dtype=np.uint8))
        data = io.BytesIO()
        small.resize((320, 240), Image.Resampling.BICUBIC).save(data, ("PNG", "JPEG")[number % 2])
        encoded.append(data.getvalue())
    return bytes_array(encoded, (count, 1))
