"""Commands carried out as a reader types them, in a folder of the test's."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.warm_python import FORKED, WarmProcess, WarmPython

# Where a page shows the default, the cheap form of it: what is measured, how long and how often is up to other tests.
CHEAP = (
    (re.compile(r"^headrace migrate .*(--out|--write)\b(?!.*--precision)"), "--precision fp32 --max-tuning-seconds 0.2"),
    (re.compile(r"^headrace tune "), "--buckets 1,8"),
    (re.compile(r"^headrace bench "), "--seconds 0.2 --rounds 1 --concurrency 1"),
)
_SERVES = re.compile(r"^(\w+=\S+ )*headrace (serve|triton run)\b")
_PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}


class Reader:
    """Somebody in `folder`, who has Headrace installed, at whose machine one server runs at a time."""

    def __init__(self, folder: Path, warm: WarmPython) -> None:
        self.folder = folder
        self._warm = warm
        self._server: Any = None
        self._ports: dict[str, int] = {}
        self._log = folder.parent / "server.log"
        self._ready = folder.parent / "ready.json"
        bin = folder.parent / "bin"
        bin.mkdir(exist_ok=True)
        for name, program in (("headrace", "import sys; from headrace.cli import main; main()"), ("python", None)):
            command = f'"{sys.executable}"' if program is None else f'"{sys.executable}" -P -c "{program}"'
            (bin / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (bin / name).chmod(0o755)
        (folder.parent / ".curlrc").write_text("silent\nshow-error\nfail-with-body\n")  # else an answer of 404 is a success
        self.environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(bin), os.path.dirname(sys.executable), os.environ["PATH"]]),
            "HEADRACE_CACHE": str(folder.parent / "cache"),
            "XDG_STATE_HOME": str(folder.parent / "state"),
            "HEADRACE_SERVE_READY_FILE": str(self._ready),
            "HEADRACE_SERVE_THREADS": "1",
            **{f"HEADRACE_SERVE_{name.upper()}_PORT": "0" for name in _PORTS},
            "CURL_HOME": str(folder.parent),
            "COLUMNS": "200",
        }

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        """A command to its end; a server until it is ready, with its log as the output."""
        text = "\n".join(without_comment(line) for line in text.splitlines())
        for pattern, options in CHEAP:
            text = f"{text} {options}" if pattern.search(text) else text
        if _SERVES.search(text):
            return self._serve(text)
        for name, port in self._ports.items():
            text = text.replace(f"localhost:{_PORTS[name]}", f"localhost:{port}")
        command = plain(text)
        if command is None:
            return subprocess.run(
                ["bash", "-o", "pipefail", "-c", text],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=600,
            )
        with (self.folder.parent / "out").open("w+") as out, (self.folder.parent / "err").open("w+") as err:
            process = self._fork(command, out, err)
            status = process.wait(600)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(text, status, out.read(), err.read())

    def _fork(self, command: Plain, out: Any, err: Any) -> WarmProcess:
        return self._warm.popen(
            command.arguments,
            cwd=self.folder / command.folder,
            env={**self.environment, **command.settings},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            shares=True,
        )

    def _serve(self, text: str) -> subprocess.CompletedProcess[str]:
        self.stop()
        self._ready.unlink(missing_ok=True)
        command = plain(text)
        assert command is not None, f"{text} is more than a server"
        with self._log.open("w") as log:
            self._server = self._fork(command, log, subprocess.STDOUT)
        for _ in range(12_000):
            if self._ready.exists() or self._server.poll() is not None:
                break
            time.sleep(0.02)
        ended = self._server.poll()
        if ended is None and self._ready.exists():
            ready = json.loads(self._ready.read_text())
            self._ports = {name: ready[name] for name in _PORTS if ready.get(name)}
        status = 0 if ended is None and self._ports else ended or 1
        return subprocess.CompletedProcess(text, status, self._log.read_text(), "")

    def stop(self) -> None:
        """End the server as a service manager does; it must end in order."""
        server, self._server, self._ports = self._server, None, {}
        if server is None or server.poll() is not None:
            return
        server.send_signal(signal.SIGTERM)
        try:
            status = server.wait(120)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
        assert status == 0, f"the server ended with status {status}:\n{self._log.read_text()}"


def without_comment(line: str) -> str:
    """What stands before a `#` that begins a word outside of quotes."""
    return re.sub(r"""^((?:'[^']*'|"[^"]*"|[^'"])*?)\s+#.*$""", r"\1", line)


class Plain(NamedTuple):
    """A command that takes no shell: where it runs, what it sets in the environment, and Python's arguments."""

    folder: str
    settings: dict[str, str]
    arguments: list[str]


def plain(text: str) -> Plain | None:
    """Of a `headrace` or a `python` without anything but a `cd` before it; else None, and a shell has to read it."""
    moved = re.match(r"cd ([\w./-]+) && ", text)
    text = text[moved.end() :] if moved else text
    if re.search(r"[|;&<>`$(){}~\n]", text):
        return None
    words = shlex.split(text)
    settings: dict[str, str] = {}
    while words and re.fullmatch(r"\w+=.*", words[0]):
        name, _, value = words.pop(0).partition("=")
        settings[name] = value
    if not words or any(re.search(r"[*?\[]", word) for word in words if f"'{word}'" not in text):
        return None
    program, *arguments = words
    if program == "headrace":
        arguments = ["-P", str(FORKED), *arguments]
    return Plain(moved[1] if moved else ".", settings, arguments) if program in ("headrace", "python") else None
