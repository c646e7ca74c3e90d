"""The processes that compute a split model's last layer."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import numpy as np

from ....errors import BackendError, RankLostError
from .link import Kind, Message
from .members import Members
from .mesh import Mesh


class Ranks(Members):
    """One process for each part of a mesh, whose files lie in `folder`; each computes with so many threads.

    While one of them is away, nothing is computed. Raises BackendError when a rank cannot begin.
    """

    def __init__(self, folder: Path, mesh: Mesh, *, backend: str, threads: int) -> None:
        self.widths = [0] * len(mesh.parts)
        self._turn = threading.Lock()
        self._serial = 0
        self._answers: dict[int, bytearray | BackendError] = {}
        starts = [
            {
                "folder": str(folder.resolve()),
                "file": part.file,
                "digest": part.digest,
                "classes": part.classes,
                "backend": backend,
                "threads": threads,
            }
            for part in mesh.parts
        ]
        super().__init__("rank", f"{__package__}.rank", starts)
        self._start()

    def compute(self, features: np.ndarray, count: int) -> list[bytearray]:
        """What each rank has of these features (float32 [rows, width]), in the form that `Kind` tells; threads take turns.
        Raises RankLostError when one is away or is lost meanwhile, BackendError when one fails."""
        with self._turn:
            with self._state:
                if self._closing.is_set():
                    raise BackendError("this session is closed; open another")
                if self.trouble:
                    raise RankLostError(self.trouble)
                self._serial += 1
                self._answers.clear()
                losses, links = len(self._losses), self._links()
            for link in links:
                with contextlib.suppress(OSError):  # it is lost, as whoever receives from it is about to notice
                    link.send(Kind.COMPUTE, self._serial, count, features)
            with self._state:
                self._state.wait_for(lambda: len(self._losses) > losses or len(self._answers) == len(self._names))
                if len(self._answers) < len(self._names):
                    raise RankLostError(self._losses[losses])
                answers = [self._answers.pop(number) for number in range(len(self._names))]
        found = [answer for answer in answers if not isinstance(answer, BackendError)]
        if len(found) < len(answers):
            raise next(answer for answer in answers if isinstance(answer, BackendError))
        return found

    def _joined(self, number: int, ready: Message) -> None:
        self.widths[number] = ready.value

    def _heard(self, number: int, message: Message) -> None:
        if message.kind not in (Kind.RESULT, Kind.FAILED) or message.serial != self._serial:
            return  # whoever asked has been told of another rank's loss
        failed = message.kind is Kind.FAILED
        self._answers[number] = BackendError(f"{self._names[number]}: {message.data.decode()}") if failed else message.data
        self._state.notify_all()
