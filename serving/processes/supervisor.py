"""What `headrace serve` is when it has front ends: it starts the other processes, again if need be, and stops them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...errors import ArtifactError, HeadraceError
from ...extras import require
from ...runtime.base.anonymous_memory import create_memory
from ..config import ServeConfig
from ..guard.access import load_access
from ..guard.tls import load_tls
from ..models.kept_routes import kept_routes
from ..ready_file import announce, report
from .control import ControlLink
from .messages import Alive, Connect, Controlled, Loaded, Message, Serving, StartEngine, StartFrontEnd, Stop
from .ports import Ports

log = logging.getLogger("headrace.serving")

# A process that ends sooner than this after its start is started again later and later, up to so many seconds.
_SETTLED_SECONDS, _FIRST_DELAY, _LONGEST_DELAY = 10.0, 0.1, 10.0
# Beyond the time that requests have to finish, what a process has to end by itself.
_MARGIN_SECONDS = 5.0
# A process that serves and is not heard of for so many of the supervisor's own seconds hangs. Loading a model may keep an
# engine's interpreter busy for some, and one that does not serve yet has longer.
_HUNG_SECONDS, _HUNG_AT_START = 15, 300
_ENGINE = "the engine"


class _Process:
    """One running process: its name, its link, whether it has reported that it serves, and for how many seconds nothing."""

    def __init__(self, name: str, running: asyncio.subprocess.Process, link: ControlLink) -> None:
        self.name = name
        self.running = running
        self.link = link
        self.serving = False
        self.silent = 0

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send; a process that has just ended, or never reads, is somebody else's matter."""
        with contextlib.suppress(OSError):
            self.link.send(message, descriptors)


