"""What torch has on GPUs alone, on the CPU: the same as one process with all rows, or as one replica after the other."""

import json
import os

import pytest
import torch
from torch import nn

from headrace.migrate.worker.ranks.layers import replicated, synchronized


def test_a_rank_alone_and_evaluation_are_plain_batch_normalization():
    torch.manual_seed(0)
    layer, plain = nn.SyncBatchNorm(3), nn.BatchNorm2d(3)
    values = torch.randn(4, 3, 5, 5)
    for train in (True, False):
        found = synchronized(None, layer.train(train), values)
        assert torch.allclose(found, plain.train(train)(values))
    assert torch.allclose(layer.running_var, plain.running_var)


RANK = """
import json, sys, torch, torch.distributed as dist
from torch import nn
from headrace.migrate.worker.ranks.layers import synchronized
rank = int(sys.argv[1])
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[2], 2), rank=rank, world_size=2)
torch.manual_seed(0)
values, weights = torch.randn(6, 3, 4), torch.randn(6, 3, 4)
layer, plain = nn.SyncBatchNorm(3), nn.BatchNorm1d(3)
rows = [slice(0, 2), slice(2, 6)][rank]  # of different numbers
own = values[rows].clone().requires_grad_()
whole = values.clone().requires_grad_()
expected = plain(whole)
found = synchronized(None, layer, own)
(expected * weights).sum().backward()
(found * weights[rows]).sum().backward()
gradient = layer.weight.grad.clone()
dist.all_reduce(gradient)
apart = lambda a, b: float((a - b).abs().max())
print(json.dumps([apart(expected[rows], found), apart(whole.grad[rows], own.grad), apart(plain.weight.grad, gradient),
                  apart(plain.running_var, layer.running_var), apart(plain.running_mean, layer.running_mean)]))
dist.barrier()
"""


def test_two_ranks_normalize_as_one_process_with_all_rows(warm_torch, tmp_path):
    group = str(tmp_path / "group")
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    started = []
    for rank in (0, 1):
        out = (tmp_path / f"{rank}.out").open("w+")
        command = ["-c", RANK, str(rank), group]
        started.append((warm_torch.popen(command, cwd=tmp_path, env=environment, stdout=out, stderr=out), out))
    for process, out in started:
        process.wait(timeout=200)
        out.seek(0)
        text = out.read()
        out.close()
        assert process.returncode == 0, text
        assert max(json.loads(text.splitlines()[-1])) < 1e-5


@pytest.mark.parametrize("rows", [4, 5])
def test_replicas_normalize_their_own_rows_and_the_first_keeps_its_statistics(rows):
    torch.manual_seed(0)
    layer = nn.DataParallel(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)))
    values = torch.randn(2 * rows, 2)
    found = replicated(2)(None, layer, values)
    torch.manual_seed(0)
    plain = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    plain.load_state_dict({**layer.module.state_dict(), **nn.BatchNorm1d(2).state_dict(prefix="0.")})
    chunks = values.chunk(2)
    first = plain(chunks[0])
    assert torch.allclose(layer.module[0].running_mean, plain[0].running_mean)
    assert int(layer.module[0].num_batches_tracked) == 1
    assert torch.allclose(found, torch.cat([first, plain(chunks[1])]))
