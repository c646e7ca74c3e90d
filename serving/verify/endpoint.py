"""How an address takes images or tensors, found by asking it, and its answers as rows of class scores."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import numpy as np

from ...errors import HeadraceError, VerifyError
from ...runtime.artifact.model_config import DATATYPES as PROTOCOL_NAMES
from ..bench.load.messages import Encoding, encoded
from ..protocol.messages import DATATYPES, bytes_array
from ..triton.exchange import Answer, Case, Exchange, Given
from .answers import Row, UnreadableError, Vocabulary, beginning, from_scores, read_answer
from .client import Client, Unreachable
from .images import Sample
from .scores import Refusal

# What a garbled answer makes of code that trusts it.
GARBLED = (KeyError, TypeError, ValueError, LookupError, AttributeError, RecursionError, OverflowError, HeadraceError)
_FIELDS = ("file", "image", "img", "photo", "upload")
_GOOD = range(200, 300)
_BUSY = (429, 503, "RESOURCE_EXHAUSTED", "UNAVAILABLE")


class Endpoint(Protocol):
    """What is judged. `most_rows` is how many items one request may have, as far as is known."""

    title: str
    takes_images: bool
    most_rows: int

    def ask(self, items: Sequence[Any]) -> list[Row | Refusal]:
        """What it answers to items in one request. Raises Unreachable where no answer comes."""
        ...


class Upload:
    """Images by POST, one each: as the body, or as the file of a form."""

    takes_images = True
    most_rows = 1

    def __init__(self, client: Client, target: str, encoding: Encoding, field: str, vocabulary: Vocabulary) -> None:
        self._client, self._target, self._encoding, self._field = client, target, encoding, field
        self._vocabulary = vocabulary
        way = "the image as the body" if encoding == "body" else f"the image as the field {field!r} of a form"
        self.title = f"POST {client.origin}{target}, {way}"

    def ask(self, items: Sequence[Sample]) -> list[Row | Refusal]:
        (sample,) = items
        headers, body = encoded(sample.data, sample.content_type, self._encoding, self._field)
        try:
            status, _, answer = self._client.call("POST", self._target, body, headers)
        except Unreachable:
            raise
        except VerifyError as error:
            return [Refusal(str(error))]
        if status not in _GOOD:
            return [Refusal(f"HTTP {status} {beginning(answer)}", busy=status in _BUSY)]
        try:
            return [read_answer(answer, self._vocabulary)]
        except UnreadableError as error:
            return [Refusal(str(error))]


def find_upload(
    client: Client, target: str, vocabulary: Vocabulary, trials: Sequence[Sample], *, field: str | None = None
) -> Upload:
    """How that address takes one of some images: the first way that is answered with classes. Raises VerifyError with what each
    said."""
    ways: list[tuple[Encoding, str]] = [("form", name) for name in ((field,) if field else _FIELDS)]
    if field is None:
        ways.insert(0, ("body", ""))
    said = {}
    for sample, (encoding, name) in itertools.product(trials, ways):
        upload = Upload(client, target, encoding, name, vocabulary)
        (answer,) = upload.ask([sample])
        if isinstance(answer, Row):
            return upload
        said[name] = f"  {f'as the field {name!r}' if name else 'as the body'}: {answer.why}"
    labels = ", ".join(vocabulary.labels[:5]) or f"numbers below {vocabulary.count}"
    raise VerifyError(
        f"{client.origin}{target} answers an image in no way that can be read; --field names the form's field, and the answer "
        f"must be JSON with the package's classes ({labels}):\n" + "\n".join(said.values())
    )


@dataclass(frozen=True, kw_only=True)
class Interface:
    """What a server says of a model: (name, datatype, shape) of its inputs and outputs; sizes that vary are -1."""

    model: str
    version: str
    inputs: tuple[tuple[str, str, tuple[int, ...]], ...]
    outputs: tuple[tuple[str, str, tuple[int, ...]], ...]

    @classmethod
    def read(cls, metadata: Any, model: str, version: str = "") -> Interface:
        """From the protocol's metadata, as JSON. Raises VerifyError."""
        try:
            sides = [
                tuple(
                    (str(one["name"]), str(one["datatype"]), tuple(int(size) for size in one["shape"]))
                    for one in metadata[side]
                )
                for side in ("inputs", "outputs")
            ]
        except GARBLED:
            raise VerifyError(
                f"the server's metadata of {model} are none of the Open Inference Protocol: {str(metadata)[:120]!r}"
            ) from None
        if not sides[0] or not sides[1]:
            raise VerifyError(f"the server's metadata of {model} name no inputs or no outputs")
        return cls(model=model, version=version, inputs=sides[0], outputs=sides[1])


