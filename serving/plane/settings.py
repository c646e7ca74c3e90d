"""The logging and trace extensions: what clients may read and change where the server was started to let them."""

from __future__ import annotations

from typing import Any

from ...errors import InputError, UnsupportedError
from ..observe.logs import LogSettings

_TRACE: dict[str, Any] = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}


def _listed(value: Any) -> list[Any]:
    """gRPC carries every trace setting as a list, HTTP only the level."""
    return value if isinstance(value, list) else [value]


class Settings:
    """One process's settings. Triton's traces are files on the server; this one does not write any, so they are always off."""

    def __init__(self, log: LogSettings) -> None:
        self.log = log

    def trace(self, changes: Any = None) -> dict[str, Any]:
        """The trace settings; None and what changes nothing are taken. Raises InputError or UnsupportedError."""
        if changes is None:
            return dict(_TRACE)
        if not isinstance(changes, dict):
            raise InputError("trace settings must be a JSON object")
        for name, value in changes.items():
            if name not in _TRACE:
                raise InputError(f"unknown trace setting '{str(name)[:50]}'; there are {', '.join(_TRACE)}")
            if value is not None and _listed(value) != _listed(_TRACE[name]):
                raise UnsupportedError(f"trace setting '{name}' cannot be changed: this server writes no trace files")
        return dict(_TRACE)
