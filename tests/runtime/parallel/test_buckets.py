"""What goes together, and how values are cut for it; on several ranks: tests/runtime/training/test_stage_zero_ranks.py."""

import pytest
import torch
from torch.distributed.tensor import Shard

from headrace import parallel
from headrace.runtime.parallel import buckets
from headrace.runtime.parallel.buckets import Cut


def test_values_of_one_dtype_and_size_go_together(monkeypatch):
    monkeypatch.setattr(buckets, "BUCKET_BYTES", 40)
    sizes = [
        (3, torch.float32),
        (4, torch.bfloat16),
        (6, torch.float32),
        (2, torch.float32),
        (30, torch.float32),
        (1, torch.float32),
    ]
    values = [torch.zeros(count, dtype=dtype) for count, dtype in sizes]
    found = list(buckets.buckets(range(6), values.__getitem__))
    assert sorted(map(tuple, found)) == [(0, 2), (1,), (3,), (4,), (5,)]
    assert list(buckets.buckets([], values.__getitem__)) == []


@pytest.mark.parametrize("shape", [(8,), (5,), (3, 4), (7, 2, 3), (4, 0)])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_parts_are_those_of_a_shard(shape, ranks):
    for dim in range(len(shape)):
        value = torch.arange(torch.Size(shape).numel(), dtype=torch.float64).view(shape)
        if not shape[dim]:
            continue
        cuts = [Cut(value.shape, dim, ranks, rank) for rank in range(ranks)]
        for cut in cuts:
            length, begin = Shard.local_shard_size_and_offset(shape[dim], ranks, cut.rank)
            assert torch.equal(cut.of(value), value.narrow(dim, begin, length))
            assert torch.equal(cut.part(cut.rows(value)[cut.rank]), cut.of(value))
        rows = torch.stack([cut.flat(cut.of(value)) for cut in cuts])
        assert torch.equal(rows, cuts[0].rows(value))
        assert torch.equal(cuts[0].whole(rows), value)


def test_one_rank(alone):
    group = parallel.world("cpu").get_group()
    values = [torch.randn(5, 3).t(), torch.randn(7, dtype=torch.float64), torch.tensor(2.0), torch.randn(2, 3, 4, 4).contiguous(
        memory_format=torch.channels_last
    )]  # fmt: skip
    for given, own in zip(values, buckets.summed(values, group), strict=True):
        assert torch.equal(given, own)
        own.zero_()  # in memory of its own
        assert given.abs().sum() > 0
    cut = [values[0], values[1], values[3]]
    cuts = [Cut(value.shape, dim, 1, 0) for value, dim in zip(cut, (1, 0, 2), strict=True)]
    parts = buckets.reduced(cut, cuts, group)
    assert all(torch.equal(given, own) for given, own in zip(cut, parts, strict=True))
    wholes = [torch.zeros_like(value) for value in cut]
    buckets.gather(parts, cuts, wholes, group)
    assert all(torch.equal(given, own) for given, own in zip(cut, wholes, strict=True))
