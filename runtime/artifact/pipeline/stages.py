"""The processes of a pipeline, and the batches that are in it."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

import numpy as np

from ....errors import BackendError, RankLostError
from ..split.link import Kind, Link, Message
from ..split.members import Members
from .channel import Inlet, LinkLostError, Outlet
from .mesh import PipelineMesh
from .shares import Recent, Totals

log = logging.getLogger("headrace.runtime")


class Stages(Members):
    """One process for each stage, whose files lie in `folder`; each computes with so many threads.

    Values pass from neighbor to neighbor. Each time that all stages are there, also after one was lost, they get hops that are
    new: what was in the old ones is nobody's any more, so that no answer can be another request's. Raises BackendError when a
    stage cannot begin.
    """

    def __init__(self, folder: Path, mesh: PipelineMesh, *, backend: str, threads: int) -> None:
        self._serial = 0
        self._waiting: dict[int, Future[list[np.ndarray]]] = {}
        self._hops: _Hops | None = None
        self._recent = [Recent() for _ in mesh.stages]
        starts = [
            {
                "folder": str(folder.resolve()),
                "file": stage.file,
                "digest": stage.digest,
                "takes": takes,
                "gives": stage.gives,
                "backend": backend,
                "threads": threads,
            }
            for stage, takes in zip(mesh.stages, mesh.taken, strict=True)
        ]
        super().__init__("stage", f"{__package__}.stage", starts)
        self._start()

    def compute(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The values that the last stage gives for those, which are the caller's own. Any number of threads may call it at a
        time; one whose values find no slot free waits.

        Raises RankLostError, naming the stage, when one is away or is lost meanwhile, BackendError when one fails."""
        answer: Future[list[np.ndarray]] = Future()
        with self._state:
            if self._closing.is_set():
                raise BackendError("this session is closed; open another")
            if self.trouble:
                raise RankLostError(self.trouble)
            self._serial += 1
            serial, hops = self._serial, self._hops
            assert hops is not None, "they are there when all stages are"
            self._waiting[serial] = answer
        try:
            with hops.entering:
                hops.first.send(serial, values)
        except LinkLostError:
            pass  # with a stage, as whoever receives from that is about to say
        except BaseException:
            with self._state:
                self._waiting.pop(serial, None)
            raise
        return answer.result()

    def shares(self) -> list[dict[str, float] | None]:
        """Of the time of each stage over the last seconds, the shares in which it was busy, starved and blocked; None for one
        that has just begun or is away."""
        with self._state:
            return [recent.shares() for recent in self._recent]

    def totals(self) -> list[Totals | None]:
        """The seconds in each state since each stage began, as it told last; None for one that has not, or is away."""
        with self._state:
            return [recent.latest for recent in self._recent]

    def close(self) -> None:
        """End all, which have nothing to lose. Safe to call twice."""
        super().close()
        if self._hops is not None:
            self._hops.collecting.join()

    def _joined(self, number: int, ready: Message) -> None:
        if self.trouble or self._closing.is_set():
            return
        ends: list[socket.socket] = []
        with contextlib.ExitStack() as stack:
            for _ in range(len(self._names) + 1):
                ends += map(stack.enter_context, socket.socketpair())
            stack.pop_all()
        first, *inner, last = ends
        for link, before, behind in zip(self._links(), inner[::2], inner[1::2], strict=True):
            with before, behind, contextlib.suppress(OSError):  # it is lost, as whoever receives from it is about to notice
                link.send(Kind.WIRE, descriptors=[before.fileno(), behind.fileno()])
        self._hops = _Hops(Outlet(Link(first)), Inlet(Link(last)), self._collect)

    def _heard(self, number: int, message: Message) -> None:
        if message.kind is Kind.ALIVE:
            self._recent[number].add(Totals.unpack(message.data))
        elif message.kind is Kind.FAILED and (answer := self._waiting.pop(message.serial, None)) is not None:
            answer.set_exception(BackendError(f"{self._names[number]}: {message.data.decode()}"))

    def _lose(self, why: str) -> None:
        super()._lose(why)
        for away, recent in zip(self._away, self._recent, strict=True):
            if away:
                recent.clear()
        if self._hops is not None:
            self._hops.end()
        answers = list(self._waiting.values())
        self._waiting.clear()
        for answer in answers:
            answer.set_exception(RankLostError(why))

    def _collect(self, hops: _Hops) -> None:
        """Hand over what comes out of the last stage, until these hops are no more."""
        try:
            while True:
                arrived = hops.last.receive()
                values = [value.copy() for value in arrived.values]
                hops.last.give_back(arrived.slot)
                with self._state:
                    answer = self._waiting.pop(arrived.serial, None)
                if answer is not None:
                    answer.set_result(values)
        except LinkLostError:
            pass
        except Exception as error:  # memory or descriptors are used up; a pipe that nobody empties helps no one
            log.error("what the last stage gave cannot be read; it is started again", exc_info=error)
            with self._state:
                if self._hops is hops and (process := self._processes[-1]) is not None:
                    process.running.kill()
        finally:
            hops.end()
            with hops.entering:
                hops.first.link.close()
            hops.last.link.close()


class _Hops:
    """The first hop's sending end and the last one's receiving end, which `collect` empties in a thread of its own."""

    def __init__(self, first: Outlet, last: Inlet, collect: Callable[[_Hops], None]) -> None:
        self.first, self.last = first, last
        self.entering = threading.Lock()
        self.collecting = threading.Thread(target=collect, args=(self,), name="headrace-pipeline", daemon=True)
        self.collecting.start()

    def end(self) -> None:
        """Wake all who wait there."""
        self.first.link.end()
        self.last.link.end()
