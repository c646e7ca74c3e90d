"""Programs of Python run in forks of one process that has imported what they need: to import it takes longer than most run.

`WarmPython(TORCH).python(arguments, cwd=...)` is `subprocess.run([sys.executable, *arguments])` but for that, and `popen` is
`subprocess.Popen`. Where a test is about what is imported, about the interpreter's own options or about the process itself, it
starts one of its own.
"""

from __future__ import annotations
import __future__

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import inspect
import io
import json
import logging
import os
import pkgutil
import queue
import re
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import types
import typing
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

COMMANDS = ("headrace.cli", "headrace.migrate.cli", "headrace.migrate.api", "headrace.serving.cli")
# What exporting and compiling load, what a repository's code is run by, and what a server does; a name that ends with a star is
# every module of a package. Nothing here starts threads, which forks would not have.
TORCH = (
    "torch",
    "torch.export",
    "torch._dynamo",
    "torch.onnx._internal.exporter._core",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "PIL.BmpImagePlugin",
    "PIL.GifImagePlugin",
    "PIL.JpegImagePlugin",
    "PIL.PngImagePlugin",
    "PIL.PpmImagePlugin",
    "headrace.migrate.worker.build",
    "headrace.migrate.worker.inspection",
    "headrace.migrate.worker.live.model",
    "headrace.migrate.worker.packaging",
    "headrace.migrate.worker.rehearsal.rehearse",
    "headrace.migrate.worker.rehearsal.edges.*",
    "headrace.migrate.worker.rehearsal.hosts.*",
    "headrace.runtime.graph.graph",
    "headrace.runtime.images.image_folder",
    "headrace.runtime.parallel.*",
    "headrace.runtime.parallel.planner.*",
    "headrace.runtime.training.*",
    "headrace.runtime.tuning.tune",
    "torch.distributed.checkpoint",
    "torch.distributed.pipelining",
    "torch.distributed.tensor",
    *COMMANDS,
    "headrace.serving.http.app",
    "headrace.serving.http.kept_handlers",
    "headrace.serving.processes.single",
    "headrace.serving.server",
    "uvicorn.lifespan.off",
)
SERVING = (
    "onnxruntime",
    "uvloop",
    "uvicorn.lifespan.off",
    "cykooz_resizer",
    "simplejpeg",
    "google.protobuf.json_format",
    "numpy.random",
    "PIL.BmpImagePlugin",
    "PIL.GifImagePlugin",
    "PIL.JpegImagePlugin",
    "PIL.PngImagePlugin",
    "PIL.PpmImagePlugin",
    "PIL.WebPImagePlugin",
    "headrace.cli",
    "headrace.serving.cli",
    "headrace.serving.server",
    "headrace.serving.processes.single",
    "headrace.serving.processes.supervisor",
    "headrace.serving.processes.engine_session",
    "headrace.serving.processes.child",
    "headrace.serving.processes.description",
    "headrace.serving.processes.remote",
    "headrace.serving.http.app",
    "headrace.serving.http.kept_handlers",
    "headrace.serving.images.resample",
    "headrace.runtime.backends.*",
)
_UNTIL_SPECIALIZED = 8  # runs of a function until Python 3.11 has rewritten its code for what it does
_left: list[Any] = []  # what is to be there, and nobody asks for
_HUGE = 1 << 21
_MADV_HUGEPAGE, _MADV_COLLAPSE = 14, 25  # linux/mman.h
# Where a program that shares a process like its own finds the number of the socket.
SHARED = "HEADRACE_TESTS_WARM_PYTHON"
# What starts ranks, and nothing else; with interpreters of their own it does so in worker/ranks/test_launch.py.
LAUNCH = "headrace.migrate.worker.ranks.launch"
# A program that is `headrace`, and runs Python in its sandbox by forks too.
FORKED = Path(__file__).parent / "commands" / "forked.py"
# What pytest's workers are forks of.
COLLECTED = Path(__file__).with_name("collected.py")


