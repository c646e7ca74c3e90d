"""Where what was measured and built is kept between processes. Torch-free."""

from __future__ import annotations

import hashlib
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


def prepared_folder(repository: Path) -> Path | None:
    """Where the cache keeps what is made of a repository; None where it is off."""
    cache, place = cache_folder(), repository.resolve()
    key = f"{place.name}-{hashlib.sha256(str(place).encode()).hexdigest()[:12]}"
    return None if cache is None else cache / "prepared" / key
