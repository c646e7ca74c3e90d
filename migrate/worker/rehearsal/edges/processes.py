"""Processes: a script that wants ranks is the only one of its group, with gloo, in this very process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

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


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    before = dict(os.environ)
    for name in stage.learned.get("launched", ()):
        os.environ.setdefault(name, LAUNCHED[name])
        stage.note("processes", f"{name}={LAUNCHED[name]} in the environment, as a launcher sets it")
    stage.when_imported("torch.distributed", lambda library: _alone(stage, library))
    stage.when_imported("torch.multiprocessing", lambda library: stage.wrap(library, "spawn", _in_process(stage)))
    stage.when_imported("torch.nn.parallel.distributed", lambda library: _on_cpu(stage, library))
    yield
    for name in set(os.environ) - set(before):
        if name in LAUNCHED:
            del os.environ[name]


def lesson(stage: Stage, error: BaseException) -> bool:
    """A script that asks for what a launcher sets is told that one started it."""
    text = str(error)
    asked = [name for name in LAUNCHED if name in text]
    if not asked:
        return False
    kind = asked[0].partition("_")[0]
    family = [name for name in LAUNCHED if name.startswith(kind) or kind not in ("SLURM", "OMPI")]
    family = [name for name in family if kind in ("SLURM", "OMPI") or not name.startswith(("SLURM", "OMPI"))]
    return stage.learn("launched", sorted({*stage.learned.get("launched", ()), *family}))


def _alone(stage: Stage, library: Any) -> None:
    def start(original: Any, backend: Any = None, *args: Any, **named: Any) -> None:
        stage.note("processes", f"a group of one process with gloo stood in for {backend or 'the default backend'}")
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        path = stage.made / f"group-{os.getpid()}"
        path.unlink(missing_ok=True)
        original("gloo", store=library.FileStore(str(path), 1), rank=0, world_size=1)

    stage.wrap(library, "init_process_group", start)
    stage.when_imported(
        "torch.distributed.distributed_c10d", lambda inner: stage.patch(inner, "init_process_group", library.init_process_group)
    )


def _in_process(stage: Stage) -> Any:
    def spawn(original: Any, fn: Any, args: Any = (), *rest: Any, **named: Any) -> None:
        stage.note("processes", "rank 0 ran in this process, no worker was spawned")
        fn(0, *args)

    return spawn


def _on_cpu(stage: Stage, library: Any) -> None:
    def start(original: Any, self: Any, module: Any, *args: Any, **named: Any) -> None:
        for name in ("device_ids", "output_device"):
            named.pop(name, None)
        original(self, module, *args[2:], **named)

    stage.wrap(library.DistributedDataParallel, "__init__", start)
