"""Ranks of one script: each with its number, its own copy of the repository, and ended where one of them fails."""

import dataclasses
import json
import os
import subprocess
import sys
import time

import pytest

from headrace.migrate.proving.rehearsal_protocol import Rehearsal, RehearsalReport
from headrace.migrate.worker.ranks.launch import NUMBER, launched, of_rank, record_of, why

SCRIPT = """\
import argparse
import os
import sys

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
args = parser.parse_args()
dist.init_process_group("nccl")
assert int(os.environ["RANK"]) == dist.get_rank() == args.local_rank
assert torch.cuda.device_count() == dist.get_world_size() == 2
value = torch.tensor(float(dist.get_rank() + 1))
dist.all_reduce(value)
open("written.txt", "a").write(f"{dist.get_rank()}")
dist.barrier()
print("sum", value.item(), open("written.txt").read())
if FAILS == dist.get_rank():
    HOW
dist.barrier()
"""


@pytest.fixture
def request_of(tmp_path):
    def make(fails, how='raise ValueError("this rank stops")'):
        root = tmp_path / "repository"
        root.mkdir()
        (root / "train.py").write_text(SCRIPT.replace("FAILS", str(fails)).replace("HOW", how))
        return Rehearsal(
            root=str(root), script="train.py", made=str(tmp_path / "made"), argv=(f"--local_rank={NUMBER}",), ranks=2,
            directory=str(root), report=str(tmp_path / "report.json"),
        )  # fmt: skip

    return make


@pytest.fixture
def launch(warm_python, tmp_path):
    def run(request, *, forks=True):
        asked = tmp_path / "request.json"
        asked.write_text(request.to_json())
        command = ["-m", "headrace.migrate.worker.ranks.launch", str(asked)]
        environment = {**os.environ, "HEADRACE_RECORD": ""}
        if forks:
            return warm_python(command, cwd=tmp_path, env=environment)
        return subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
        )

    return run


def test_two_ranks_find_each_other_in_copies_of_their_own(request_of, launch, tmp_path):
    done = launch(request_of(None), forks=False)  # as a user starts them
    assert done.returncode == 0, done.stderr
    assert done.stdout == "sum 3.0 0\n"  # that of rank 0 alone
    report = RehearsalReport.from_json((tmp_path / "report.json").read_text())
    assert any("2 processes with gloo stood in for nccl" in item.what for item in report.standins)


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])  # rank 0's words are those that are shown
def test_a_rank_that_fails_ends_all(request_of, launch, rank):
    started = time.monotonic()
    done = launch(request_of(rank))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ValueError: this rank stops"
    assert time.monotonic() - started < 200  # not as long as a collective waits


@pytest.mark.parametrize(
    "lost",
    [
        "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:41",
        "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:1: Connection reset by peer",
        "RuntimeError: [/pytorch/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms",
        "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
        "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /1//0",
    ],
)
def test_the_error_of_a_rank_that_lost_another_is_not_the_one_that_says_why(lost):
    own = "Traceback (most recent call last):\nValueError: this rank stops\n"
    lost = f"Traceback (most recent call last):\n{lost}\n"
    assert why([0, 1], [lost, own]) == 1
    assert why([1, 0], [own, lost]) == 0
    assert why([0, 1], [own, own]) == 0  # the first
    assert why([1, 0], [lost, lost]) == 1
    assert why([0, 1], [lost, ""]) == 1  # ended from outside, without a word
    assert why([0, 1], [f"{lost}{own}", lost]) == 0  # it went on after that, and failed by itself


def test_a_rank_that_is_killed_is_named(request_of, launch):
    done = launch(request_of(1, how="os.kill(os.getpid(), 9)"))
    assert done.returncode == 128 + 9
    assert done.stderr.splitlines()[-1] == "Rank 1 was ended by SIGKILL."


def test_what_each_rank_is_told(request_of, tmp_path):
    request = dataclasses.replace(request_of(None), directory=str(tmp_path / "repository"))
    first, second = (of_rank(request, rank, tmp_path / "ranks") for rank in (0, 1))
    assert (first.argv, second.argv) == (("--local_rank=0",), ("--local_rank=1",))
    assert (first.root, first.report) == (request.root, request.report)
    assert second.root != request.root
    assert second.directory == second.root
    assert second.report is None
    assert first.group == second.group
    assert launched(1, 2, 5)["MASTER_PORT"] == "5"
    assert [record_of("r.npz", rank) for rank in (0, 1)] == ["r.npz", "r.npz.rank1"]
    assert json.loads(second.to_json())["rank"] == 1
