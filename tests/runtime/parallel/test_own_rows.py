"""Plain tensors in and out of what computes over global ones."""

import pytest
import torch
from torch import nn

import headrace
from headrace import parallel
from headrace.errors import InputError


def test_a_module_that_is_not_global_is_itself():
    module = nn.Linear(2, 2)
    assert parallel.local_view(module) is module
    with pytest.raises(InputError, match='"shares" or "whole"'):
        parallel.local_view(module, batches="some")
    with pytest.raises(ValueError, match='"shares" or "whole"'):
        headrace.training_step(module, nn.MSELoss(), torch.optim.SGD(module.parameters()), batches="some")


def test_rows_go_in_and_come_out_on_one_rank(alone):
    module = nn.Linear(3, 2)
    rows = torch.randn(5, 3)
    expected = module(rows).detach()
    parallel.to_global(module, parallel.world("cpu"))
    view = parallel.local_view(module.eval())
    found = view(rows)
    assert type(found) is torch.Tensor
    assert torch.allclose(found, expected)
    assert torch.allclose(view(input=rows), expected)
    with torch.inference_mode():
        assert torch.allclose(view(rows + 0), expected)
    with pytest.raises(InputError, match="without rows"):
        view(torch.tensor(1.0))


def test_two_ranks_see_their_own_rows_or_all_of_them(ranks):
    results = ranks.run(2, "own_rows")
    for rank, found in enumerate(results):
        assert found["shares"] == results[rank]["expected"][3 * rank : 3 * rank + 3]
        assert found["whole"] == found["uneven"][: len(found["whole"])] == results[0]["expected"]
        assert found["loss"] == results[0]["loss"]
    assert results[0]["loss"] == pytest.approx(results[0]["mean"], rel=1e-6)


def test_a_rank_alone_evaluates(ranks):
    """Nothing is exchanged for rows of one's own, so rank 0 may do so by itself, and of any number of rows."""
    assert ranks.run(2, "own_rows_on_rank_0") == [3, None]


def test_containers_keep_their_kind(alone):
    given = {"a": [1, "x", torch.ones(2)], "b": (None,)}
    found = parallel.whole(given)
    assert (found["a"][:2], found["b"]) == ([1, "x"], (None,))
    assert torch.equal(found["a"][2], torch.ones(2))
