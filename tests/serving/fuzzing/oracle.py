"""What any answer must be, whatever was asked: of the documented form, in the documented set, and silent about the inside."""

from __future__ import annotations

import json
import re

from case import Answer

# Of the server's inside: tracebacks, files of the machine, Python's way to print objects.
_INSIDE = re.compile(rb"Traceback|\.py\b|/site-packages/|/tmp/|/usr/|/home/|/dev/shm|object at 0x|<class ")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
# These are given by the connection, before there is a request that could have an id.
_OF_THE_CONNECTION = {400, 408, 413, 431}


def problems_of(answer: Answer, *, head: bool = False, sent: bytes = b"") -> list[str]:
    """What is wrong with an answer by itself. What was `sent` may come back: Hypothesis sends words of our own sources."""
    found = []
    if answer.status >= 500 and answer.status not in (501, 503):
        found.append(f"status {answer.status}")
    tensors = answer.headers.get("content-type") == "application/octet-stream"  # whose bytes may be any
    told = () if tensors else (match.group() for match in _INSIDE.finditer(answer.body))
    if (inside := next((word for word in told if word not in sent), None)) is not None:
        found.append(f"the answer tells of the inside: {inside!r}")
    if answer.status >= 400 and not (head and not answer.body):
        found += _problems_of_error(answer)
    if answer.status == 503 and not answer.headers.get("retry-after", "").isdecimal():
        found.append("503 without Retry-After")
    given = answer.headers.get("x-request-id")
    if given is None and answer.status not in _OF_THE_CONNECTION:
        found.append("no X-Request-Id")
    elif given is not None and not _REQUEST_ID.fullmatch(given):
        found.append(f"X-Request-Id is {given!r}")
    return found


def _problems_of_error(answer: Answer) -> list[str]:
    if answer.headers.get("content-type", "").partition(";")[0] != "application/json":
        return [f"an error of type {answer.headers.get('content-type')!r}"]
    try:
        message = strict_json(answer.body)
    except ValueError as error:
        return [f"an error that is no JSON: {error}"]
    if not (
        isinstance(message, dict) and list(message) == ["error"] and isinstance(message["error"], str) and message["error"]
    ):
        return [f'an error that is not {{"error": "..."}}: {answer.body[:200]!r}']
    if len(message["error"]) > 5000:
        return ["an error that repeats what was sent at length"]
    return []


def problems_of_details(text: str) -> list[str]:
    """The same for the details of a gRPC error."""
    inside = _INSIDE.search(text.encode("utf-8", "surrogatepass"))
    return ([f"the error tells of the inside: {inside.group()!r}"] if inside else []) + (
        [] if text else ["an error without words"]
    )


def strict_json(text: bytes, *, nan: bool = False) -> object:
    """The value of a JSON text as RFC 8259 has it; NaN and Infinity only with `nan`."""

    def refuse(word: str) -> float:
        if nan:
            return float(word)
        raise ValueError(f"{word} is no JSON")

    return json.loads(text.decode(), parse_constant=refuse)
