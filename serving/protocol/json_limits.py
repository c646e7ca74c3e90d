"""JSON from strangers: bounded in all that it can cost, and every way in which it can be wrong is one clear error.

Python's reader keeps every other thread waiting until it is done, the one that answers probes too. So it gets long documents in
pieces of some milliseconds: what lies between them, the structure, is read here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InputError, TooLargeError

# Documents up to this size are read in one piece, in a few milliseconds.
SMALL_JSON = 64 * 1024
# What else a document may have: lists, objects, members and strings; and the bytes of a string.
_MAX_PARTS, _MAX_STRING = 200_000, 1 << 20
_PIECE = 32 * 1024  # bytes of numbers or white space
_COUNTED = 1 << 20

# Strings go first, so that brackets inside them do not count.
_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
# Below this size a document cannot nest deeply enough to matter and the scan is skipped.
_TINY = 64
_BLANKS = re.compile(rb"[ \t\r\n]++")
_NUMBERS = re.compile(rb"[-+.0-9eE,\s]*+")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
# The characters of a string, but no escape that is not whole; and the first half of a pair of escapes, which is one character.
_CHARACTERS = re.compile(rb'(?:[^"\\]++|\\u[0-9a-fA-F]{4}|\\[^u])*+', re.DOTALL)
_HALF_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}")
_WORD = re.compile(rb"true|false|null|NaN|-?Infinity")


@dataclass(frozen=True, slots=True)
class LongString:
    """A string of more than 1 MiB, where such are allowed, in the pieces that were read: joining them is one long copy."""

    pieces: tuple[str, ...]


def parse_json(
    data: bytes, *, end: int | None = None, max_depth: int = 32, max_values: int = 1 << 22, max_string: int = _MAX_STRING
) -> Any:
    """The value of the document in the first `end` bytes, by default in all.

    Raises InputError when it is malformed, not UTF-8, or nested deeper than `max_depth`, and TooLargeError when it has more
    than `max_values` numbers, a string of more than `max_string` bytes, or more of anything else than a tensor needs. With a
    `max_string` above 1 MiB, what is longer than that is a `LongString`.
    """
    try:
        end = len(data) if end is None else end
        if end > SMALL_JSON:
            return _Reading(data, end, max_depth, max_values, max_string).document()
        data = data[:end]
        if len(data) > _TINY:
            _check_depth(data, max_depth)
        return json.loads(data.decode())
    except UnicodeDecodeError:
        raise InputError("the request is not valid UTF-8") from None
    except RecursionError:
        raise InputError(f"JSON nesting depth exceeds maximum allowed limit ({max_depth})") from None
    except ValueError as error:
        where = f" at line {error.lineno} column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(f"the request is not valid JSON{where}") from None


def weight(data: bytes | memoryview) -> int:
    """About how many bytes of objects its numbers become. Other threads go on meanwhile."""
    found = np.frombuffer(data, np.uint8)
    return 40 * sum(int(np.count_nonzero(found[at : at + _COUNTED] == ord(","))) for at in range(0, len(found), _COUNTED))


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
                raise InputError(f"JSON nesting depth exceeds maximum allowed limit ({limit})")
        elif token in (b"]", b"}"):
            depth -= 1


class _Reading:
    """One long document, and how far it is read."""

    def __init__(self, data: bytes, end: int, max_depth: int, max_values: int, max_string: int) -> None:
        self._data, self._end = data, end
        self._max_string = max_string
        self._max_depth = max_depth
        self._max_values = max_values
        self._at = self._parts = self._values = 0

    def document(self) -> Any:
        value = self._value(0)
        if self._next():
            raise self._wrong()
        return value

    def _next(self) -> bytes:
        """The next byte that is not blank; empty at the end."""
        while found := _BLANKS.match(self._data, self._at, self._most(_PIECE)):
            self._at = found.end()
        return self._data[self._at : self._most(1)]

    def _most(self, count: int) -> int:
        """Where so many bytes from here end, in the document."""
        return min(self._at + count, self._end)

    def _value(self, depth: int) -> Any:
        begin = self._next()
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise TooLargeError(
                f"the JSON has more than {_MAX_PARTS:,} lists, objects and strings; send tensors as binary data"
            )
        if begin in (b"[", b"{"):
            if depth == self._max_depth:
                raise InputError(f"JSON nesting depth exceeds maximum allowed limit ({self._max_depth})")
            self._at += 1
            return self._list(depth + 1) if begin == b"[" else self._object(depth + 1)
        if begin == b'"':
            return self._string()
        if word := _WORD.match(self._data, self._at, self._end):
            self._at = word.end()
            return self._load(word.group())
        (number,) = self._numbers(most=1)
        return number

    def _list(self, depth: int) -> list[Any]:
        items: list[Any] = []
        if self._next() == b"]":
            self._at += 1
            return items
        while True:
            begin = self._next()
            if begin.isdigit() or (begin == b"-" and self._data[self._at + 1 : self._at + 2].isdigit()):
                items += self._numbers()
            else:
                items.append(self._value(depth))
            if self._ends(b"]"):
                return items

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        if self._next() == b"}":
            self._at += 1
            return members
        while True:
            if self._next() != b'"':
                raise self._wrong()
            name = self._string()
            if isinstance(name, LongString):
                raise TooLargeError(f"a name in the JSON has more than {_MAX_STRING:,} bytes")
            if self._next() != b":":
                raise self._wrong()
            self._at += 1
            members[name] = self._value(depth)
            if self._ends(b"}"):
                return members

    def _ends(self, bracket: bytes) -> bool:
        """Whether what is read now ends here, or goes on after a comma."""
        found = self._next()
        if found not in (bracket, b","):
            raise self._wrong()
        self._at += 1
        return found == bracket

    def _string(self) -> Any:
        found = _STRING.match(self._data, self._at, self._most(min(self._max_string, _PIECE)))
        if found is None:
            return self._long_string()
        self._at = found.end()
        return self._load(found.group())

    def _long_string(self) -> str | LongString:
        """A string that is read in pieces, between which no character and no escape is cut."""
        data, limit, pieces = self._data, self._most(self._max_string), list[str]()
        long = self._end > limit
        begin = self._at
        self._at += 1
        while True:
            window = min(self._at + _PIECE, limit)
            found = _CHARACTERS.match(data, self._at, window)
            stop = found.end() if found else self._at
            ends = data[stop : min(stop + 1, limit)] == b'"'
            if not ends:  # the piece ends here, or nothing can follow
                while stop > self._at and data[stop : stop + 1] and data[stop] & 0xC0 == 0x80:
                    stop -= 1
                before = data[self._at : max(self._at, stop - 6)]
                escaped = (len(before) - len(before.rstrip(b"\\"))) % 2  # the backslash there is the second of two
                if _HALF_PAIR.fullmatch(data, stop - 6, stop) and not escaped:
                    stop -= 6
            if stop <= self._at and not ends:
                if long and limit - self._at < _PIECE:
                    raise TooLargeError(
                        f"a string in the JSON has more than {self._max_string:,} bytes; send it as binary data"
                    )
                raise self._wrong()
            pieces.append(self._load(b'"%b"' % data[self._at : stop]))
            self._at = stop
            if ends:
                self._at += 1
                return "".join(pieces) if self._at - begin <= _MAX_STRING else LongString(tuple(pieces))

    def _numbers(self, most: int | None = None) -> list[Any]:
        """The next numbers, as many as a piece has, or the one that is here."""
        found = _NUMBERS.match(self._data, self._at, self._most(_PIECE))
        text = found.group() if found else b""
        if most == 1:
            text = text.partition(b",")[0]
        elif self._data[self._at + len(text) : self._at + len(text) + 1] != b"]":  # cut off, or followed by something else
            text = text.rpartition(b",")[0] or text
        numbers: list[Any] = self._load(b"[" + text + b"]")
        if not numbers:
            raise self._wrong()
        self._at += len(text)
        self._values += len(numbers)
        if self._values > self._max_values:
            raise TooLargeError(f"the JSON has more than {self._max_values:,} numbers; send tensors as binary data")
        return numbers

    def _load(self, text: bytes) -> Any:
        try:
            return json.loads(text.decode())
        except json.JSONDecodeError:
            raise self._wrong() from None

    def _wrong(self) -> InputError:
        return InputError(f"the request is not valid JSON near byte {self._at + 1}")
