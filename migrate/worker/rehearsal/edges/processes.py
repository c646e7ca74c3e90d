"""Processes: a script that wants ranks is the only one of its group, with gloo, in this very process, unless it is rehearsed on
several ranks; and other programs.

A program that is not on this machine, or that would tell of the user's checkout, reach the network or run for long, is answered
and not run: it ends well, and says what such programs say.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..places import frames, is_users
from ..stage import Stage

LAUNCHED = {
    "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0", "NODE_RANK": "0",
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
    "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1", "SLURM_NNODES": "1", "SLURM_NODEID": "0",
    "SLURM_NODELIST": "localhost", "SLURM_JOB_NODELIST": "localhost", "SLURM_JOB_ID": "1", "SLURM_JOBID": "1",
    "SLURM_GPUS_ON_NODE": "1", "SLURM_CPUS_PER_TASK": "1",
    "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}  # fmt: skip
"""What torchrun, SLURM and Open MPI tell a process that they start."""


_ANSWERED = frozenset([
    "accelerate", "apt", "apt-get", "aws", "conda", "curl", "deepspeed", "docker", "gdown", "git", "gsutil", "hg",
    "huggingface-cli", "kaggle", "mpirun", "nvidia-smi", "pip", "pip3", "python", "python3", "rsync", "scp", "srun", "ssh",
    "stty", "svn", "tensorboard", "torchrun", "tput", "wget",
])  # fmt: skip
"""Programs that are never run for a script."""

_GPUS = (
    "".join(
        f"|   {index}  NVIDIA GPU          On   | 00000000:{index:02}:00.0 Off |                    0 |\n"
        "| N/A   30C    P0    40W / 300W |      0MiB / 10000MiB |      0%      Default |\n"
        for index in range(8)
    )
    + "        Free                              : 10000 MiB\n"
)
"""What `nvidia-smi` shows of a machine whose GPUs do nothing, and a line of `nvidia-smi -q`: scripts look for numbers in it."""

_THREADS = 2
"""So many work in place of a pool's processes."""

_NO_GROUP = "process group has not been initialized"
"""What torch says where a script counts or gathers over ranks, and was not launched."""

_GROUPS: list[Any] = []
"""Groups of processes, as long as this one lasts. One that ends with the last module that is wrapped for it, as after
`destroy_process_group`, waits for its thread with the lock held that this thread may want, for ever."""


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    before = dict(os.environ)
    for name in stage.learned.get("launched", ()):
        os.environ.setdefault(name, LAUNCHED[name])
        stage.note("processes", f"{name}={LAUNCHED[name]} in the environment, as a launcher sets it")
    stage.wrap(
        subprocess.Popen,
        "__init__",
        lambda original, own, args, *rest, **named: _started(stage, original, own, args, rest, named),
    )
    stage.wrap(os, "system", lambda original, command: _run_by_shell(stage, original, command))
    stage.when_imported("git", lambda library: _without_checkout(stage, library))
    stage.when_imported("torch.distributed", lambda library: _alone(stage, library))
    stage.when_imported("torch.multiprocessing", lambda library: stage.wrap(library, "spawn", _in_process(stage)))
    for name in ("multiprocessing", "torch.multiprocessing"):  # which can be set once in a process, and this one is old
        stage.when_imported(name, lambda library: stage.patch(library, "set_start_method", lambda *_, **__: None))
        stage.when_imported(name, lambda library: stage.wrap(library, "Pool", _of_threads(stage)))
    stage.when_imported("multiprocessing.context", lambda library: _contexts(stage, library.BaseContext))
    stage.when_imported("concurrent.futures", lambda library: _executors(stage, library))
    stage.when_imported("torch", lambda torch: _threads_end_with_forks(stage, torch))
    stage.when_imported("torch.nn.parallel.distributed", lambda library: _on_cpu(stage, library))
    stage.when_imported("torch", lambda torch: _synchronized(stage, torch))
    if stage.request.replicas > 1:
        stage.when_imported("torch", lambda torch: _replicated(stage, torch))
    yield
    for name in set(os.environ) - set(before):
        if name in LAUNCHED:
            del os.environ[name]


def lesson(stage: Stage, error: BaseException) -> bool:
    """A script that asks for what a launcher sets is told that one started it; so is one that wants what it only keeps of
    that when it is launched, as in `args.world_size`, or the group that it only makes then."""
    text = str(error)
    if _NO_GROUP in text:
        return launch(stage, "RANK")
    asked = [name for name in LAUNCHED if name in text]
    if not asked and isinstance(error, AttributeError | KeyError | NameError):
        asked = [name for name in LAUNCHED if f"'{name.lower()}'" in text]
    return bool(asked) and launch(stage, asked[0])


