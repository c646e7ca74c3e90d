"""Global tensors taken apart for a program and put together again."""

import torch
from torch.distributed.tensor import Shard

from headrace import parallel
from headrace.runtime.parallel import shares


def test_plain_tensors_stay_what_they_are():
    values = [torch.ones(2), torch.zeros(3)]
    parts, layouts = shares.taken_apart(values)
    assert all(one is two for one, two in zip(parts, values, strict=True))
    assert layouts == [None, None]
    assert shares.put_together(parts, layouts) == parts
    assert shares.layout_of(values[0]) is None


def test_global_ones_come_back_as_they_lay_and_share_their_memory(alone):
    mesh = parallel.placement("cpu", [0])
    value = parallel.to_global(torch.zeros(4, 3), mesh, parallel.sbp.split(1))
    (part, plain), layouts = shares.taken_apart([value, torch.ones(2)])
    part.add_(1)
    again, same = shares.put_together([part, plain], layouts)
    assert torch.equal(parallel.whole(value), torch.ones(4, 3))
    assert (again.placements, again.shape, same is plain) == ((Shard(1),), (4, 3), True)
    assert shares.layout_of(value) == ((0,), (1,), (str(Shard(1)),))
    assert shares.is_global(again)
    assert not shares.is_global(part)


def test_a_share_and_what_lies_as_another(alone):
    value = parallel.to_global(torch.zeros(4, 3), parallel.world("cpu"), parallel.sbp.split(1)).requires_grad_()
    shares.share_of(value).add_(1)
    assert not shares.share_of(value).requires_grad
    assert torch.equal(parallel.whole(value), torch.ones(4, 3))
    assert shares.around_like(torch.zeros(4, 3), value).placements == value.placements
    plain = torch.zeros(2, requires_grad=True)
    assert shares.share_of(plain).data_ptr() == plain.data_ptr()
    assert shares.around_like(plain, plain) is plain


def test_ranks_are_simulated_only_within_the_mode(four):
    assert shares.simulated()


def test_and_not_without():
    assert not shares.simulated()