class Inference:
    """A model of the Open Inference Protocol, over HTTP or gRPC, that takes encoded images or the model's own rows."""

    def __init__(self, exchange: Exchange, interface: Interface, vocabulary: Vocabulary, *, title: str, most_rows: int) -> None:
        self._exchange, self._interface, self._vocabulary = exchange, interface, vocabulary
        self.input, self.datatype, self.shape = interface.inputs[0]
        self.takes_images = self.datatype == "BYTES"
        fits = [name for name, _, shape in interface.outputs if _size(shape) in (vocabulary.count, None)]
        self.output = (fits or [interface.outputs[0][0]])[0]
        self.title = title
        self.most_rows = most_rows if self.shape[:1] == (-1,) or len(self.shape) == 0 else max(1, self.shape[0])

    def mismatch(self, dtype: str, row_shape: tuple[int, ...]) -> str | None:
        """Why a package's rows are nothing to it; None where they fit, or where it takes images."""
        if len(self._interface.inputs) != 1:
            return f"it takes {len(self._interface.inputs)} inputs, the package's model one"
        if self.takes_images:
            return None
        if self.datatype not in DATATYPES:
            return f"it takes {self.datatype}, which cannot be sent"
        shape = self.shape[1:]
        if len(shape) != len(row_shape) or any(one not in (-1, own) for one, own in zip(shape, row_shape, strict=True)):
            return f"its rows have the shape {list(shape)}, the package's {list(row_shape)}"
        if self.datatype != PROTOCOL_NAMES[dtype] and self.datatype not in ("FP16", "FP32", "FP64"):
            return f"it takes {self.datatype}, the package's model {PROTOCOL_NAMES[dtype]}"
        return None

    def ask(self, items: Sequence[Any]) -> list[Row | Refusal]:
        answer = self._answer(items, ())
        if isinstance(answer, Refusal):
            return [answer] * len(items)
        try:
            _, array = answer.outputs[self.output]
            if len(array) != len(items):
                return [Refusal(f"{len(array)} rows came back for {len(items)}")] * len(items)
            if array.size != len(items) * self._vocabulary.count:
                return [Refusal(f"its output {self.output!r} has the shape {list(array.shape)}")] * len(items)
            found: list[Row | Refusal] = []
            for index in range(len(items)):
                outputs = {name: value[index] for name, (kind, value) in answer.outputs.items() if kind != "BYTES"}
                found.append(_row(array[index], outputs))
            return found
        except GARBLED as error:
            return [_garbled(error)] * len(items)

    def labels(self, item: Any) -> dict[int, str] | None:
        """The label of each class by the classification extension; None where it does not have that."""
        answer = self._answer([item], ((self.output, {"classification": self._vocabulary.count}),))
        if isinstance(answer, Refusal):
            return None
        try:
            kind, strings = answer.outputs[self.output]
            parts = [value.decode().split(":", 2) for value in strings.ravel()] if kind == "BYTES" else []
            return {int(part[1]): part[2] for part in parts if len(part) == 3} or None
        except GARBLED:
            return None

    def _answer(self, items: Sequence[Any], outputs: tuple[tuple[str, Mapping[str, Any]], ...]) -> Answer | Refusal:
        case = Case(
            name="verify",
            model=self._interface.model,
            version=self._interface.version,
            inputs=(self._given(items),),
            outputs=outputs or tuple((name, {}) for name, _, _ in self._interface.outputs),
        )
        try:
            answer = self._exchange.infer(case)
        except Unreachable:
            raise
        except VerifyError as error:
            return Refusal(str(error))
        except GARBLED as error:
            return _garbled(error)
        if answer.good:
            return answer
        return Refusal(f"{answer.status} {answer.error[:160]}", busy=answer.status in map(str, _BUSY))

    def _given(self, items: Sequence[Any]) -> Given:
        if self.takes_images:
            shape = (len(items), 1) if len(self.shape) > 1 else (len(items),)
            return Given(name=self.input, datatype="BYTES", array=bytes_array([item.data for item in items], shape))
        return Given(name=self.input, datatype=self.datatype, array=np.stack(items).astype(DATATYPES[self.datatype]))


def target_of(url: str) -> str:
    """Path and query of an address."""
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def with_count(target: str, vocabulary: Vocabulary) -> str:
    """Our own route, asked for all classes, 1000 at most, unless the address says how many."""
    parts = urlsplit(target)
    asked = parse_qs(parts.query)
    return target if "k" in asked else f"{target}{'&' if parts.query else '?'}k={min(1000, vocabulary.count)}"


def _row(values: np.ndarray, outputs: Mapping[str, np.ndarray]) -> Row | Refusal:
    row = from_scores(values)
    return replace(row, decimals=17, outputs=outputs) if row.finite else Refusal("the answer holds NaN or infinity")


def _size(shape: tuple[int, ...]) -> int | None:
    """How many values a row of an output has; None where that varies."""
    return None if any(size < 0 for size in shape[1:]) else int(np.prod(shape[1:] or (1,)))


def _garbled(error: Exception) -> Refusal:
    what = str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__} {str(error)[:100]}"
    if isinstance(error, json.JSONDecodeError):
        what = "it is no JSON"
    return Refusal(f"the answer is none of the Open Inference Protocol ({what})")
