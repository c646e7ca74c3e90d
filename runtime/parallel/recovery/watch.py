"""What happens when a rank is killed: the others stop, and say which one it was."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import torch.distributed as dist

from ....errors import RankLostError
from ..mesh import rank, world_size

_BEAT = 0.5


@contextlib.contextmanager
def watched(seconds: float = 8.0) -> Iterator[None]:
    """Around a training: a rank that is silent for so long is lost, and every other one ends with RankLostError that names it.

    Each rank tells the job's store that it lives, from a thread of its own, twice a second. Where a collective fails because a
    rank is gone, its error becomes RankLostError; a process that waits in one for a rank that is gone is ended, with the
    message on stderr. A rank that leaves with an error of its own says so before it goes. In a job of one rank nothing is done.
    All ranks enter it alike, after the first placement.
    """
    if world_size() == 1 or "MASTER_ADDR" not in os.environ:
        yield
        return
    watch = _Watch(seconds)
    watch.start()
    try:
        yield
    except Exception as error:
        lost = watch.who(error)
        own = f"rank {watch.own} ended with {type(error).__name__}: {error}".splitlines()[0]
        watch.leave(lost or own)
        if lost is None:
            raise
        raise RankLostError(lost) from error
    except BaseException as error:
        watch.leave(f"rank {watch.own} ended with {type(error).__name__}")
        raise
    else:
        watch.leave("")


class _Watch(threading.Thread):
    def __init__(self, seconds: float) -> None:
        super().__init__(name="headrace ranks", daemon=True)
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=max(seconds, 5)))
        self.store = dist.PrefixStore("headrace/ranks", store)
        self.seconds, self.own = seconds, rank()
        self.others = [other for other in range(world_size()) if other != self.own]
        self.lost: str | None = None
        self._leaving = threading.Event()
        self._mutex = threading.Lock()  # one connection
        self._seen = {other: (0, time.monotonic()) for other in self.others}

    def run(self) -> None:
        while not self._leaving.wait(_BEAT):
            try:
                self._look()
            except (RuntimeError, dist.DistError) as error:
                if not self._leaving.is_set():
                    self.lost = (
                        f"the job's store does not answer, which rank 0 or torchrun holds, so that one has ended: {error}"
                    )
            if self.lost is not None and not self._leaving.wait(self.seconds / 2):
                # The main thread waits in a collective that nothing will end.
                self.leave(self.lost)
                sys.stderr.write(f"headrace: rank {self.own} stops: {self.lost}\n")
                sys.stderr.flush()
                os._exit(1)

    def _look(self) -> None:
        now = time.monotonic()
        with self._mutex:
            self.store.add(f"beats/{self.own}", 1)
            for other in self.others:
                beats = self.store.add(f"beats/{other}", 0)
                if beats != self._seen[other][0]:
                    self._seen[other] = beats, now
            silent = {other: now - at for other, (_, at) in self._seen.items() if now - at > self.seconds}
            for other, since in sorted(silent.items(), key=lambda item: -item[1]):
                if not self.store.check([f"left/{other}"]):
                    self.lost = (
                        f"rank {other} has said nothing for {since:.0f} s: its process was killed or hangs, or its machine is "
                        "gone. Start the job again; parallel.resume goes on from the last checkpoint, on any number of ranks"
                    )
                    return
        self.lost = self._left()

    def who(self, error: BaseException) -> str | None:
        """Which rank is lost, now that a collective failed; None where this rank's error is its own. Waits to find out."""
        if isinstance(error, RankLostError) or not isinstance(error, RuntimeError | ConnectionError):
            return None
        ends = time.monotonic() + self.seconds + 4 * _BEAT
        while time.monotonic() < ends and self.lost is None:
            with contextlib.suppress(RuntimeError):
                if (left := self._left()) is not None:
                    return left
            time.sleep(_BEAT)
        return self.lost

    def _left(self) -> str | None:
        with self._mutex:
            for other in self.others:
                if self.store.check([f"left/{other}"]) and (why := self.store.get(f"left/{other}").decode()):
                    return why
        return None

    def leave(self, why: str) -> None:
        """Tell the others why this rank ends, "" where it is done. Rank 0, which may hold the store, lets them read it."""
        self._leaving.set()
        ends = time.monotonic() + self.seconds
        with contextlib.suppress(RuntimeError), self._mutex:
            self.store.set(f"left/{self.own}", why)
            while why and self.own == 0 and time.monotonic() < ends:
                if all(self.store.check([f"left/{other}"]) for other in self.others):
                    break
                time.sleep(_BEAT)
