"""Every rank decides as the first, and what one rank cannot, none does."""

import pytest
import torch

from headrace.runtime.parallel.agreement import Agreement

pytestmark = pytest.mark.timeout(900)  # several processes that wait for each other, on whatever cores there are


def test_without_global_tensors_everybody_decides_alone():
    agreement = Agreement([torch.ones(2)])
    assert not agreement
    assert agreement.first(3) == 3
    assert agreement.any(None) is None
    assert agreement.any("no memory") == "no memory"


def test_ranks_agree_those_of_the_mesh_alone(ranks):
    results = ranks.run(3, "agreeing")
    assert results[0] == results[2] == {"ranks": [0, 2], "first": 0, "any": "rank 2 cannot", "none": None}
    assert results[1] == {"ranks": []}
