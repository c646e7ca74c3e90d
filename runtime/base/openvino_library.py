"""OpenVINO as this package takes it: nothing about this machine is sent anywhere."""

from __future__ import annotations

import functools
import importlib
import sys
from types import ModuleType

_TELEMETRY = "openvino_telemetry"


@functools.cache
def import_openvino() -> ModuleType:
    """The module `openvino`. Where it is imported for the first time, its telemetry stays out.

    `import openvino` alone reports to an analytics service: it writes an identity into the user's home folder, starts a process
    that sends it, and takes a fifth of a second for that. Its own package works without that library.
    """
    held = sys.modules.get(_TELEMETRY)
    if held is None:
        sys.modules[_TELEMETRY] = None  # type: ignore[assignment] # an ImportError for whoever asks
    try:
        return importlib.import_module("openvino")
    finally:
        if held is None:
            sys.modules.pop(_TELEMETRY, None)
