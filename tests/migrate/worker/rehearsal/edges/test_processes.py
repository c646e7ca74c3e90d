import os

import pytest

from headrace.migrate.worker.rehearsal.edges import processes


def test_one_process_is_the_whole_group(rehearsed):
    text = """
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def worker(gpu, count):
    dist.init_process_group(backend="nccl", init_method="env://", world_size=count, rank=gpu)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1).cuda(gpu), device_ids=[gpu])
    value = net(torch.ones(3, 2)).sum()
    dist.all_reduce(value)
    part = dist.new_group([0])
    dist.all_reduce(torch.ones(1), group=part)
    print(dist.get_world_size(), dist.get_rank(), os.environ["LOCAL_RANK"], value.numel())
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(worker, nprocs=8, args=(8,))
"""
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout, done.report.attempts) == ("finished", "1 0 0 1\n", 2), done.report
    said = [item.what for item in done.standins("processes")]
    assert "a group of one process with gloo stood in for nccl" in said
    assert "LOCAL_RANK=0 in the environment, as a launcher sets it" in said


@pytest.mark.parametrize(("name", "other"), [("LOCAL_RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")])
def test_who_asks_for_one_word_of_a_launcher_is_told_all_its_words(on_stage, monkeypatch, name, other):
    monkeypatch.delenv(name, raising=False)
    world = on_stage()
    assert processes.lesson(world.stage, KeyError(name))
    assert {name, other} <= set(world.stage.learned["launched"])
    assert ("SLURM_PROCID" in world.stage.learned["launched"]) == name.startswith("SLURM")
    assert not processes.lesson(world.stage, KeyError("HOME"))


def test_what_a_script_only_keeps_of_its_launcher_is_no_fault_of_its_own(rehearsed):
    """Its README starts it by torchrun: what it then copies from one setup to the next is never set where nobody does."""
    text = """
import os
from argparse import Namespace
def setup(args):
    args.distributed = "RANK" in os.environ and "WORLD_SIZE" in os.environ
    if args.distributed:
        args.world_size = int(os.environ["WORLD_SIZE"])
    return args
first, second = setup(Namespace()), Namespace()
second.world_size = first.world_size
print(second)
"""
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "Namespace(world_size=1)\n"), done.report
    done = rehearsed({"main.py": "from argparse import Namespace\nprint(Namespace().word_size)\n"}, made=done.root / "other")
    assert (done.report.ended, done.report.attempts) == ("stopped", 1)
    assert "repository's own code fails at main.py:2" in done.report.remedy


def test_a_group_that_a_script_makes_only_where_it_is_launched_is_made(rehearsed):
    text = """
import os
import torch.distributed as dist
if "RANK" in os.environ:
    dist.init_process_group("nccl")
print(dist.get_world_size())
"""
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout, done.report.attempts) == ("finished", "1\n", 2), done.report
    done = rehearsed({"main.py": "import torch.distributed as dist\ndist.get_world_size()\n"}, made=done.root / "other")
    assert (done.report.ended, done.report.attempts) == ("stopped", 2)


