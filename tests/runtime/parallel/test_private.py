"""A conversion that was not written is an error that names the operator, the line and the call that would make it right."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from headrace import parallel
from headrace.errors import PlacementError
from tests.runtime.parallel import cases

sbp = parallel.sbp


def line_of(text):
    """The line of this file that ends with the comment."""
    lines = Path(__file__).read_text().splitlines()
    return next(at for at, line in enumerate(lines, 1) if line.endswith(f"# {text}"))


def test_in_the_forward_pass(four):
    mesh = parallel.world("cpu")
    left = parallel.to_global(torch.ones(8, 4), mesh, sbp.split(0))
    right = parallel.to_global(torch.ones(4, 8), mesh, sbp.split(0))
    with pytest.raises(PlacementError) as told:
        left @ right  # forward
    assert f"{__file__}:{line_of('forward')}: argument" in str(told.value)
    assert "aten.mm" in str(told.value)
    operands = follow([left, right], told.value)
    try:
        result = operands[0] @ operands[1]
    except PlacementError as error:  # one argument at a time
        result = torch.mm(*follow(operands, error))
    assert torch.equal(parallel.whole(result).reconcile(), torch.full((8, 8), 4.0))


def follow(operands, error):
    """Write the call that the message names."""
    number, wanted = re.search(r"argument (\d).*parallel\.to_global\(value, sbp=(.*)\) before", str(error)).groups()
    converted = parallel.to_global(operands[int(number) - 1], sbp=eval(wanted))
    return [converted if at == int(number) - 1 else value for at, value in enumerate(operands)]


def test_in_the_backward_pass_it_names_the_line_of_the_forward_pass(four):
    mesh = parallel.world("cpu", (2, 2))
    rows = parallel.to_global(cases.randn(8, 4), mesh, (sbp.split(0), sbp.broadcast)).requires_grad_()
    weight = parallel.to_global(cases.randn(6, 4), mesh, (sbp.broadcast, sbp.split(0)))

    def loss(written):
        hidden = functional.gelu(rows)  # backward
        hidden = parallel.to_global(hidden, sbp=(sbp.split(0), sbp.broadcast)) if written else hidden
        return functional.linear(hidden, weight).square().sum()

    with parallel.guarded():
        value = loss(written=False)
        with pytest.raises(PlacementError) as told:
            value.backward()
        assert f"{__file__}:{line_of('backward')}: in the backward pass of gelu" in str(told.value)
        assert "sbp.partial_sum" in str(told.value)
        loss(written=True).backward()  # what the message says
    assert rows.grad.placements == (sbp.split(0), sbp.broadcast)


def test_without_lines_the_message_says_how_to_get_them(four):
    mesh = parallel.world("cpu")
    rows = parallel.to_global(cases.randn(8, 4), mesh).requires_grad_()
    value = functional.linear(functional.gelu(rows), parallel.to_global(cases.randn(8, 4), mesh, sbp.split(0))).square().sum()
    with pytest.raises(PlacementError, match=r"in GeluBackward0.*parallel\.guarded\(\)"):
        value.backward()


def test_what_moves_nothing_is_no_conversion(four):
    mesh = parallel.world("cpu")
    rows = parallel.to_global(torch.ones(8, 4), mesh, sbp.split(0))
    assert (rows + parallel.to_global(torch.ones(8, 4), mesh)).placements == (sbp.split(0),)


def test_implicit_allows_it_and_only_there(four):
    mesh = parallel.world("cpu")
    left, right = (parallel.to_global(torch.ones(8, 8), mesh, sbp.split(0)) for _ in range(2))
    with parallel.implicit():
        assert (left @ right).shape == (8, 8)
        with parallel.guarded():  # a graph's own, within what the user allowed
            left @ right
    with pytest.raises(PlacementError):
        left @ right


@pytest.mark.parametrize(
    "draw",
    [
        lambda value: functional.dropout(value, 0.5),
        nn.Dropout(0.1),
        torch.randn_like,
        torch.bernoulli,
        lambda value: value.uniform_(),
        lambda value: functional.scaled_dot_product_attention(value, value, value, dropout_p=0.1),
    ],
    ids=range(6),
)
def test_random_numbers_that_depend_on_the_ranks_are_not_drawn(four, draw):
    value = parallel.to_global(torch.full((8, 2, 4), 0.5), parallel.world("cpu"), sbp.split(0))
    with parallel.guarded(), pytest.raises(PlacementError, match=r"test_private\.py:\d+: .* draws random numbers"):
        draw(value)


def test_dropout_that_does_nothing_is_none(four):
    value = parallel.to_global(torch.ones(8, 2, 4), parallel.world("cpu"), sbp.split(0))
    with parallel.guarded():
        functional.dropout(value, 0.5, training=False)
        functional.dropout(value, 0.0)
        nn.Dropout(0.5).eval()(value)
        functional.scaled_dot_product_attention(value, value, value)


@pytest.mark.parametrize("shape", [(2, 2), (1, 4), (2, 2, 1)])
def test_rows_of_a_convolution_are_split_over_several_axes(four, shape):
    mesh = parallel.world("cpu", shape)
    rows, weight, bias = cases.randn(9, 3, 5, 5), cases.randn(4, 3, 3, 3), cases.randn(4)
    everywhere, over = (sbp.broadcast,) * len(shape), (sbp.split(0),) * len(shape)
    given = [
        parallel.to_global(value, mesh, lying).requires_grad_()
        for value, lying in ((rows, over), (weight, everywhere), (bias, everywhere))
    ]
    used = [given[0], *(parallel.to_global(value, sbp=everywhere) for value in given[1:])]
    found = functional.conv2d(*used, stride=2, padding=1)
    found.square().sum().backward()
    plain = [value.clone().requires_grad_() for value in (rows, weight, bias)]
    expected = functional.conv2d(*plain, stride=2, padding=1)
    expected.square().sum().backward()
    assert found.placements == over
    torch.testing.assert_close(parallel.whole(found).reconcile(), expected.detach())
    for one, other in zip(given, plain, strict=True):
        torch.testing.assert_close(parallel.whole(one.grad).reconcile(), other.grad)


@pytest.mark.parametrize("rows", [8, 7])
@pytest.mark.parametrize("lies", [(sbp.split(0), sbp.broadcast), (sbp.split(0), sbp.split(0)), (sbp.broadcast, sbp.broadcast)])
@pytest.mark.parametrize("options", [{}, {"weight": [1.0, 2.0, 5.0]}, {"reduction": "sum"}], ids=repr)
def test_a_mean_loss_is_that_of_one_device_whatever_labels_each_rank_has(four, rows, lies, options):
    """All labels of one rank are ignored, and some of another."""
    given = {key: cases.randn(3).new_tensor(value) if key == "weight" else value for key, value in options.items()}
    labels = torch.tensor([-100, -100, 0, 2, -100, 1, 2, 2][:rows])
    images, weight = cases.randn(rows, 5), cases.randn(3, 5).requires_grad_()
    expected = functional.cross_entropy(images @ weight.t(), labels, **given)
    expected.backward()
    mesh = parallel.world("cpu", (2, 2))
    whole = (sbp.broadcast, sbp.broadcast)
    own = parallel.to_global(weight.detach(), mesh, whole).requires_grad_()
    given = {key: parallel.to_global(value, mesh, whole) if key == "weight" else value for key, value in given.items()}
    with parallel.guarded():
        scores = parallel.to_global(images, mesh, lies) @ own.t()
        loss = functional.cross_entropy(scores, parallel.to_global(labels, mesh, lies), **given)
        loss.backward()
    assert torch.allclose(parallel.whole(loss).reconcile(), expected.detach(), atol=1e-12, rtol=0)
    assert torch.allclose(parallel.whole(own.grad).reconcile(), weight.grad, atol=1e-12, rtol=0)
