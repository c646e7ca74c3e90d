"""Softmax and top-k against float64, and against the order that torch.sort gives."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import KernelError
from headrace.kernels import softmax_topk as module
from headrace.kernels.softmax_topk import softmax_topk, softmax_topk_reference

INF, NAN = float("inf"), float("nan")


def assert_right(scores, k):
    got, places = softmax_topk(scores, k)
    wanted, order = softmax_topk_reference(scores.double(), k)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-30, equal_nan=True)
    assert torch.equal(places, order)
    assert (got.shape, got.dtype, places.dtype) == ((scores.shape[0], k), torch.float32, torch.int64)


@settings(max_examples=12)
@given(st.integers(0, 5), st.integers(1, 70), st.data())
def test_any_shape(rows, classes, data):
    k = data.draw(st.integers(0, min(classes, 7)))
    assert_right(torch.randn(rows, classes, generator=torch.Generator().manual_seed(classes)) * 5, k)


# Each is converted where it is read, whatever the strides.
@pytest.mark.parametrize(
    "dtype", [*(pytest.param(one, marks=pytest.mark.slow) for one in (torch.float32, torch.float16)), torch.bfloat16]
)
def test_dtypes_and_strides(dtype, generator, device):
    scores = torch.randn(33, 6, generator=generator).to(device, dtype)
    assert_right(scores.t(), 5)  # classes lie apart
    assert_right(scores[::2, 1:5], 3)
    assert_right(scores[:, :1].expand(33, 4), 2)


def test_rows_longer_than_the_registers(monkeypatch, generator, device):
    monkeypatch.setattr(module, "_MOST_IN_REGISTERS", 16)
    for classes in (17, 32, 45):
        scores = torch.randn(3, classes, generator=generator).to(device)
        scores[0, classes - 1] = 9  # the best is in the last block
        scores[1, :20] = -INF  # a first block without any finite score
        assert_right(scores, 7)


def test_equal_scores_come_in_the_order_of_their_classes(device):
    scores = torch.tensor([[1.0, 3, 3, 0, 3, 1], [0, -0.0, 0, -0.0, 0, -0.0]], device=device)
    _, places = softmax_topk(scores, 5)
    assert places.tolist() == [[1, 2, 4, 0, 5], [0, 1, 2, 3, 4]]


def test_scores_that_no_probability_tells_apart_keep_their_order(device):
    probabilities, places = softmax_topk(torch.tensor([[-200.0, 0.0, -300.0, -250.0]], device=device), 4)
    assert places.tolist() == [[1, 0, 3, 2]]
    assert probabilities.tolist() == [[1, 0, 0, 0]]


@pytest.mark.parametrize(
    "row", [[1, NAN, 2, NAN], [1, INF, 2, INF], [-INF] * 4, [INF] * 4, [NAN] * 4, [-INF, 5, -INF, 4], [3.4e38, -3.4e38, 0, 1]]
)
def test_what_is_not_finite_is_as_in_torch(row, device):
    scores = torch.tensor([row], dtype=torch.float32, device=device)
    assert_right(scores, 4)
    probabilities, places = softmax_topk(scores, 4)
    wanted = torch.softmax(scores, 1).gather(1, places)
    torch.testing.assert_close(probabilities, wanted, equal_nan=True)


def test_nothing_at_all(device):
    for shape, k in (((0, 5), 2), ((4, 5), 0), ((3, 0), 0)):
        probabilities, places = softmax_topk(torch.zeros(shape, device=device), k)
        assert probabilities.shape == places.shape == (shape[0], k)


def test_what_does_not_fit_is_refused():
    with pytest.raises(KernelError, match="there are 3 classes, so k cannot be 4"):
        softmax_topk(torch.zeros(2, 3), 4)
    with pytest.raises(KernelError, match="flatten"):
        softmax_topk(torch.zeros(2, 3, 4), 1)
    with pytest.raises(KernelError, match=r"floats, not torch\.int64"):
        softmax_topk(torch.zeros(2, 3, dtype=torch.int64), 1)
