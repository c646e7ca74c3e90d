"""Batch normalization by each rank's own rows, held to DistributedDataParallel on real ranks."""

import torch
from torch import nn

from headrace import parallel


def test_two_ranks_do_as_distributed_data_parallel(ranks):
    options = [{}, {"momentum": None}, {"track_running_stats": False}, {"affine": False}]
    by_rank = ranks.run(2, "own_statistics", each=options)
    assert [len(found) for found in by_rank] == [len(options)] * 2
    for found in (one for rank in by_rank for one in rank):
        assert found["losses"] < 1e-6, found
        assert found["values"] < 1e-5, found
    assert all(first["apart"] > 1e-3 for first, *_ in by_rank), "statistics of all rows would be others"


def test_a_synchronized_one_stays_so(alone):
    module = nn.Sequential(nn.SyncBatchNorm(3), nn.BatchNorm2d(3))
    parallel.to_global(module, parallel.world("cpu"), own_statistics=True)
    bases = [{base.__name__ for base in type(part).__mro__} for part in module]
    assert "GlobalBatchNorm" in bases[0]
    assert "OwnBatchNorm" in bases[1]


def test_on_one_rank_it_is_the_layer_itself(alone):
    torch.manual_seed(0)
    plain, own = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    values = torch.randn(4, 3, 2, 2)
    expected = plain(values)
    parallel.to_global(own, parallel.world("cpu"), own_statistics=True)
    found = own(parallel.to_global(values, parallel.world("cpu"), parallel.sbp.split(0)))
    assert torch.allclose(parallel.whole(found), expected.detach(), atol=1e-6)
    assert torch.allclose(parallel.whole(own.running_var), plain.running_var)
    assert int(parallel.whole(own.num_batches_tracked)) == 1
    found = own.eval()(parallel.to_global(values, parallel.world("cpu")))
    assert torch.allclose(parallel.whole(found), plain.eval()(values).detach(), atol=1e-6)
