"""Rendezvous, ranks and their number are left to torchrun."""

import pytest

from headrace.migrate.rewriting.parallel.launch import launch_edits
from headrace.migrate.rewriting.placement import RejectedError

HEAD = "import torch\nimport torch.distributed as dist\nimport torch.multiprocessing as mp\n\n"


def test_the_group_is_that_of_the_environment(context_of, edited):
    context = context_of(HEAD + 'dist.init_process_group("nccl", init_method=args.url, rank=r, world_size=w)\n')
    assert edited(context, launch_edits(context)).endswith(
        'dist.init_process_group("nccl", init_method="env://", rank=r, world_size=w)\n'
    )


def test_addresses_go_and_other_variables_stay(context_of, edited):
    text = HEAD.replace("import torch\n", "import os\n\nimport torch\n", 1) + (
        'def setup():\n    os.environ["MASTER_ADDR"] = "127.0.0.1"\n    os.environ["MASTER_PORT"] = "1"  # free\n'
        '    os.environ["OMP_NUM_THREADS"] = "1"\n\n\nif alone:\n    os.environ["MASTER_PORT"] = "2"\n'
        'dist.init_process_group("gloo")\n'
    )
    context = context_of(text)
    after = edited(context, launch_edits(context))
    assert 'def setup():\n    pass  # free\n    os.environ["OMP_NUM_THREADS"] = "1"\n' in after
    assert "if alone:\n    pass\n" in after
    compile(after, "script.py", "exec")


@pytest.mark.parametrize(
    ("option", "after"),
    [
        ('"--local_rank", type=int, default=-1', '"--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", -1))'),
        ('"--local-rank", type=int', '"--local-rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0))'),
        ('"--local_rank", default=os.getenv("LOCAL_RANK", 0)', '"--local_rank", default=os.getenv("LOCAL_RANK", 0)'),
        ('"--rank", default=0', '"--rank", default=0'),
    ],
)
def test_the_option_that_torchrun_does_not_give(context_of, edited, option, after):
    context = context_of(f'{HEAD}parser.add_argument({option})\ndist.init_process_group("gloo")\n')
    assert f"parser.add_argument({after})" in edited(context, launch_edits(context))


SPAWN = HEAD + 'def work(rank, n, flag=False):\n    dist.init_process_group("gloo", rank=rank, world_size=n)\n\n\n'


@pytest.mark.parametrize(
    ("spawn", "after"),
    [
        ("mp.spawn(work, args=(n, True), nprocs=n)", "n = headrace.parallel.world_size()\nwork(RANK, n, True)"),
        ("mp.spawn(work, (args.n,), args.n, join=True)", "args.n = headrace.parallel.world_size()\nwork(RANK, args.n)"),
        (
            "mp.spawn(work, nprocs=torch.cuda.device_count(), args=(torch.cuda.device_count(),))",
            "work(RANK, headrace.parallel.world_size())",
        ),
        ("torch.multiprocessing.spawn(work, args=(n,), nprocs=4)", "work(RANK, n)"),
    ],
)
def test_a_spawn_becomes_a_call(context_of, edited, spawn, after):
    context = context_of(f"{SPAWN}{spawn}\n")
    text = edited(context, launch_edits(context))
    assert text.endswith(after.replace("RANK", 'int(os.environ["LOCAL_RANK"])') + "\n"), text
    assert text.startswith("import os\n")


def test_os_is_imported_once_and_where_it_is_read(context_of, edited):
    within = SPAWN.replace("def work(rank, n, flag=False):\n", "def work(rank, n, flag=False):\n    import os\n")
    for text, count in ((f"import os, sys\n{SPAWN}", 0), (within, 1)):
        context = context_of(f"{text}mp.spawn(work, args=(n, True), nprocs=n)\n")
        after = edited(context, launch_edits(context))
        assert after.count("\nimport os\n") + after.startswith("import os\n") == count


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "nothing in the repository calls"),
        (f"os = 1\n{SPAWN}mp.spawn(work, args=(n,), nprocs=n)\n", "uses the name os"),
        (f"{SPAWN}mp.spawn(work, args=(2,), nprocs=2)\n", "whether 2 among the arguments"),
        (f"{SPAWN}context = mp.spawn(work, args=(2,), nprocs=n)\n", "more than a statement of its own"),
        (f"{SPAWN}mp.spawn(work, args=(2,), nprocs=n, join=False)\n", "does not wait"),
        (f"{SPAWN}mp.spawn(work, args=given, nprocs=n)\n", "does not write out"),
        (f"{SPAWN}mp.spawn(lambda rank: 1, nprocs=n)\n", "starts no function"),
        (f"{SPAWN}mp.spawn(work, nprocs=n)\nmp.spawn(work, nprocs=n)\n", "in two places"),
        (f"{SPAWN}def main():\n    mp.spawn(work, args=(N,), nprocs=N)\n", "the global N says"),
        (f'{HEAD}dist.init_process_group("gloo", store=s)\n', "torchrun's environment"),
        (f'{HEAD}import os\nos.environ.update(MASTER_PORT="1")\ndist.init_process_group("gloo")\n', "sets where"),
        (f'{HEAD}parser.add_argument("--local_rank", required=True)\ndist.init_process_group("gloo")\n', "requires the option"),
    ],
)
def test_what_is_not_understood_is_named(context_of, text, why):
    context = context_of(text or HEAD)
    with pytest.raises(RejectedError, match=why):
        launch_edits(context)
