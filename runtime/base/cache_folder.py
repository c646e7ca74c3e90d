"""Where what was measured and built is kept between processes. Torch-free."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path | None:
    """$HEADRACE_CACHE, else $XDG_CACHE_HOME/headrace or ~/.cache/headrace.

    None when it is turned off (HEADRACE_CACHE=off), or there is no home to put it in.
    """
    named = os.environ.get("HEADRACE_CACHE")
    if named is not None:
        return None if named.lower() in ("", "0", "off") else Path(named)
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(base) / "headrace"