class Supervisor:
    """Binds the ports, keeps one engine and the front ends running, and connects each front end with the engine. Raises
    HeadraceError when a port is taken, or a file of tokens or certificates cannot be used."""

    def __init__(self, config: ServeConfig) -> None:
        if config.security.token_file is not None:
            load_access(config.security.token_file)
        load_tls(config)
        kept = kept_routes(config)
        # A front end that is started again keeps what the first ones did, whatever became of the packages.
        self._routes = None if kept is None else kept.to_file()
        if config.observe.trace_otlp is not None:
            require("headrace serve --trace-otlp", "telemetry")
        # Decided once: the processes started below need not ask for GPUs again, nor could they come to another number.
        self._config = config = config.changed(frontends=config.front_ends)
        self._ports = Ports(config, "metrics")
        self._stop = asyncio.Event()
        self._serving = asyncio.Event()
        self._failed: asyncio.Future[None] | None = None
        self._processes: dict[str, _Process] = {}
        self._loaded: Loaded | None = None
        self._controlled: int | None = None  # the file of the engine's last `Controlled`
        self._front_ends = [f"front end {number + 1}" for number in range(config.front_ends)]

    async def run(self) -> None:
        """Serve until a signal. Raises ArtifactError when no model can be served, and HeadraceError when a process ends before
        all serve."""
        loop = asyncio.get_running_loop()
        self._failed = loop.create_future()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        keeping = [asyncio.create_task(self._keep(name)) for name in (_ENGINE, *self._front_ends)]
        keeping.append(asyncio.create_task(self._watch()))
        for task in keeping:
            task.add_done_callback(self._kept)
        try:
            await self._first_of(self._serving.wait(), self._stop.wait())
            if self._loaded is not None and not self._stop.is_set():
                announce(self._loaded.models, self._config, self._ports.numbers)
            await self._first_of(self._stop.wait())
        finally:
            self._stop.set()
            await self._end_all()
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)
            self._ports.close()

    async def _first_of(self, *waiting: Any) -> None:
        """Wait for one of these, or raise what has failed."""
        assert self._failed is not None
        tasks = [asyncio.ensure_future(one) for one in waiting]
        try:
            await asyncio.wait([*tasks, self._failed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        if self._failed.done():
            self._failed.result()

    async def _keep(self, name: str) -> None:
        """Have this process running until all are stopped."""
        delay = 0.0
        while not self._stop.is_set():
            begin = time.monotonic()
            process: _Process | None = None
            try:
                process = await self._start(name)
                ended = f"has ended ({_ended(await process.running.wait())})"
            except OSError as error:  # of memory, descriptors or processes there are none left
                process, ended = self._processes.get(name), f"cannot be started ({error})"
            if process is not None:
                if process.running.returncode is None:
                    process.running.kill()
                    await process.running.wait()
                self._processes.pop(name, None)
                process.link.close()
            if self._stop.is_set():
                return
            if not self._serving.is_set():
                self._fail(HeadraceError(f"{name} {ended} while the server was starting; its output says why"))
                return
            settled = time.monotonic() - begin > _SETTLED_SECONDS
            delay = 0.0 if settled else min(_LONGEST_DELAY, max(_FIRST_DELAY, 2 * delay))
            report(f"{name} {ended}; it is started again" + (f" in {delay:.1f} s" if delay else ""))
            await self._stopped_within(delay)

    async def _stopped_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        return self._stop.is_set()

    async def _watch(self) -> None:
        """End processes that hang, to be started again unless all end. By counting, since all may have been suspended, this
        one too."""
        while True:
            await asyncio.sleep(1.0)
            for process in list(self._processes.values()):
                process.silent += 1
                most = _HUNG_SECONDS if process.serving else _HUNG_AT_START
                if process.silent == most:
                    report(f"{process.name} has not moved for {most} s and is ended")
                    process.running.kill()

    def _kept(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the supervisor failed", exc_info=error)
            self._fail(HeadraceError(f"the supervisor of the server's processes failed: {error!r}"))

    async def _start(self, name: str) -> _Process:
        link, theirs = ControlLink.pair()
        module = "engine" if name == _ENGINE else "frontend"
        arguments = ("-m", f"headrace.serving.processes.{module}", str(theirs.fileno()), str(os.getpid()))
        with theirs:
            try:
                running = await asyncio.create_subprocess_exec(
                    sys.executable, *arguments, stdin=asyncio.subprocess.DEVNULL, pass_fds=(theirs.fileno(),)
                )
            except BaseException:
                link.close()
                raise
        process = self._processes[name] = _Process(name, running, link)
        if name == _ENGINE:
            follows = [] if self._controlled is None else [self._controlled]
            listening = [one.fileno() for one in self._ports.listening.values()]
            process.send(StartEngine(self._config, follows=bool(follows)), listening + follows)
        else:
            others = any(other in self._processes for other in self._front_ends if other != name)
            joins = others and self._serving.is_set()
            routes = [] if self._routes is None else [self._routes.fileno()]
            process.send(StartFrontEnd(self._config, self._ports.numbers, joins), routes)
        link.listen(partial(self._on_event, process))
        for front_end in self._front_ends if name == _ENGINE else [name]:
            self._connect(front_end)
        return process

    def _connect(self, front_end: str) -> None:
        """Give this front end and the engine a socket and a memory in common, if both run."""
        ends = self._processes.get(front_end), self._processes.get(_ENGINE)
        if ends[0] is None or ends[1] is None:
            return
        memory = create_memory(self._config.processes.ring_bytes)
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        for process, one in zip(ends, pair, strict=True):
            assert process is not None
            process.send(Connect(), (one.fileno(), memory))
            one.close()
        os.close(memory)

    def _on_event(self, process: _Process, event: Message, descriptors: list[int]) -> None:
        process.silent = 0
        match event:
            case Alive():
                return
            case Loaded():
                self._loaded, process.serving = event, True
                if event.failure and not self._serving.is_set():
                    self._fail(ArtifactError(event.failure))
            case Serving():
                process.serving = True
            case Controlled():
                if self._controlled is not None:
                    os.close(self._controlled)
                (self._controlled,) = descriptors
            case _:
                log.error("%s sent a %s", process.name, type(event).__name__)
        serving = {process.name for process in self._processes.values() if process.serving}
        if self._loaded and serving >= set(self._front_ends):
            self._serving.set()

    def _fail(self, error: HeadraceError) -> None:
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _end_all(self) -> None:
        """Front ends first, which answer what they have accepted with the engine's help; the engine after them."""
        for names in (self._front_ends, [_ENGINE]):
            ending = [process for name in names if (process := self._processes.get(name))]
            for process in ending:
                process.send(Stop())
            self._ports.close()
            await asyncio.gather(*(self._end(process) for process in ending))

    async def _end(self, process: _Process) -> None:
        try:
            async with asyncio.timeout(self._config.processes.drain_seconds + _MARGIN_SECONDS):
                await process.running.wait()
        except TimeoutError:
            report(f"{process.name} did not end in time and is ended")
            process.running.kill()
            await process.running.wait()

    def _on_signal(self, number: int) -> None:
        if self._stop.is_set():
            for process in self._processes.values():
                process.running.kill()
            os._exit(128 + number)
        report("draining: no new requests are taken, accepted ones are answered; a second signal ends at once")
        self._stop.set()


def _ended(status: int) -> str:
    if status < 0:
        return f"signal {signal.Signals(-status).name}"
    return f"status {status}"
