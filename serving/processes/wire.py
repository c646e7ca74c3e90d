"""What a front end and the engine say to each other: small records of fixed size, a few with a text after them.

Tensors are not in here: they lie in the memory that both processes share. Times are on the machine's monotonic clock, which
all processes read alike.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

__all__ = [
    "Admit",
    "AskStatistics",
    "Cancel",
    "Catalogue",
    "Control",
    "Count",
    "Counted",
    "Done",
    "Expire",
    "Failed",
    "Message",
    "Reader",
    "Refuse",
    "Released",
    "Seen",
    "Settled",
    "Statistics",
    "Submit",
    "WireError",
    "encode",
]


class WireError(Exception):
    """What arrived cannot have been sent by the other half of this program."""


class Admit(NamedTuple):
    """A front end asks for a place; the request's block of shared memory begins at `offset`. Times in seconds."""

    ticket: int
    model: int
    rows: int
    priority: int
    offset: int
    arrived: float
    timeout: float


class Submit(NamedTuple):
    """The inputs of an admitted request lie in its block."""

    ticket: int


class Cancel(NamedTuple):
    """Nobody waits for the answer any more."""

    ticket: int


class Expire(NamedTuple):
    """The request's deadline has passed."""

    ticket: int


class Refuse(NamedTuple):
    """The front end has refused the request itself, as one whose image cannot be decoded."""

    ticket: int


class Count(NamedTuple):
    """Something to count in a model's statistics; `what` is one of `Counted`. `rows` of a failure is its index in FAILURES."""

    model: int
    what: int
    rows: int
    ns: int


class AskStatistics(NamedTuple):
    """Asks for `Statistics` with the same number."""

    question: int


class Done(NamedTuple):
    """The outputs lie in the request's block, which the engine does not touch again.

    They were computed from `began` to `ended`, in seconds, in a batch of so many rows.
    """

    ticket: int
    began: float
    ended: float
    batch: int


class Failed(NamedTuple):
    """The request ended without outputs: an HTTP status and what to say; the engine does not touch its block again."""

    ticket: int
    status: int
    retry_after: int
    text: str


class Catalogue(NamedTuple):
    """Which models there are, as JSON; to be answered with `Seen`, and with `Released` for each that is not in it any more."""

    serial: int
    text: str


class Seen(NamedTuple):
    """From here on the front end begins no request to a model that is not in this catalogue."""

    serial: int


class Released(NamedTuple):
    """The front end has no request to this model any more, and begins none."""

    model: int


class Control(NamedTuple):
    """A client asks to load or unload a model, as JSON; to be answered with `Settled`."""

    question: int
    text: str


class Settled(NamedTuple):
    """It was done (status 0), and every front end has seen it; or it failed, with an HTTP status and what to say."""

    question: int
    status: int
    retry_after: int
    text: str


class Statistics(NamedTuple):
    """All models' statistics, as JSON."""

    question: int
    text: str


class Counted:
    """What `Count.what` stands for."""

    FAILED = 0
    COMPOSED = 1
    CACHED = 2
    MISSED = 3
    DECODED = 4


Message = (
    Admit
    | Submit
    | Cancel
    | Expire
    | Refuse
    | Count
    | AskStatistics
    | Done
    | Failed
    | Catalogue
    | Seen
    | Released
    | Statistics
    | Control
    | Settled
)

# Kind of record -> its numbers; those named in _TEXTED end with a text. A record's kind is its place in this table.
_LAYOUTS: dict[type[Message], struct.Struct] = {
    Admit: struct.Struct("<QIIQQdd"),
    Submit: struct.Struct("<Q"),
    Cancel: struct.Struct("<Q"),
    Expire: struct.Struct("<Q"),
    Refuse: struct.Struct("<Q"),
    Count: struct.Struct("<IBIQ"),
    AskStatistics: struct.Struct("<Q"),
    Done: struct.Struct("<QddI"),
    Failed: struct.Struct("<QHI"),
    Catalogue: struct.Struct("<Q"),
    Seen: struct.Struct("<Q"),
    Released: struct.Struct("<I"),
    Statistics: struct.Struct("<Q"),
    Control: struct.Struct("<Q"),
    Settled: struct.Struct("<QHI"),
}
_TEXTED = (Failed, Catalogue, Statistics, Control, Settled)
_KINDS = tuple((kind, layout, kind in _TEXTED) for kind, layout in _LAYOUTS.items())
_NUMBERS = {kind: number for number, kind in enumerate(_LAYOUTS)}
_HEAD = struct.Struct("<BI")
_MAX_TEXT = 64 << 20


def encode(message: Message) -> bytes:
    """The record's bytes."""
    kind = type(message)
    layout = _LAYOUTS[kind]
    text = message[-1].encode("utf-8", "replace") if isinstance(message, _TEXTED) else b""
    numbers = message[:-1] if kind in _TEXTED else message
    return _HEAD.pack(_NUMBERS[kind], len(text)) + layout.pack(*numbers) + text


class Reader:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now. Raises WireError on what is no record."""
        held = self._held + data if self._held else data
        at = 0
        messages: list[Message] = []
        while len(held) - at >= _HEAD.size:
            number, length = _HEAD.unpack_from(held, at)
            if number >= len(_KINDS):
                raise WireError(f"there is no record of kind {number}")
            kind, layout, texted = _KINDS[number]
            if length > (_MAX_TEXT if texted else 0):
                raise WireError(f"a {kind.__name__} record with a text of {length} bytes")
            end = at + _HEAD.size + layout.size + length
            if end > len(held):
                break
            numbers = layout.unpack_from(held, at + _HEAD.size)
            text = (held[end - length : end].decode(),) if texted else ()
            messages.append(kind(*numbers, *text))
            at = end
        self._held = held[at:]
        return messages
