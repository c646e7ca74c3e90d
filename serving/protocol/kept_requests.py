"""An image in a JSON object, as applications take it: base64 in one member, with or without the head that browsers write."""

from __future__ import annotations

import re

from ...errors import InputError
from .instances import decode_base64
from .json_limits import LongString, parse_json

_DATA_URL = re.compile(r"data:[A-Za-z0-9.+/-]{1,100};base64,")


def image_of_json(body: bytes, name: str, *, max_depth: int, max_values: int) -> bytes:
    """The image in the member `name`, which must be the only one: what another changed of the application's answers is not
    known.

    Raises InputError saying what was expected.
    """
    message = parse_json(body, max_depth=max_depth, max_values=max_values, max_string=len(body))
    text = message.get(name) if isinstance(message, dict) else None
    if not isinstance(text, str | LongString):
        raise InputError(f"the request must be a JSON object whose {name!r} is an image in base64")
    if others := sorted(set(message) - {name}):
        raise InputError(f"unknown field {others[0][:100]!r}; this path takes {name!r} alone")
    first, *rest = text.pieces if isinstance(text, LongString) else [text]
    head = _DATA_URL.match(first)
    return decode_base64([first[head.end() :] if head else first, *rest], repr(name))
