"""Fewer and smaller images than the migrator takes a preprocessing from: live, each is run in a fork of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from headrace.migrate.proving import trace_transform

_NAMES = ("FIT_SIZES", "PROOF_SIZES", "LIGHTS", "MARGINS", "OTHER_MODES", "RARE_MODES", "_probe_files")
_NONE: dict[str, Any] = {"LIGHTS": {}, "MARGINS": {}, "OTHER_MODES": (), "RARE_MODES": ()}
ALL = {name: getattr(trace_transform, name) for name in _NAMES}
SMALL = {
    **ALL,
    "FIT_SIZES": tuple(size for size in ALL["FIT_SIZES"] if max(size) <= 120),
    "PROOF_SIZES": tuple(size for size in ALL["PROOF_SIZES"] if max(size) <= 260),
    "_probe_files": functools.cache(ALL["_probe_files"].__wrapped__),
}
"""All that are quickly made and read: a tenth of the pixels."""
FEW = {
    **SMALL, **_NONE, "FIT_SIZES": SMALL["FIT_SIZES"][:4], "PROOF_SIZES": SMALL["PROOF_SIZES"][::2],
    "_probe_files": functools.cache(ALL["_probe_files"].__wrapped__),
}  # fmt: skip
"""What tells a resize from a crop, in color and gray; none of other kinds."""


def take(probes: dict[str, Any], put: Callable[[Any, str, Any], Any] = setattr) -> None:
    for name, value in probes.items():
        put(trace_transform, name, value)
