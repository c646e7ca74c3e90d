"""JSON from strangers: bounded in depth, and every way in which it can be wrong is one clear error."""

from __future__ import annotations

import json
import re
from typing import Any

from ...errors import InputError

# Strings go first, so that brackets inside them do not count.
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
# Below this size a document cannot nest deeply enough to matter and the scan is skipped.
_SMALL = 64


def parse_json(data: bytes, *, max_depth: int = 32) -> Any:
    """The document's value; raises InputError when it is malformed, not UTF-8, or nested deeper than `max_depth`."""
    if len(data) > _SMALL:
        _check_depth(data, max_depth)
    try:
        return json.loads(data.decode())
    except UnicodeDecodeError:
        raise InputError("the request is not valid UTF-8") from None
    except RecursionError:
        raise InputError(f"the JSON is nested deeper than {max_depth} levels") from None
    except ValueError as error:
        where = f" at line {error.lineno} column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(f"the request is not valid JSON{where}") from None


def _check_depth(data: bytes, limit: int) -> None:
    opening = data.count(b"[") + data.count(b"{")
    if opening <= limit:
        return
    depth = 0
    for match in _BRACKETS.finditer(data):
        token = match.group()
        if token in (b"[", b"{"):
            depth += 1
            if depth > limit:
                raise InputError(f"the JSON is nested deeper than {limit} levels")
        elif token in (b"]", b"}"):
            depth -= 1
