"""What every process of a split model does beside computing: it begins, opens its part, and shows that it lives."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ....errors import ArtifactError
from ... import backends
from ...base.child import begin_child
from ...base.session import Target
from ..manifest import digest
from .link import Kind, Link

BEAT_SECONDS = 0.5


def begin() -> tuple[Link, dict[str, Any]] | None:
    """The link to the session that started this process, and what it wants of it; None where that is gone already."""
    link = Link(begin_child())
    start = link.receive()
    return None if start is None else (link, json.loads(start.data))


def open_part(wanted: dict[str, Any]) -> Any:
    """The session of the part's file. The folder may hold another model by now, which raises ArtifactError."""
    folder, file = Path(wanted["folder"]), wanted["file"]
    if digest(folder / file, inside=folder) != wanted["digest"]:
        raise ArtifactError(f"{file} is not the file that was loaded; load the model again")
    return backends.get(wanted["backend"]).open(folder, Target(threads=wanted["threads"]), [file])


def show_life(link: Link, report: Callable[[], bytes] = bytes) -> None:
    """Send ALIVE again and again from now on, with what `report` gives. The process ends when nobody is there to hear it."""
    threading.Thread(target=_beat, args=(link, report), daemon=True).start()


def _beat(link: Link, report: Callable[[], bytes]) -> None:
    while True:
        try:
            link.send(Kind.ALIVE, 0, 0, report())
        except OSError:  # the session is gone, perhaps in the middle of a computation
            os._exit(1)
        time.sleep(BEAT_SECONDS)
