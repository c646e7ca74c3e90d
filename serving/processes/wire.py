"""The bytes of the messages between processes: small records of fixed size for every request, JSON for what is rare."""

from __future__ import annotations

import json
import struct
from functools import cached_property
from typing import Any, cast, get_args

from pydantic import TypeAdapter

from . import messages
from .messages import Message

_HEAD = struct.Struct("<BI")  # the kind of a message by its place in the table of kinds, and how many bytes follow
_MAX_BYTES = 64 << 20


class WireError(Exception):
    """What arrived cannot have been sent by the other half of this program."""


class _Record:
    """The numbers of a message in `layout`, and after them its last field where that is a text."""

    def __init__(self, kind: Any, layout: str, *, text: bool = False) -> None:
        self.kind, self._text = kind, text
        self._layout = struct.Struct(f"<{layout}")

    def encode(self, message: Any) -> bytes:
        if not self._text:
            return self._layout.pack(*message)
        return self._layout.pack(*message[:-1]) + message[-1].encode("utf-8", "replace")

    def decode(self, body: bytes) -> Message:
        size = self._layout.size
        if len(body) < size or (len(body) > size and not self._text):
            raise ValueError(f"it takes {size} bytes")
        text = (body[size:].decode(),) if self._text else ()
        return cast(Message, self.kind(*self._layout.unpack_from(body), *text))


class _Document:
    """The fields of a message as JSON."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    @cached_property
    def _adapter(self) -> TypeAdapter[Message]:
        return TypeAdapter(self.kind)

    def encode(self, message: Any) -> bytes:
        text = json.dumps(self._adapter.dump_python(message, mode="json"), ensure_ascii=False)
        return text.encode("utf-8", "replace")

    def decode(self, body: bytes) -> Message:
        return self._adapter.validate_python(json.loads(body))


_RECORDS = (
    _Record(messages.Alive, ""),
    _Record(messages.Admit, "QIIQIQddd"),
    _Record(messages.Submit, "Q"),
    _Record(messages.Cancel, "Q"),
    _Record(messages.Expire, "Q"),
    _Record(messages.Rejected, "Q"),
    _Record(messages.Count, "IBIQ"),
    _Record(messages.Done, "QddI"),
    _Record(messages.Failed, "QHI", text=True),
    _Record(messages.Seen, "Q"),
    _Record(messages.Released, "I"),
    _Record(messages.Settled, "QHI", text=True),
    _Record(messages.AskStatistics, "Q"),
    _Record(messages.AskHistory, "Q"),
)
_KINDS: tuple[_Record | _Document, ...] = (
    *_RECORDS,
    *(_Document(kind) for kind in get_args(Message) if kind not in {record.kind for record in _RECORDS}),
)
_NUMBERS = {form.kind: (number, form) for number, form in enumerate(_KINDS)}


def encode(message: Message) -> bytes:
    """The message's bytes."""
    number, form = _NUMBERS[type(message)]
    body = form.encode(message)
    return _HEAD.pack(number, len(body)) + body


def decode(data: bytes) -> Message:
    """The one message that `data` holds. Raises WireError on anything else."""
    found = _message_at(data, 0)
    if found is None or found[1] != len(data):
        raise WireError(f"a message that is cut off, or followed by something, in {len(data)} bytes")
    return found[0]


class Reader:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now. Raises WireError on what is no message."""
        held, at = self._held + data if self._held else data, 0
        complete: list[Message] = []
        while (found := _message_at(held, at)) is not None:
            message, at = found
            complete.append(message)
        self._held = held[at:]
        return complete


def _message_at(data: bytes, at: int) -> tuple[Message, int] | None:
    """The message that begins there, and where it ends; None while its end has not come."""
    begin = at + _HEAD.size
    if len(data) < begin:
        return None
    number, length = _HEAD.unpack_from(data, at)
    if number >= len(_KINDS):
        raise WireError(f"there is no message of kind {number}")
    form = _KINDS[number]
    name = form.kind.__name__
    if length > _MAX_BYTES:
        raise WireError(f"a {name} message of {length} bytes; at most {_MAX_BYTES} are taken")
    if len(data) < begin + length:
        return None
    try:
        return form.decode(data[begin : begin + length]), begin + length
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise WireError(f"a {name} message of {length} bytes that cannot be read: {error}") from error