class WarmPython:
    """A process that has imported `preloaded` and forks for every program."""

    def __init__(self, preloaded: Sequence[str] = (), *, control: socket.socket | None = None) -> None:
        """With `control`, the end of one that runs already."""
        self._process: subprocess.Popen[bytes] | None = None
        if control is None:
            control, theirs = socket.socketpair()
            with theirs:
                command = [sys.executable, "-P", str(Path(__file__)), str(theirs.fileno()), *preloaded]
                self._process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL)
        self._control = control
        self._starting = threading.Lock()
        self._started: queue.SimpleQueue[WarmProcess] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def popen(
        self,
        arguments: Sequence[str | Path],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        pass_fds: Sequence[int] = (),
        start_new_session: bool = False,
        execs: bool = False,
        shares: bool = False,
    ) -> WarmProcess:
        """As `subprocess.Popen([sys.executable, *arguments], ...)`; streams are files, numbers, PIPE, DEVNULL or STDOUT.

        With `execs`, the Python that the program becomes by `os.execvp` goes on in the same process too. With `shares`, the
        program has a process like this one beside it, at the end of a socket whose number is in its environment.
        """
        command = [str(argument) for argument in arguments]
        with contextlib.ExitStack() as opened:
            environment = dict(os.environ if env is None else env)
            if shares:
                other = opened.enter_context(self.another())
                environment[SHARED] = str(other.fileno())
                pass_fds = (*pass_fds, other.fileno())
            streams: list[int] = []
            pipes: dict[int, IO[bytes] | None] = {1: None, 2: None}
            for number, stream in enumerate((stdin, stdout, stderr)):
                if stream == subprocess.PIPE:
                    assert number, "nothing is written to its standard input"
                    read, write = os.pipe()
                    opened.callback(os.close, write)
                    streams.append(write)
                    pipes[number] = os.fdopen(read, "rb")
                elif stream == subprocess.DEVNULL:
                    streams.append(os.open(os.devnull, os.O_RDWR))
                    opened.callback(os.close, streams[-1])
                elif stream == subprocess.STDOUT:
                    streams.append(streams[1])
                else:
                    streams.append(number if stream is None else stream if isinstance(stream, int) else stream.fileno())
            request = {"arguments": command, "cwd": str(cwd or os.getcwd()), "environment": environment}
            request |= {"session": start_new_session, "execs": execs, "numbers": [0, 1, 2, *pass_fds]}
            process = self._ask(request, [*streams, *pass_fds])
        process.args, process.stdout, process.stderr = command, *[pipes[stream] for stream in (1, 2)]
        return process

    def another(self) -> socket.socket:
        """The end of a process like this one, its fork: what has it gives it up by closing it."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._ask({"numbers": [0]}, [theirs.fileno()])
        return ours

    def _ask(self, request: dict[str, Any], descriptors: Sequence[int]) -> WarmProcess:
        data = json.dumps(request).encode()
        with self._starting:
            self._control.sendall(len(data).to_bytes(4))
            self._control.sendall(data)
            socket.send_fds(self._control, [b"."], descriptors)
            return self._started.get(timeout=240)

    def python(
        self,
        arguments: Sequence[str | Path],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        timeout: float = 240,
        shares: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` with the output captured, but that a program which takes too long just ends by SIGKILL."""
        with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            given.write(stdin)
            given.seek(0)
            process = self.popen(
                arguments, cwd=cwd, env=env, stdin=given, stdout=out, stderr=err, start_new_session=True, shares=shares
            )
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            status = process.wait(30)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(process.args, status, out.read(), err.read())

    @contextlib.contextmanager
    def talk(
        self, arguments: Sequence[str | Path], *, env: Mapping[str, str] | None = None
    ) -> Iterator[tuple[IO[str], IO[str]]]:
        """A program that answers: its standard input, whose end it ends at, and its output."""
        read, write = os.pipe()
        with os.fdopen(read) as given:
            process = self.popen(arguments, env=env, stdin=given, stdout=subprocess.PIPE)
        assert process.stdout is not None
        with os.fdopen(write, "w") as said, io.TextIOWrapper(process.stdout) as answers:
            yield said, answers
            said.close()
            process.wait(60)

    def close(self) -> None:
        """End it; what runs yet goes on."""
        self._control.shutdown(socket.SHUT_WR)
        if self._process is not None:
            self._process.wait(30)

    def _listen(self) -> None:
        """Hear what began and what ended."""
        running: dict[int, WarmProcess] = {}
        with self._control.makefile() as lines:
            for line in lines:
                word, *numbers = line.split()
                if word == "started":
                    pid = int(numbers[0])
                    running[pid] = WarmProcess(pid)
                    self._started.put(running[pid])
                elif (
                    ended := running.pop(int(numbers[0]), None)
                ) is not None:  # not what a library has begun when it was imported
                    ended.end(int(numbers[1]))