def launch(stage: Stage, asked: str) -> bool:
    """Tell the next attempt all that the launcher sets which sets a variable."""
    kind = asked.partition("_")[0]
    family = [name for name in LAUNCHED if name.startswith(kind) or kind not in ("SLURM", "OMPI")]
    family = [name for name in family if kind in ("SLURM", "OMPI") or not name.startswith(("SLURM", "OMPI"))]
    return stage.learn("launched", sorted({*stage.learned.get("launched", ()), *family}))


def _started(stage: Stage, original: Any, own: Any, args: Any, rest: tuple[Any, ...], named: dict[str, Any]) -> None:
    said = _answer(stage, args)
    if said and isinstance(args, str) and named.get("shell") and (following := _following(args)):
        args = f"printf %s {shlex.quote(said)} {following}"
    elif said is not None:
        args, rest = ["printf", "%s", said], rest[:1]
        named = {name: value for name, value in named.items() if name not in ("shell", "executable", "cwd", "preexec_fn")}
    original(own, args, *rest, **named)


def _run_by_shell(stage: Stage, original: Any, command: Any) -> int:
    said = _answer(stage, command)
    if said is None:
        return int(original(command))
    following = _following(os.fsdecode(command))
    return int(original(f"printf %s {shlex.quote(said)} {following}")) if said and following else 0


def _following(command: str) -> str:
    """What a shell does with that which the first program of a command says: ` | grep Free > free.txt`. Nothing where one of
    those programs is answered, too."""
    found = re.match(r"""(?:[^'"|>;&]|'[^']*'|"[^"]*")*?(\d?[|>;&].*)$""", command.strip(), re.DOTALL)
    following = found[1] if found else ""
    programs = [os.path.basename(part.split()[0]) for part in re.split(r"[|;&]+", following) if part.split()]
    return "" if _ANSWERED.intersection(programs) else following


def _answer(stage: Stage, command: Any) -> str | None:
    """What the user's own code is told instead of running a command; None where the command is run."""
    caller = next(
        (
            frame
            for frame in frames()
            if os.path.basename(frame.f_code.co_filename) not in ("subprocess.py", "os.py", "<frozen os>")
        ),
        None,
    )
    if caller is None or not is_users(caller.f_code.co_filename, stage.root):
        return None
    text = os.fsdecode(command) if isinstance(command, str | bytes | os.PathLike) else " ".join(map(os.fspath, command))
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    program = next((word for word in words if "=" not in word and word != "sudo"), "")
    name = os.path.basename(program)
    if name not in _ANSWERED and not re.fullmatch(r"python3?\.\d+", name) and (not name or shutil.which(program) is not None):
        return None
    stage.note("processes", f"{text} was answered, not run")
    return _said_by(name, text)


def _said_by(name: str, text: str) -> str:
    if name in ("git", "hg", "svn"):
        if re.search(r"branch|abbrev-ref|symbolic-ref", text):
            return "main\n"
        if re.search(r"toplevel", text):
            return f"{os.getcwd()}\n"
        return (
            f"{'0' * (7 if '--short' in text else 40)}\n"
            if re.search(r"rev-parse|log|describe|rev-list|show|\bid\b", text)
            else ""
        )
    if name in ("stty", "tput"):
        return "24 80\n" if name == "stty" else "80\n"
    query = re.search(r"--query-gpu=([\w.,]+)", text)
    if query is not None:
        return f"{', '.join('10000' if 'memory' in field else '0' for field in query[1].split(','))}\n"
    return _GPUS if name == "nvidia-smi" else ""


def _without_checkout(stage: Stage, library: Any) -> None:
    """GitPython: a copy is no checkout; what a script asks of it is for its records. A library that asks takes a no."""
    from ..silent import Silent

    def open_repository(original: Any, *args: Any, **named: Any) -> Any:
        if not is_users(next(frames()).f_code.co_filename, stage.root):
            return original(*args, **named)
        stage.note("processes", "the checkout of which GitPython tells is empty")
        return Silent("git.Repo")

    stage.wrap(library, "Repo", open_repository)


