"""A running `tritonserver`: started on ports of the loopback, awaited, ended with all that it started and left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from ...errors import TritonError
from .config import RunSettings
from .install import Installed

_PORTS = ("http", "grpc", "metrics")
# What becomes Triton: whatever ends the process that asked for it (its id is the argument) ends Triton too, and its stubs
# notice. 1 is PR_SET_PDEATHSIG of linux/prctl.h. A process of its own does it, for nothing is safe between fork and exec.
_LAUNCHER = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0); "
    "os.getppid() == int(sys.argv[1]) or os._exit(1); os.execv(sys.argv[2], sys.argv[2:])"
)
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  where Linux keeps POSIX shared memory
_PREFIX = "headrace_triton_"
_TAIL_LINES = 12
_TROUBLE, _WORDS = ("E", "error:", "Signal"), ("unrecognized option", "Failed to")
_OLDEST, _NEWEST = (2, 40), (3, 0)  # 2.40 is the first with --load-model=*; nobody knows what a version 3 would be


class TritonServer:
    """Triton with every model of a folder that loads. Use it as a context manager: leaving it ends it and its children.

    `ports` has "http", "grpc" and "metrics". Entering raises TritonError when a port is taken, when it ends before it serves,
    when no model serves, and when it is a version that is not known to work; the message ends with what it logged last.
    """

    def __init__(self, installed: Installed, models: Path, log: Path, settings: RunSettings | None = None) -> None:
        self.models, self.log = models, log
        self.settings = settings or RunSettings()
        self.ports: dict[str, int] = {}
        self.version = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._installed = installed
        self._prefix = f"{_PREFIX}{os.getpid()}_{id(self):x}_"

    def __enter__(self) -> TritonServer:
        if not self.models.is_dir():
            raise TritonError(f"{self.models} is not a folder; give the models folder that headrace migrate or compile wrote")
        _clear_stale()
        self.ports = {name: _port(self.settings, name) for name in _PORTS}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *self._command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._installed.environment(),
                start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the other in order
            )
        try:
            self._wait_live()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def http(self) -> str:
        """HOST:PORT."""
        return self._address("http")

    @property
    def grpc(self) -> str:
        """HOST:PORT."""
        return self._address("grpc")

    def index(self) -> list[dict[str, str]]:
        """The repository index: name, version, state and reason of each model."""
        found: list[dict[str, str]] = self._call("/v2/repository/index", post=True)
        return [{"version": "", "state": "", "reason": "", **row} for row in found]

    def wait(self) -> int:
        """Returns its exit status once it ends by itself."""
        assert self.process is not None
        return self.process.wait()

    def stop(self) -> None:
        """End it: in order if it can, then it and whatever it started, and remove the shared memory that they left."""
        process = self.process
        if process is None:
            return
        try:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(self.settings.exit_timeout + 5)
        finally:  # also when a second Ctrl-C comes while waiting
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            _remove_shared_memory(self._prefix)

    def tail(self) -> str:
        """The end of its log: the lines that tell of trouble if there are any, for the last ones are tables."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        telling = [line for line in lines if line.startswith(_TROUBLE) or any(word in line for word in _WORDS)]
        return "\n".join(f"  {line[:400]}" for line in (telling or lines)[-_TAIL_LINES:])

    def _command(self) -> list[str]:
        settings = self.settings
        named = [
            f"--{name}-{what}={value}"
            for name in _PORTS
            for what, value in (("address", settings.host), ("port", self.ports[name]))
        ]
        return [
            str(self._installed.binary),
            f"--model-repository={self.models.resolve()}",
            *self._installed.arguments,
            *named,
            "--model-control-mode=explicit",
            "--load-model=*",
            "--exit-on-error=false",  # what can serve does, as in the embedded server; entering looks at the rest
            f"--exit-timeout-secs={settings.exit_timeout}",
            "--disable-auto-complete-config",
            # Stubs look for their memory by its name; one of our own says whose it was when somebody is killed.
            f"--backend-config=python,shm-region-prefix-name={self._prefix}",
            "--backend-config=python,shm-default-byte-size=16777216",
            *([] if _gpus() else ["--allow-gpu-metrics=false"]),
            *settings.argument,
        ]

    def _wait_live(self) -> None:
        assert self.process is not None
        end = time.monotonic() + self.settings.start_timeout
        while True:
            if (status := self.process.poll()) is not None:
                raise TritonError(self._why_it_ended(status))
            with contextlib.suppress(OSError, ValueError):
                self.version = str(self._call("/v2")["version"])
                break
            if time.monotonic() > end:
                raise TritonError(
                    f"Triton did not serve within {self.settings.start_timeout:g} s; "
                    f"allow more with --start-timeout\n{self.tail()}"
                )
            time.sleep(0.1)
        number = tuple(int(part) for part in self.version.split(".")[:2])
        if not _OLDEST <= number < _NEWEST:
            oldest, newest = (".".join(map(str, one)) for one in (_OLDEST, _NEWEST))
            raise TritonError(
                f"{self._installed.binary} is Triton {self.version}; versions from {oldest} to below {newest} are known "
                "to work. Put another first on PATH, or take it from PATH and use `headrace triton install`"
            )
        index = self.index()
        if not any(row["state"] == "READY" for row in index):
            reasons = "\n".join(f"  {row['name']}: {row['reason'] or 'see the log'}" for row in index) or "  it has no models"
            raise TritonError(
                f"Triton can serve none of the models in {self.models}; `headrace triton lint` says more:\n{reasons}"
            )

    def _why_it_ended(self, status: int) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace")
        if "unrecognized option" in text:
            return (
                f"{self._installed.binary} does not know an option: it is older than 2.40, or --argument gives one that it "
                f"has not. Put a newer one first on PATH, or use `headrace triton install`\n{self.tail()}"
            )
        if "Address already in use" in text:
            return "a port was taken in the meantime; choose others with --http-port, --grpc-port and --metrics-port, or 0"
        if "error while loading shared libraries" in text:
            return f"{self._installed.binary} misses a library; install Triton again with `headrace triton install`"
        return f"Triton ended with status {status} before it served; its log, {self.log}, ends:\n{self.tail()}"

    def _address(self, name: str) -> str:
        host = self.settings.host
        reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  compared with, not bound
        return f"[{reached}]:{self.ports[name]}" if ":" in reached else f"{reached}:{self.ports[name]}"

    def _call(self, path: str, *, post: bool = False) -> Any:
        request = urllib.request.Request(f"http://{self.http}{path}", data=b"{}" if post else None)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
            return json.load(answer)


def _port(settings: RunSettings, name: str) -> int:
    """The port to give to Triton; it takes no socket from outside, so a free one is found and let go again."""
    wanted = getattr(settings, f"{name}_port")
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        with socket.create_server((settings.host, wanted), family=family) as bound:
            return int(bound.getsockname()[1])
    except OSError as error:
        raise TritonError(
            f"cannot listen on {settings.host}:{wanted}: {os.strerror(error.errno or 0)}; "
            f"choose another with --{name}-port, or 0 for any free one"
        ) from error


def _gpus() -> bool:
    from ...runtime.base.fingerprint import gpus

    return bool(gpus())


def _remove_shared_memory(prefix: str) -> None:
    for path in _SHARED_MEMORY.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            path.unlink()


def _clear_stale() -> None:
    """Remove what a Triton left whose headrace was killed."""
    owners = {path.name.removeprefix(_PREFIX).split("_")[0] for path in _SHARED_MEMORY.glob(f"{_PREFIX}*")}
    for owner in owners:
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            _remove_shared_memory(f"{_PREFIX}{owner}_")