class WarmProcess:
    """What `subprocess.Popen` is, of a process that another one has forked."""

    args: list[str]
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = threading.Event()

    def end(self, status: int) -> None:
        self.returncode = status
        self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def serve(control: socket.socket, preloaded: Sequence[str]) -> None:
    """Fork for each request, and tell what began and what ended; until the other end is closed."""
    for name in preloaded:
        for found in _modules(name.removesuffix(".*")) if name.endswith(".*") else [name]:
            with contextlib.suppress(ImportError):
                importlib.import_module(found)
    if "torch" in preloaded:
        _export_once()
    if "headrace.serving.http.app" in preloaded:
        _serve_once()
    if "headrace.migrate.worker.rehearsal.rehearse" in preloaded:
        _rehearse_once()
    if (packaging := sys.modules.get("headrace.migrate.worker.packaging")) is not None:
        # What a plan is worth is timed for every package. That it is, and at which sizes, is tested; for how long is not.
        packaging._DUEL_SECONDS = 0.1
    # onnx does it at the end of every process, and takes as long for that in each as all else that a small program is.
    for clear in typing._cleanups:  # type: ignore[attr-defined]
        clear()
    _left.append(_filled())
    _lie_in_huge_pages()
    fork_on_request(control)


def _filled() -> list[Any]:
    """What takes up each free place between what lies here: a fork would put its own there, and copy a page for nearly each."""
    gc.collect()
    with tempfile.TemporaryFile("w+") as told:
        errors = os.dup(2)
        os.dup2(told.fileno(), 2)
        sys._debugmallocstats()
        os.dup2(errors, 2)
        os.close(errors)
        told.seek(0)
        rows = re.findall(r"^ +\d+ +(\d+) +\d+ +\d+ +(\d+)$", told.read(), re.MULTILINE)
    makers: dict[int, Callable[[int], Any]] = {16: lambda _: object(), 32: lambda number: (1 << 20) + number}
    found = [(makers.get(size, lambda _, size=size: bytes(size - 33)), free) for size, free in (map(int, row) for row in rows)]
    return [make(number) for make, free in found for number in range(free)]


def _lie_in_huge_pages() -> None:
    """A fork copies one entry for each page, and half of what a small program takes is that: let there be 500 times fewer."""
    libc = ctypes.CDLL(None, use_errno=True)
    for line in Path("/proc/self/maps").read_text().splitlines() if sys.platform == "linux" else ():
        addresses, rights, _, _, _, *name = line.split(maxsplit=5)
        if rights.startswith("rw") and name in ([], ["[heap]"]):
            begin, end = (int(number, 16) for number in addresses.split("-"))
            begin, end = -(-begin // _HUGE) * _HUGE, end // _HUGE * _HUGE
            for advice in (_MADV_HUGEPAGE, _MADV_COLLAPSE) if begin < end else ():
                # An advice: a kernel that does not know it changes nothing.
                libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), advice)


def _modules(package: str) -> list[str]:
    return [f"{package}.{item.name}" for item in pkgutil.iter_modules(importlib.import_module(package).__path__)]


def fork_on_request(control: socket.socket) -> None:
    gc.freeze()  # else the first collection in each fork would copy every page
    gc.set_threshold(20_000, 20, 10)  # exporting a model makes a hundred thousand objects that stay
    woken, waking = os.pipe()
    for number in (woken, waking):
        os.set_blocking(number, False)
    signal.set_wakeup_fd(waking)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        for source in (control, woken):
            selector.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is woken:
                    os.read(woken, 4096)
                    continue
                size = control.recv(4, socket.MSG_WAITALL)
                if not size:
                    return
                request = json.loads(control.recv(int.from_bytes(size), socket.MSG_WAITALL))
                numbers = request["numbers"]
                given = socket.recv_fds(control, 1, len(numbers))[1]
                child = os.fork()
                if child == 0:
                    _leave_finalizers()
                    selector.close()
                    for number in (woken, waking, control.detach()):
                        os.close(number)
                    if "arguments" not in request:
                        _be_another(socket.socket(fileno=given[0]))
                    _become(request, dict(zip(numbers, given, strict=True)))
                for number in given:
                    os.close(number)
                control.sendall(f"started {child}\n".encode())
            with contextlib.suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    control.sendall(f"ended {ended[0]} {os.waitstatus_to_exitcode(ended[1])}\n".encode())


