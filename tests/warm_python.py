"""Programs of Python run in forks of one process that has torch imported: to import it takes longer than most of them run.

`python(arguments, cwd=...)` is `subprocess.run([sys.executable, *arguments])` but for that. Where a test is about what is
imported, about the interpreter's own options or about the process itself, it starts one of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

# What exporting and compiling load; nothing here starts threads, which forks would not have.
PRELOADED = ("torch", "torch.export", "torch._dynamo", "torch.onnx._internal.exporter._core", "onnx", "onnxscript")
STREAMS = ("stdin", "stdout", "stderr")


class WarmPython:
    """One process that forks; `python` runs one program at a time."""

    def __init__(self) -> None:
        asking, self._asks = os.pipe()
        self._answers, answering = os.pipe()
        command = [sys.executable, "-P", str(Path(__file__)), str(asking), str(answering)]
        self._process = subprocess.Popen(command, pass_fds=(asking, answering), stdin=subprocess.DEVNULL)
        os.close(asking)
        os.close(answering)
        self._answer: IO[str] = os.fdopen(self._answers)

    def python(
        self,
        arguments: Sequence[str | Path],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        timeout: float = 240,
    ) -> subprocess.CompletedProcess[str]:
        command = [str(argument) for argument in arguments]
        with tempfile.TemporaryDirectory() as folder:
            files = {name: Path(folder, name) for name in STREAMS}
            for file in files.values():
                file.write_text(stdin if file.name == "stdin" else "")
            request = {
                "arguments": command,
                "cwd": str(cwd),
                "environment": dict(os.environ if env is None else env),
                "streams": [str(files[name]) for name in STREAMS],
            }
            os.write(self._asks, f"{json.dumps(request)}\n".encode())
            pid = int(self._answer.readline())
            late = threading.Timer(timeout, os.killpg, (pid, signal.SIGKILL))
            late.start()
            status = int(self._answer.readline())
            late.cancel()
            return subprocess.CompletedProcess(command, status, files["stdout"].read_text(), files["stderr"].read_text())

    def close(self) -> None:
        os.close(self._asks)
        self._answer.close()
        self._process.wait(30)


def serve(asking: int, answering: int) -> None:
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # else the first collection in each fork would copy every page
    with os.fdopen(asking) as requests, os.fdopen(answering, "w") as answers:
        for line in requests:
            child = os.fork()
            if child == 0:
                os.setsid()
                _become(json.loads(line), (asking, answering))
            answers.write(f"{child}\n")
            answers.flush()
            answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
            answers.flush()


def _become(request: dict, control: tuple[int, int]) -> None:
    """Run a program as `python ARGUMENTS` would in the folder, the environment and the streams given, and end."""
    for number, name in enumerate(request["streams"]):
        os.dup2(os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY), number)
    for number in control:
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    os.chdir(request["cwd"])
    status = 0
    try:
        _execute(list(request["arguments"]))
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001 - as the interpreter does at its end
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        os._exit(status & 0xFF)


def _execute(arguments: list[str]) -> None:
    folder = True  # of the program on the search path
    while arguments[0] in ("-P", "-B"):
        flag = arguments.pop(0)
        folder, sys.dont_write_bytecode = folder and flag != "-P", sys.dont_write_bytecode or flag == "-B"
    first, *rest = arguments
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if first == "-m":
        sys.argv = rest
        sys.path[:0] = [os.getcwd()] * folder
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path[:0] = [""] * folder
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = arguments
        sys.path[:0] = [os.path.dirname(os.path.abspath(first))] * folder
        main.__file__ = first
        exec(compile(Path(first).read_bytes(), first, "exec"), main.__dict__)


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
