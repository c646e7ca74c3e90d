"""Conversions are written, and the gradient comes back as the value went."""

import pytest
import torch

from headrace import parallel
from headrace.errors import InputError, PlacementError
from headrace.runtime.parallel.boxing import convert
from tests.runtime.parallel import cases

sbp = parallel.sbp


def one(value):
    return value.reconcile() if hasattr(value, "reconcile") else value


@pytest.mark.parametrize("shape", [(8, 3), (6, 3), (2, 3)])
@pytest.mark.parametrize("how", [sbp.split(0), sbp.split(1), sbp.broadcast])
def test_a_plain_tensor_is_the_whole_value_whatever_it_is_cut_into(four, shape, how):
    value = cases.randn(*shape)
    assert torch.equal(one(parallel.whole(parallel.to_global(value, parallel.world("cpu"), how))), value)


def test_shares_are_each_ranks_part(alone):
    mesh = parallel.placement("cpu", [0])
    value = torch.ones(2, 3, requires_grad=True)
    (parallel.to_global(value * 2, mesh, sbp.split(0), shares=True) ** 2).sum().backward()
    assert torch.equal(value.grad, torch.full((2, 3), 8.0))
    part = parallel.to_global(torch.ones(2), mesh, sbp.partial_sum, shares=True)
    assert torch.equal(parallel.whole(part), torch.ones(2))


CONVERSIONS = [
    (before, after)
    for before in (sbp.split(0), sbp.split(1), sbp.broadcast, sbp.partial_sum)
    for after in (sbp.split(0), sbp.split(1), sbp.broadcast)
]


@pytest.mark.parametrize(("before", "after"), CONVERSIONS, ids=str)
def test_every_conversion_keeps_the_value_and_ties_the_gradient(four, before, after):
    """The value, and the gradient of a computation behind the conversion, are those of one process."""
    mesh = parallel.world("cpu")
    value = cases.randn(8, 4)
    factor = cases.randn(4, 8)
    expected = value.clone().requires_grad_()
    (torch.sin(expected @ factor) if before != sbp.partial_sum else torch.sin(expected)).sum().backward()
    if before == sbp.partial_sum:  # a product of two that are split over what is summed
        left = parallel.to_global(torch.eye(8, dtype=torch.float64), mesh, sbp.split(1))
        given = left @ parallel.to_global(value, mesh, sbp.split(0)).requires_grad_()
        given.retain_grad()
    else:
        given = parallel.to_global(value.clone().requires_grad_(), mesh, before)
    assert given.placements == (before,)
    converted = parallel.to_global(given, sbp=after)
    assert converted.placements == (after,)
    assert torch.allclose(one(parallel.whole(converted)), value, atol=1e-14, rtol=0)
    if before == sbp.partial_sum:
        result = torch.sin(converted).sum()
    else:
        result = torch.sin(parallel.to_global(converted, sbp=sbp.split(0)) @ parallel.to_global(factor, mesh)).sum()
    result.backward()
    tied = sbp.broadcast if before == sbp.partial_sum else before
    assert given.grad.placements == (tied,)
    assert torch.allclose(one(parallel.whole(given.grad)), expected.grad, atol=1e-12, rtol=0)


def test_the_same_sbp_moves_nothing_and_sums_the_gradient(four):
    mesh = parallel.world("cpu")
    weight = parallel.to_global(torch.ones(3, 2).requires_grad_(), mesh)
    rows = parallel.to_global(torch.ones(8, 3), mesh, sbp.split(0))
    (rows @ parallel.to_global(weight)).sum().backward()
    assert weight.grad.placements == (sbp.broadcast,)
    assert torch.equal(one(parallel.whole(weight.grad)), torch.full((3, 2), 8.0))


def test_what_is_no_conversion_is_said(four):
    mesh = parallel.world("cpu")
    value = parallel.to_global(torch.ones(4, 2), mesh)
    with pytest.raises(InputError, match="nothing is converted to partial_sum"):
        parallel.to_global(value, sbp=sbp.partial_sum)
    with pytest.raises(InputError, match="no such dimension"):
        parallel.to_global(value, sbp=sbp.split(2))
    with pytest.raises(InputError, match="needs a placement"):
        parallel.to_global(torch.ones(2))
    with pytest.raises(InputError, match="has a history"):
        parallel.to_global(torch.ones(2, requires_grad=True) * 2, mesh)
    with pytest.raises(PlacementError, match="cannot be converted to ranks"):
        parallel.to_global(value, parallel.world("cpu", (2, 2)), (sbp.broadcast, sbp.broadcast))


def test_the_part_of_a_partial_sum_means_nothing(four):
    mesh = parallel.world("cpu")
    rows = parallel.to_global(torch.ones(8, 3), mesh, sbp.split(0))
    with pytest.raises(PlacementError, match=r"sbp\.partial_sum.*write to_global"):
        parallel.to_local(rows.sum(0))
    assert tuple(parallel.to_local(rows).shape) == (2, 3)
    plain = torch.ones(2)
    assert parallel.to_local(plain) is plain


def test_a_gradient_that_lies_otherwise_than_its_split_value_is_an_error(four):
    mesh = parallel.world("cpu")
    value = parallel.to_global(torch.ones(8, 4), mesh).requires_grad_()
    cut = convert(value, (sbp.split(0),))
    with pytest.raises(PlacementError, match=r"sbp\.split\(0\) has a gradient that is sbp\.split\(1\)"):
        cut.backward(parallel.to_global(torch.ones(8, 4), mesh, sbp.split(1)), retain_graph=True)
    cut.backward(parallel.to_global(torch.ones(8, 4), mesh))  # of a whole one each rank takes its part
    assert torch.equal(one(parallel.whole(value.grad)), torch.ones(8, 4))