def _leave_finalizers() -> None:
    """Those of the process that forked: a fork that ran them at its end would copy thousands of pages, and take the other's
    files away. They are not freed, nor looked at, which copies hundreds."""
    _left.append(weakref.finalize._registry)
    weakref.finalize._registry = {}


def _be_another(control: socket.socket) -> None:
    try:
        fork_on_request(control)
    finally:
        os._exit(0)


def _export_once() -> None:
    """What torch prepares at the first export, its tables of operators above all, the forks then have."""
    torch = sys.modules["torch"]
    keep_exporter_tables()
    logging.disable()
    with torch.random.fork_rng(), warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(torch.nn.Linear(2, 2).eval(), (torch.zeros(1, 2),), dynamo=True)
    logging.disable(logging.NOTSET)


def _rehearse_once() -> None:
    """What a rehearsal looks up, and the code that Python writes into itself as it runs it, the forks then have."""
    from headrace.migrate.worker.rehearsal import Rehearsal
    from headrace.migrate.worker.rehearsal.rehearse import rehearse

    before = os.environ.copy()
    for _ in range(_UNTIL_SPECIALIZED):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "main.py").write_text("import torch\ntorch.nn.Linear(2, 3)(torch.zeros(1, 2))\n")
            rehearse(Rehearsal(root=folder, script="main.py", made=f"{folder}/made", report=f"{folder}/report"), attempts=1)
    os.environ.clear()
    os.environ.update(before)


def _serve_once() -> None:
    """What FastAPI imports and prepares for the first application, the forks then have."""
    from headrace.serving.config import ServeConfig
    from headrace.serving.http.app import create_app
    from headrace.serving.images.decode_pool import DecodePool
    from headrace.serving.plane.data_plane import DataPlane

    repository: Any = None  # which no route is asked for
    create_app(DataPlane(repository, DecodePool(1, limit=1), ServeConfig.of(models=Path())))


def keep_exporter_tables() -> None:
    """torch makes its tables of operators anew for every export, for longer than a small model's export takes: once now, and
    again where operators were added. What it puts into them six thousand times is the same code, whose annotations are not
    computed each time: a quarter of what is left. The types of a file's fields are computed once, not for each value."""
    from torch import _ops, ops
    from torch._export import utils
    from torch._export.serde import schema, serialize
    from torch.export import exported_program
    from torch.onnx._internal.exporter import _decomp
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    make = _decomp.create_onnx_friendly_decomposition_table

    @functools.cache
    def table(registered: frozenset[Any], operators: tuple[int, ...]) -> dict[Any, Any]:
        return make(set(registered))

    def kept(registered: set[Any]) -> dict[Any, Any]:
        return dict(table(frozenset(registered), tuple(len(list(getattr(ops, name))) for name in ops._dir)))

    if inspect.getsourcefile(_ops.OperatorBase.py_impl) == _ops.__file__:
        _ops.OperatorBase.py_impl = _without_annotations(_ops.OperatorBase.py_impl)
    _decomp.create_onnx_friendly_decomposition_table = kept
    utils._materialize_cpp_cia_ops = functools.cache(utils._materialize_cpp_cia_ops)
    ONNXRegistry.from_torchlib = staticmethod(functools.cache(ONNXRegistry.from_torchlib))
    overrides = exported_program._override_composite_implicit_decomp
    exported_program._override_composite_implicit_decomp = _kept_overrides(overrides)
    hints = functools.cache(lambda of: typing.get_type_hints(of, vars(schema)))
    serialize.typing = types.SimpleNamespace(**{**vars(typing), "get_type_hints": lambda of, globalns: hints(of)})