def _alone(stage: Stage, library: Any) -> None:
    request, made = stage.request, itertools.count()

    def start(original: Any, backend: Any = None, *args: Any, **named: Any) -> None:
        some = "one process" if request.ranks == 1 else f"{request.ranks} processes"
        stage.note("processes", f"a group of {some} with gloo stood in for {backend or 'the default backend'}")
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        path = stage.made / f"group-{os.getpid()}"
        if request.group is not None:  # all ranks make their groups in one order
            path = Path(f"{request.group}-{next(made)}")
        else:
            path.unlink(missing_ok=True)
        original("gloo", store=library.FileStore(str(path), request.ranks), rank=request.rank, world_size=request.ranks)
        _GROUPS.append(library.group.WORLD)

    def more(original: Any, *args: Any, **named: Any) -> Any:
        _GROUPS.append(original(*args, **named))
        return _GROUPS[-1]

    stage.wrap(library, "init_process_group", start)
    stage.wrap(library, "new_group", more)
    stage.when_imported(
        "torch.distributed.distributed_c10d", lambda inner: stage.patch(inner, "init_process_group", library.init_process_group)
    )


def _threads_end_with_forks(stage: Stage, torch: Any) -> None:
    """A process that is forked, since none is spawned here, has none of the threads that torch computed with before, and would
    wait for them for ever."""
    computing = [torch]
    os.register_at_fork(after_in_child=lambda: [library.set_num_threads(1) for library in computing])
    stage.on_exit(computing.clear)


def _in_process(stage: Stage) -> Any:
    def spawn(original: Any, fn: Any, args: Any = (), nprocs: Any = 1, *rest: Any, **named: Any) -> None:
        if isinstance(nprocs, int) and nprocs < 1:
            raise RuntimeError("no process was spawned, as many as there are GPUs")  # so that it is told that there is one
        stage.note("processes", f"rank {stage.request.rank} ran in this process, no worker was spawned")
        fn(stage.request.rank, *args)

    return spawn


def _of_threads(stage: Stage) -> Callable[..., Any]:
    """A pool of threads in place of one of processes: what these send each other goes through sockets that no rehearsal has,
    and of a model that they call nothing is seen."""

    def pool(original: Any, processes: Any = None, initializer: Any = None, initargs: Any = (), *_: Any, **__: Any) -> Any:
        from multiprocessing.pool import ThreadPool

        _begin(stage, initializer, initargs)
        return ThreadPool(min(processes or _THREADS, _THREADS))

    return pool


def _begin(stage: Stage, initializer: Any, initargs: Any) -> None:
    """What each process would do first is done once, in the thread that may set how signals are handled."""
    stage.note("processes", "threads worked in place of a pool's processes")
    if initializer is not None:
        initializer(*initargs)


def _contexts(stage: Stage, kind: Any) -> None:
    made = _of_threads(stage)
    stage.wrap(kind, "Pool", lambda original, own, *args, **named: made(original, *args, **named))


def _executors(stage: Stage, library: Any) -> None:
    class Threads(library.ThreadPoolExecutor):  # type: ignore[misc]
        def __init__(
            self, max_workers: Any = None, mp_context: Any = None, initializer: Any = None, initargs: Any = (), **_: Any
        ) -> None:
            _begin(stage, initializer, initargs)
            super().__init__(min(max_workers or _THREADS, _THREADS))

    stage.patch(library, "ProcessPoolExecutor", Threads)


def _on_cpu(stage: Stage, library: Any) -> None:
    def start(original: Any, self: Any, module: Any, *args: Any, **named: Any) -> None:
        for name in ("device_ids", "output_device"):
            named.pop(name, None)
        original(self, module, *args[2:], **named)

    stage.wrap(library.DistributedDataParallel, "__init__", start)
    # It would reject SyncBatchNorm on the CPU, which has a stand-in.
    stage.wrap(library.DistributedDataParallel, "_passing_sync_batchnorm_handle", lambda original, self, module: None)


def _synchronized(stage: Stage, torch: Any) -> None:
    """SyncBatchNorm computes on GPUs alone; on the CPU it would be an error."""

    def forward(original: Any, layer: Any, values: Any) -> Any:
        from ...ranks.layers import synchronized

        stage.note("device", "SyncBatchNorm was computed on the CPU")
        return synchronized(original, layer, values)

    stage.wrap(torch.nn.SyncBatchNorm, "forward", forward)


def _replicated(stage: Stage, torch: Any) -> None:
    """DataParallel without GPUs would be the module itself, and normalize all rows of a batch together."""
    from ...ranks.layers import replicated

    chunks = replicated(stage.request.replicas)

    def forward(original: Any, wrapper: Any, *args: Any, **named: Any) -> Any:
        stage.note("device", f"the {stage.request.replicas} replicas of DataParallel ran on the CPU, one after the other")
        return chunks(original, wrapper, *args, **named)

    stage.wrap(torch.nn.DataParallel, "forward", forward)
