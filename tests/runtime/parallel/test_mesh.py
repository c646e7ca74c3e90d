"""Which ranks a placement is over."""

import pytest
import torch

from headrace import parallel
from headrace.errors import InputError


def test_a_script_that_was_started_alone_is_a_job_of_one_rank(alone):
    mesh = parallel.placement("cpu", [0])
    assert (parallel.world_size(), parallel.rank(), mesh.size()) == (1, 0, 1)
    value = parallel.to_global(torch.arange(6.0), mesh, parallel.sbp.split(0))
    assert parallel.whole(value * 2).tolist() == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize(
    ("ranks", "why"), [([0, 0], "twice"), ([[0], [1, 2]], "equal length"), ([], "integers"), ([-1], "from 0")]
)
def test_ranks_are_different_numbers_in_even_lists(alone, ranks, why):
    with pytest.raises(InputError, match=why):
        parallel.placement("cpu", ranks)


def test_a_rank_that_the_job_has_not_is_named_with_the_remedy(alone):
    with pytest.raises(InputError, match="names rank 3, and the job has 1 ranks.*torchrun --nproc-per-node 4"):
        parallel.placement("cpu", range(4))
    with pytest.raises(InputError, match='"cpu" or "cuda"'):
        parallel.placement("tpu", [0])


def test_the_axes_have_names(four):
    mesh = parallel.world("cpu", (2, -1))
    assert (mesh.mesh.tolist(), mesh.mesh_dim_names) == ([[0, 1], [2, 3]], ("data", "model"))
    with pytest.raises(InputError, match=r"shape \(3,\) does not hold the job's 4"):
        parallel.world("cpu", (3,))
    with pytest.raises(InputError, match="2 different"):
        parallel.world("cpu", (2, 2), names=("a", "a"))


def test_a_program_of_one_process_starts_alike_on_all_ranks(ranks):
    first, second = ranks.run(2, "same_start")
    assert first == second
    assert first[0] == 2


def test_alone_it_keeps_its_random_numbers(alone):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    parallel.same_start("cpu")
    assert torch.equal(torch.rand(1), expected)
