"""A head that is split over classes: the loss and the best classes are those of one device."""

import pytest
import torch
from torch.nn import functional

from headrace import parallel
from headrace.errors import InputError

sbp = parallel.sbp


pytestmark = pytest.mark.timeout(900)  # several processes that wait for each other, on whatever cores there are


@pytest.mark.parametrize(("count", "mesh", "classes"), [(2, [1, 2], 101), pytest.param(4, [2, 2], 7, marks=pytest.mark.slow)])
def test_it_trains_and_answers_as_on_one_device(ranks, count, mesh, classes):
    """With a number of classes that the ranks do not share out evenly, and with fewer on a rank than are asked for."""
    for found in ranks.run(count, "head", mesh=mesh, classes=classes, steps=8):
        assert found["losses"] < 1e-6
        assert found["values"] < 1e-6
        assert found["best"] == [True, True, True]
        assert all("captured" in step for step in found["steps"][1:]), found["steps"]


@pytest.mark.parametrize("classes", [23, pytest.param(4096, marks=pytest.mark.slow)])
def test_classes_are_split_over_both_axes(ranks, classes):
    for found in ranks.run(4, "head", mesh=[2, 2], classes=classes, steps=6, both=True):
        assert max(found["losses"], found["values"]) < 1e-6
        assert found["best"] == [True, True, True]


def test_whole_scores_are_torchs_own_affair(alone):
    scores, targets = torch.randn(4, 5), torch.tensor([0, 1, 2, 4])
    assert torch.equal(parallel.cross_entropy(scores, targets), functional.cross_entropy(scores, targets))
    assert torch.equal(parallel.topk(scores, 2)[1], scores.topk(2).indices)
    with pytest.raises(InputError, match="between 1 and the 5 classes, got 6"):
        parallel.topk(scores, 6)
    with pytest.raises(InputError, match=r"must be \[n, classes\]"):
        parallel.topk(scores[0], 1)


def test_what_lies_otherwise_is_said(alone):
    mesh = parallel.placement("cpu", [0])
    scores = parallel.to_global(torch.randn(4, 5), mesh, sbp.split(1))
    with pytest.raises(InputError, match=r"a global tensor that is sbp\.broadcast"):
        parallel.cross_entropy(scores, torch.tensor([0, 1, 2, 4]))
    targets = parallel.to_global(torch.tensor([0, 1, 2, 4]), mesh)
    assert torch.allclose(
        parallel.whole(parallel.cross_entropy(scores, targets)),
        functional.cross_entropy(parallel.whole(scores), parallel.whole(targets)),
    )
