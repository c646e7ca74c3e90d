"""What is found out of a model's images while its graph is captured, passed to the worker in a file."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from ...errors import MigrateError
from ...specs import Preprocessing

_LOOK_SECONDS = 0.02


def tell(path: Path, preprocessing: Preprocessing | None, notes: Sequence[str]) -> None:
    """Write the file, as a whole or not at all."""
    steps = None if preprocessing is None else preprocessing.to_json()
    aside = path.with_suffix(".part")
    aside.write_text(json.dumps({"preprocessing": steps, "notes": list(notes)}), encoding="utf-8")
    os.replace(aside, path)


def read_told(path: Path, seconds: float) -> tuple[Preprocessing | None, list[str]]:
    """What was written there, once it is. Raises MigrateError where it does not come in time."""
    end = time.monotonic() + seconds
    while not path.is_file():
        if time.monotonic() > end:
            raise MigrateError(f"nobody said within {seconds:.0f} s how an image becomes the model's input")
        time.sleep(_LOOK_SECONDS)
    told = json.loads(path.read_text(encoding="utf-8"))
    steps = told["preprocessing"]
    return None if steps is None else Preprocessing.from_json(steps), list(told["notes"])
