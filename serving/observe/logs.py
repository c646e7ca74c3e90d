"""The server's log on stderr, as text or as one JSON object per line, and the logging extension's settings.

A record made while a request is answered carries its id. The line per request of the access log is a record like any other.
"""

from __future__ import annotations

import json
import logging
import random
import re
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from ...errors import InputError, UnsupportedError
from ..ready_file import LineWriter

access = logging.getLogger("headrace.access")

# The id of the request that the running task answers.
request_id: ContextVar[str] = ContextVar("request_id", default="")

_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


def request_id_of(given: str | None) -> str:
    """The caller's own X-Request-Id where it is harmless, else a new one."""
    return given if given and _ID.fullmatch(given) else f"{random.getrandbits(64):016x}"  # a name, not a secret


def log_request(
    protocol: str, call: str, status: int | str, *, model: str, begin: float, received: int, sent: int, request: str
) -> None:
    """One line of the access log: what was called, how it ended, how long it took since `begin` (perf_counter), bytes."""
    fields = {
        "protocol": protocol,
        "call": call,
        "model": model,
        "status": status,
        "ms": round((time.perf_counter() - begin) * 1e3, 3),
        "bytes_in": received,
        "bytes_out": sent,
        "request_id": request,
    }
    access.info("%s %s", protocol, call, extra={"fields": fields})


class _Text(logging.Formatter):
    """2026-01-31 12:00:00,000 WARNING headrace.serving: message; then the fields as name=value."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        fields = {name: value for name, value in _fields(record).items() if name not in ("protocol", "call") and value != ""}
        text = super().format(record)
        # As JSON, what callers send can neither begin a line nor hold a control character.
        return " ".join([text, *(f"{name}={json.dumps(value)}" for name, value in fields.items())])


class _Json(logging.Formatter):
    """One object per line: time in UTC, level, logger, message, the record's fields, and its exception."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    given: Mapping[str, Any] = getattr(record, "fields", {})
    current = request_id.get()
    return {"request_id": current, **given} if current else given


_FORMATS: dict[str, type[logging.Formatter]] = {"text": _Text, "json": _Json}
# Clients may also say what Triton calls its two forms of text.
_SETTABLE = {**_FORMATS, "default": _Text, "ISO8601": _Text}


class _LineHandler(logging.Handler):
    """Gives its lines to a writer, and waits for none."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._writer.write(self.format(record))
        except Exception as error:  # noqa: BLE001 - a record that cannot be formatted must not end what it tells of
            self._writer.write(f"a log record of {record.name} cannot be formatted: {error!r}")


class LogSettings(logging.Filter):
    """Which records are written, and how: the logging extension's settings, which clients may change where that is allowed.
    `log_file` is not among what they may change: it would let them write files of the machine."""

    def __init__(self, handler: logging.Handler, form: str) -> None:
        super().__init__()
        self._handler = handler
        self._levels = {"log_info": True, "log_warning": True, "log_error": True}
        self._verbose = 0
        # What Triton calls its own form of text, which is what clients compare with.
        self._format = "default" if form == "text" else form
        handler.setFormatter(_FORMATS[form]())
        handler.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        if record.levelno >= logging.ERROR:
            return self._levels["log_error"]
        if record.levelno >= logging.WARNING:
            return self._levels["log_warning"]
        return self._levels["log_info"] if record.levelno >= logging.INFO else self._verbose > 0

    def to_json(self) -> dict[str, Any]:
        """The settings under the extension's names."""
        return {"log_file": "", **self._levels, "log_verbose_level": self._verbose, "log_format": self._format}

    def update(self, changes: Any) -> dict[str, Any]:
        """Change the settings that are named, all or none; returns all. Raises InputError or UnsupportedError."""
        if not isinstance(changes, dict):
            raise InputError("log settings must be a JSON object")
        known = self.to_json()
        for name, value in changes.items():
            if name not in known:
                raise InputError(f"unknown log setting '{str(name)[:50]}'; there are {', '.join(known)}")
            if name == "log_file" and value != "":
                raise UnsupportedError(
                    "log file location can not be updated through network protocol; redirect the server's standard error"
                )
            if name in self._levels and not isinstance(value, bool):
                raise InputError(f"log setting '{name}' must be true or false")
            if name == "log_verbose_level" and not (type(value) is int and 0 <= value < 1 << 32):
                raise InputError(f"log setting '{name}' must be a non-negative integer")
            if name == "log_format" and not (isinstance(value, str) and value in _SETTABLE):
                raise InputError(f"log setting 'log_format' must be {' or '.join(_SETTABLE)}, got {str(value)[:50]!r}")
        self._levels |= {name: value for name, value in changes.items() if name in self._levels}
        self._verbose = changes.get("log_verbose_level", self._verbose)
        self._format = changes.get("log_format", self._format)
        self._handler.setFormatter(_SETTABLE[self._format]())
        logging.getLogger("headrace").setLevel(logging.DEBUG if self._verbose else logging.INFO)
        return self.to_json()


@contextmanager
def log_output(form: str) -> Iterator[LogSettings]:
    """Write this process's log to stderr until the block ends. Pillow and the reader of forms remark on every file and form
    that is odd, which anybody may send as many of as they like; what is wrong stands in the answer."""
    writer = LineWriter(sys.stderr)
    handler = _LineHandler(writer)
    settings = LogSettings(handler, form)
    root, own, forms = (logging.getLogger(name) for name in (None, "headrace", "python_multipart"))
    levels = [(logger, logger.level) for logger in (own, forms)]
    root.addHandler(handler)
    own.setLevel(logging.INFO)
    forms.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="PIL")
            yield settings
    finally:
        root.removeHandler(handler)
        writer.close()
        for logger, level in levels:
            logger.setLevel(level)
