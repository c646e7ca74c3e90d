"""How a process that the supervisor starts begins: bound to the supervisor's life, deaf to signals, with its first message."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import uvloop

from ...runtime.base.child import begin_child
from ..models.improvement import leave
from ..observe.logs import LogSettings, log_output
from .control import ControlLink
from .messages import Alive, StartEngine, StartFrontEnd

Start = TypeVar("Start", StartEngine, StartFrontEnd)


def run(kind: type[Start], serve: Callable[[ControlLink, Start, list[int], LogSettings], Awaitable[None]]) -> None:
    """Be such a process: `serve` gets the link to the supervisor, its first message, and the descriptors that came with it.

    It begins as `begin_child` says, the supervisor being its parent. The configuration comes in the message, since every user
    of the machine can read a command line.
    """
    control = ControlLink(begin_child())
    received = control.receive()
    if received is None:
        sys.exit(1)
    start, descriptors = received
    if not isinstance(start, kind):
        sys.exit(f"the first message of the supervisor is a {type(start).__name__}; expected a {kind.__name__}")

    async def serving(log_settings: LogSettings) -> None:
        beating = asyncio.create_task(beat(lambda: control.send(Alive())))
        await serve(control, start, descriptors, log_settings)
        beating.cancel()

    with (
        log_output(start.config.observe.log_format) as log_settings,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(serving(log_settings))
    leave()


async def beat(send: Callable[[], None]) -> None:
    """Call `send` every second, for ever, which shows that this event loop runs."""
    while True:
        with contextlib.suppress(OSError):  # whoever does not listen is somebody else's matter
            send()
        await asyncio.sleep(1.0)


def orphaned() -> None:
    """The supervisor's end of the link is closed, so it is gone: so is this process, if the kernel has not ended it yet."""
    os._exit(1)