def _kept_overrides(override: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same overrides of five hundred operators, which torch makes twice for each conversion to ONNX, a third of its time.
    They are made anew where an operator has other kernels."""
    from torch._subclasses.fake_impls import op_implementations_dict as rules

    known: dict[Any, tuple[Any, ...]] = {}

    @contextlib.contextmanager
    def kept(callables: Mapping[Any, Any]) -> Iterator[None]:
        def same(operator: Any) -> bool:
            if operator not in known or operator in rules:
                return False
            callable_, before, _, _ = known[operator]
            return callable_ is callables[operator] and before == operator.py_kernels

        old = {operator: None for operator in callables if same(operator)}
        fresh = {operator: made for operator, made in callables.items() if operator not in old}
        before = {operator: dict(operator.py_kernels) for operator in fresh if operator not in rules}
        with override(fresh):
            for operator, kernels in before.items():
                known[operator] = (fresh[operator], kernels, dict(operator.py_kernels), rules[operator])
            try:
                for operator in old:
                    _, _, kernels, rules[operator] = known[operator]
                    operator.py_kernels.update(kernels)
                    operator._dispatch_cache.clear()
                yield
            finally:
                for operator in old:
                    rules.pop(operator, None)
                    operator.py_kernels.clear()
                    operator.py_kernels.update(known[operator][1])
                    operator._dispatch_cache.clear()

    return kept


def _without_annotations(function: types.FunctionType) -> types.FunctionType:
    """The function of the same source, within which annotations stay text."""
    source, flag = textwrap.dedent(inspect.getsource(function)), __future__.annotations.compiler_flag
    made: dict[str, Any] = {}
    exec(compile(source, f"<{function.__qualname__}>", "exec", flag, dont_inherit=True), function.__globals__, made)
    return made[function.__name__]


def _become(request: dict, descriptors: dict[int, int]) -> None:
    """Run a program as `python ARGUMENTS` would in the folder, the environment and the streams given, and end."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if request["session"]:
        os.setsid()
    aside = {number: fcntl.fcntl(given, fcntl.F_DUPFD, 500) for number, given in descriptors.items()}
    for given in descriptors.values():
        os.close(given)
    for number, given in aside.items():
        os.dup2(given, number)
        os.close(given)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    if request["execs"]:
        execvp = os.execvp
        os.execvp = lambda file, command: execute(command[1:]) if file == sys.executable else execvp(file, command)
    execute(request["arguments"])


class ForkedRank:
    """What `subprocess.Popen` is to `LAUNCH`, for a fork of that."""

    _popen = subprocess.Popen

    def __init__(self, command: list[str], *, env: Mapping[str, str], stdout: int | None, stderr: IO[bytes]) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _leave_finalizers()
            subprocess.Popen = self._popen  # type: ignore[misc]
            os.environ.clear()
            os.environ.update(env)
            os.dup2(stderr.fileno(), 2)
            if stdout == subprocess.DEVNULL:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            execute(command[1:])

    def poll(self, options: int = os.WNOHANG) -> int | None:
        if self.returncode is None and (ended := os.waitpid(self.pid, options))[0]:
            self.returncode = os.waitstatus_to_exitcode(ended[1])
        return self.returncode

    def wait(self) -> int | None:
        return self.poll(0)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def execute(arguments: list[str]) -> None:
    """What the interpreter does from its start to its end."""
    status = 0
    try:
        _run(list(arguments))
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


def _run(arguments: list[str]) -> None:
    flags = ""
    while arguments[0] in ("-P", "-B", "-I", "-u"):
        flags += arguments.pop(0)
    sys.dont_write_bytecode = "B" in flags or bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    tempfile.tempdir = None  # it may have been asked for in another environment
    if "u" in flags or os.environ.get("PYTHONUNBUFFERED"):
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)
    if "I" not in flags:
        sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    folder = "P" not in flags and "I" not in flags  # of the program on the search path
    first, *rest = arguments
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if first == "-m":
        sys.argv = rest
        sys.path[:0] = [os.getcwd()] * folder
        if rest[0] == LAUNCH:
            subprocess.Popen = ForkedRank  # type: ignore[assignment,misc]
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
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
