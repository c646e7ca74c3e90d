"""A model can say of itself how long each of its batches takes, and then waits for so long: no test needs the core for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.runtime.backends.shared import onnx_session

SECONDS = "seconds per batch"  # what its metadata call it


class WaitingSession(onnx_session.OnnxSession):
    """Runs, and takes as long as the model says."""

    def __init__(self, session: Any, *more: Any) -> None:
        super().__init__(session, *more)
        self._seconds = float(session.get_modelmeta().custom_metadata_map.get(SECONDS, 0))

    def run(self, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        time.sleep(self._seconds)
        return super().run(inputs)


def install() -> None:
    """From here on all sessions of this process, and of its forks, are such."""
    onnx_session.OnnxSession = WaitingSession  # type: ignore[misc]
