"""One stage of a pipeline: a process that computes what comes from the stage before it, and passes it on, until the session
that started it ends."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....errors import ArtifactError, HeadraceError
from ...base.memory import give_back_memory
from ...base.session import Session
from ..split.link import Kind, Link
from ..split.member import begin, open_part, show_life
from .channel import Inlet, LinkLostError, Outlet
from .shares import State, StateClock


def main() -> None:
    """It begins as `begin_child` says, the session's process being its parent."""
    if (begun := begin()) is None:
        return
    link, wanted = begun
    try:
        part = Part(open_part(wanted), wanted["file"], wanted["takes"], wanted["gives"])
    except HeadraceError as error:
        link.send(Kind.FAILED, 0, 0, str(error).encode())
        return
    give_back_memory()
    clock, hops = StateClock(), _Hops()
    link.send(Kind.READY)
    show_life(link, lambda: clock.read().pack())
    threading.Thread(target=_listen, args=(link, hops), daemon=True).start()
    while True:
        inlet, outlet = hops.next()
        try:
            _stream(part, inlet, outlet, link, clock)
        except LinkLostError:  # with a neighbor; the session brings other hops when all are there again
            clock.enter(State.STARVED)
        inlet.link.close()  # so that the stages on both sides notice, too
        outlet.link.close()


class Part:
    """The session of a stage's graph, between the values that the stage takes and those that it gives, in the order of those
    names. What the graph neither takes nor gives passes by it. Raises ArtifactError where these do not fit together."""

    def __init__(self, session: Any, file: str, takes: Sequence[str], gives: Sequence[str]) -> None:
        self._session: Session = session
        self._takes, self._gives = takes, gives
        self._inputs, self._outputs = ([name for name, _, _ in side] for side in session.tensors)
        if unknown := [name for name in self._inputs if name not in takes]:
            raise ArtifactError(f"{file} takes {unknown[0]!r}, which no stage before it gives; cut the model again")
        if missing := [name for name in gives if name not in self._outputs and name not in takes]:
            raise ArtifactError(f"{file} does not give {missing[0]!r}; cut the model again")

    def run(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Raises BackendError."""
        known = dict(zip(self._takes, values, strict=True))
        given = self._session.run([known[name] for name in self._inputs])
        known.update(zip(self._outputs, given, strict=True))
        return [known[name] for name in self._gives]


class _Hops:
    """The hops on both sides, which the session exchanges."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._links: list[Link] = []
        self._new = False

    def exchange(self, links: list[Link]) -> None:
        """Have those used, and the former ones no more."""
        with self._changed:
            for link in self._links:
                link.end() if not self._new else link.close()
            self._links, self._new = links, True
            self._changed.notify()

    def next(self) -> tuple[Inlet, Outlet]:
        """The newest that were not used yet."""
        with self._changed:
            self._changed.wait_for(lambda: self._new)
            self._new = False
            before, behind = self._links
        return Inlet(before), Outlet(behind)


def _listen(link: Link, hops: _Hops) -> None:
    while (message := link.receive()) is not None:
        hops.exchange([Link(socket.socket(fileno=descriptor)) for descriptor in message.descriptors])
    os._exit(0)  # the session is gone, perhaps in the middle of a computation


def _stream(part: Part, inlet: Inlet, outlet: Outlet, link: Link, clock: StateClock) -> None:
    """Compute one batch after another until a neighbor is lost, which raises LinkLostError."""
    while True:
        clock.enter(State.STARVED)
        arrived = inlet.receive()
        clock.enter(State.BUSY)
        try:
            values = part.run(arrived.values)
            clock.enter(State.BLOCKED)
            outlet.wait()
            clock.enter(State.BUSY)
            outlet.send(arrived.serial, values)
        except HeadraceError as error:  # of this batch alone, of which the next stages never hear
            link.send(Kind.FAILED, arrived.serial, 0, str(error).encode())
        inlet.give_back(arrived.slot)


if __name__ == "__main__":
    main()
