"""What a grammar makes: bytes for one connection or one call, and what may come back for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

# docs/protocol.md lists them; 408 and 431 come from the connection itself. 500 is never among them, since no case makes the
# model itself fail.
REFUSED = frozenset({400, 403, 404, 405, 408, 413, 431, 501})
BUSY = frozenset({503})
ANY = REFUSED | BUSY | {200}
CODES = frozenset({"OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"})


@dataclass(frozen=True)
class Answer:
    """One HTTP answer as it was read."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Check = Callable[[Answer], str | None]


@dataclass(frozen=True, kw_only=True)
class HttpCase:
    """Bytes for a connection to one of the ports, in pieces.

    `answers` is how many answers must come; None where the server may read the bytes in several ways. `ending` says what the
    client does then: "answers" leaves once it has them; "half" sends its end and reads on; "wait" leaves it to the server to
    end the connection; "abort" leaves at once. `checks`, one for each answer, say what is wrong with it, or None.
    """

    pieces: tuple[bytes, ...]
    port: Literal["http", "metrics"] = "http"
    answers: int | None = 1
    ending: Literal["answers", "half", "wait", "abort"] = "answers"
    statuses: frozenset[int] = ANY
    checks: tuple[Check, ...] = ()
    heads: bool = False  # some of the answers may have no body, as those to HEAD


@dataclass(frozen=True, kw_only=True)
class GrpcCase:
    """One call. `messages` are several for the method of streams; `check` gets what came back for an OK."""

    method: str
    messages: tuple[bytes, ...]
    metadata: tuple[tuple[str, str | bytes], ...] = ()
    codes: frozenset[str] = CODES
    check: Callable[[list[bytes]], str | None] | None = None
    stream: bool = False
    cancel: bool = False  # the caller leaves at once


@dataclass(frozen=True, kw_only=True)
class Http2Case:
    """Bytes for a connection to the gRPC port, which may say what is wrong in frames, and must end it.

    `contains` must be among what comes back.
    """

    pieces: tuple[bytes, ...]
    contains: bytes = b""
    ending: Literal["half", "wait", "abort"] = "half"


Case = HttpCase | GrpcCase | Http2Case


@dataclass(frozen=True)
class Problem:
    """A case whose outcome broke a rule."""

    case: str  # seed:number
    grammar: str
    what: str
    sent: str


@dataclass(kw_only=True)
class Outcome:
    """How a case ended: a status or code for the counts, and what is wrong, if anything."""

    statuses: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def request(
    method: str, path: str, body: bytes = b"", headers: Mapping[str, str | int] | None = None, *, close: bool = False
) -> bytes:
    """A well-formed HTTP/1.1 request; header values that are no Latin-1 go out as UTF-8."""
    fields = {"Host": "localhost", **({"Content-Length": len(body)} if body or method == "POST" else {}), **(headers or {})}
    if close:
        fields["Connection"] = "close"
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + body


def ask(path: str, body: bytes, headers: Mapping[str, str | int] | None = None, **options: object) -> HttpCase:
    """One POST on a connection of its own, answered once."""
    return HttpCase(pieces=(request("POST", path, body, headers),), **options)  # type: ignore[arg-type]