def test_the_environment_is_as_it_was_afterwards(on_stage, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    world = on_stage(learned={"launched": ["RANK"]})
    with processes.stand_in(world.stage):
        assert os.environ["RANK"] == "0"
    assert "RANK" not in os.environ


COMMANDS = """
import os, subprocess
print(len(subprocess.check_output(["git", "rev-parse", "HEAD"]).decode().strip()))
print(subprocess.run("git rev-parse --abbrev-ref HEAD", shell=True, capture_output=True, text=True).stdout.strip())
print(subprocess.getoutput("nvidia-smi --query-gpu=memory.free,index --format=csv,nounits,noheader"))
print(os.popen("stty size", "r").read().split())
print(os.system("wget -q https://example.invalid/data.zip"), subprocess.call(["no-such-program", "--now"]))
print(subprocess.check_output(["echo", "real"]).decode().strip())
"""


def test_programs_that_tell_of_another_machine_are_answered_and_others_run(rehearsed):
    done = rehearsed({"main.py": COMMANDS})
    assert done.report.ended == "finished", done.stderr
    assert done.stdout.splitlines() == ["40", "main", "10000, 0", "['24', '80']", "0 0", "real"]
    said = [item.what for item in done.standins("processes")]
    assert "git rev-parse HEAD was answered, not run" in said
    assert not any("echo" in what for what in said)


def test_a_script_that_chooses_idle_gpus_finds_some(rehearsed):
    text = (
        "import re, subprocess, sys\nsaid = subprocess.check_output('nvidia-smi', shell=True).decode()\n"
        "memory = [int(part[:-5]) for part in re.findall(r'\\d+MiB\\s/', said)]\n"
        "busy = [int(part) for part in re.findall(r'(\\d+)%\\s+Default', said)]\n"
        "idle = [i for i, (used, share) in enumerate(zip(memory, busy, strict=True)) if used < 500 and share == 0]\n"
        "sys.exit(0) if len(idle) < 2 else print(idle[:2])\n"
    )
    assert rehearsed({"main.py": text}).stdout == "[0, 1]\n"


def test_what_a_program_says_goes_where_the_shell_sends_it(rehearsed):
    text = """
import os, subprocess
os.system("nvidia-smi -q -d Memory |grep -A4 GPU|grep Free >free.txt")
print([line.split()[2] for line in open("free.txt")], os.system("nvidia-smi -q 2>/dev/null | grep -q 'no such | thing'") != 0)
print(subprocess.check_output("git rev-parse --short HEAD 2>/dev/null | cut -c 1-3", shell=True).decode().strip())
print(os.system("git log | python -c 'print(1)' > never.txt"), os.path.exists("never.txt"))
"""
    assert rehearsed({"main.py": text}).stdout.splitlines() == ["['10000'] True", "000", "0 False"]


def test_libraries_run_their_programs_themselves(rehearsed):
    text = "import platform, ctypes.util\nprint(platform.processor() is not None, ctypes.util.find_library('c') is not None)\n"
    done = rehearsed({"main.py": text})
    assert done.standins("processes") == []


def test_how_processes_start_may_be_set_in_a_process_that_has_started_some(on_stage):
    on_stage(processes).play(
        "import multiprocessing as mp\nimport torch.multiprocessing as other\nmp.get_context('fork')\n"
        "for _ in range(2):\n    mp.set_start_method('spawn')\n    other.set_start_method('spawn')\n"
    )


def test_a_process_that_is_started_after_the_model_computed_computes_too(rehearsed):
    """A user's would be spawned. A forked one waits for threads that it does not have."""
    text = """
import torch
import torch.multiprocessing as mp
torch.set_num_threads(2)

def train(rank, net, images):
    net(images).sum().backward()
    print("rank", rank, all(value.grad is not None for value in net.parameters()), flush=True)

if __name__ == "__main__":
    mp.set_start_method("spawn", force=True)
    net, images = torch.nn.Conv2d(3, 64, 3), torch.rand(8, 3, 64, 64)
    net.share_memory()
    net(images)
    for rank in range(2):
        process = mp.Process(target=train, args=(rank, net, images))
        process.start()
        process.join(60)
        print(process.exitcode)
"""
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "rank 0 True\n0\nrank 1 True\n0\n"), done.report


POOLED = """
import os
import signal
import torch
{imported}


def begin(*_):
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def load(number):
    return torch.full((2,), float(number))


if __name__ == "__main__":
    with {made} as pool:
        print(torch.stack(list(pool.map(load, range(3)))).sum().item())
"""


@pytest.mark.parametrize(
    ("imported", "made"),
    [
        ("from multiprocessing import Pool", "Pool(8)"),
        ("from multiprocessing import Pool", "Pool(processes=4, initializer=begin, initargs=(1,))"),
        ("import torch.multiprocessing as mp", "mp.Pool()"),
        ("import multiprocessing as mp", "mp.get_context('spawn').Pool(2, maxtasksperchild=1)"),
        ("from concurrent.futures import ProcessPoolExecutor", "ProcessPoolExecutor(max_workers=4, initializer=begin)"),
        ("import concurrent.futures", "concurrent.futures.ProcessPoolExecutor()"),
    ],
)
def test_threads_work_in_place_of_a_pools_processes(rehearsed, imported, made):
    done = rehearsed({"main.py": POOLED.format(imported=imported, made=made)})
    assert (done.report.ended, done.stdout) == ("finished", "6.0\n"), done.report.why
    assert [item.what for item in done.standins("processes")] == ["threads worked in place of a pool's processes"]


def test_who_asks_git_for_its_records_is_answered_and_a_library_that_asks_takes_a_no(rehearsed, tmp_path):
    for name, text in {
        "git": "class Repo:\n    def __init__(self, *args):\n        raise ValueError('no checkout')\n",
        "tracker": "import git\n\ndef commit():\n    try:\n        return git.Repo('.').commit\n"
        "    except ValueError:\n        return None\n",
    }.items():
        path = tmp_path / "site-packages" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    text = f"import sys\nsys.path.insert(0, {str(tmp_path / 'site-packages')!r})\nimport git, tracker\n"
    done = rehearsed({"main.py": f"{text}print(tracker.commit())\ngit.Repo().head.commit.hexsha\nprint('well')\n"})
    assert (done.report.ended, done.stdout) == ("finished", "None\nwell\n"), done.report.why
    assert [item.what for item in done.standins("processes")] == ["the checkout of which GitPython tells is empty"]
