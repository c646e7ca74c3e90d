"""Ranks: four simulated in this process, or real ones over gloo, each a process that ends with its test."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path

import pytest
import torch.distributed as dist
from torch.distributed.tensor._utils import ExplicitRedistributionContext

ROOT = Path(__file__).parents[3]


@pytest.fixture
def four():
    """Four simulated ranks; what tensors are on each of them is compared by `agreed`."""
    local_tensor = pytest.importorskip("torch.distributed._local_tensor", reason="this torch simulates no ranks")
    dist.init_process_group("fake", rank=0, world_size=4)
    try:
        with local_tensor.LocalTensorMode(4):
            yield 4
    finally:
        dist.destroy_process_group()
        ExplicitRedistributionContext._local._active = None


class Ranks:
    """Jobs of processes over gloo on loopback, each rank a run of a function of `rank_program`, or another `program`."""

    def __init__(self, warm, folder):
        self.warm, self.folder, self.running = warm, folder, []

    def start(self, count, function, *, program="rank_program.py", **arguments):
        """The processes, each with the file of what it prints."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        begun = []
        for rank in range(count):
            env = {
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": "lo",
            }
            out = (self.folder / f"{len(self.running)}.out").open("w+")
            command = [Path(__file__).with_name(program), function, json.dumps(arguments)]
            process = self.warm.popen(command, cwd=ROOT, env=env, stdout=out, stderr=out)
            begun.append((process, out))
            self.running.append((process, out))
        return begun

    def run(self, count, function, timeout=600, **arguments):
        """What each rank's function returned."""
        results = []
        for process, out in self.start(count, function, **arguments):
            process.wait(timeout=timeout)
            text = said(out)
            assert process.returncode == 0, text
            results.append(json.loads(text.splitlines()[-1]))
        return results

    def end_for_the_loss_of(self, lost, begun):
        """All of them end, and the first one names the one that was lost."""
        for rank, (process, out) in enumerate(begun):
            process.wait(timeout=120)
            text = said(out)
            assert process.returncode != 0
            if rank == 0:
                assert "RankLostError" in text, text
                assert f"rank {lost}" in text, text

    def close(self):
        for process, out in self.running:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                process.wait()
            out.close()


def said(out):
    out.seek(0)
    return out.read()


@pytest.fixture
def ranks(warm_torch, tmp_path):
    """See `Ranks`."""
    started = Ranks(warm_torch, tmp_path)
    yield started
    started.close()
