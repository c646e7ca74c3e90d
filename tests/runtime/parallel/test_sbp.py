"""The words for how a global tensor lies."""

import pytest
from torch.distributed.tensor import Partial, Replicate, Shard

from headrace import parallel
from headrace.errors import InputError
from headrace.runtime.parallel.sbp import placements_of, words

sbp = parallel.sbp


def test_the_words_are_torchs_own_placements():
    assert (sbp.split(1), sbp.broadcast, sbp.partial_sum) == (Shard(1), Replicate(), Partial())


@pytest.mark.parametrize("dim", [-1, 1.0, True, "0"])
def test_a_split_is_over_a_dimension_counted_from_zero(dim):
    with pytest.raises(InputError, match="counted from 0"):
        sbp.split(dim)


def test_a_mesh_of_two_axes_takes_two():
    assert placements_of((sbp.split(0), sbp.broadcast), 2) == (Shard(0), Replicate())
    with pytest.raises(InputError, match="2 axes and 1 sbp"):
        placements_of(sbp.broadcast, 2)
    with pytest.raises(InputError, match="got 'split'"):
        placements_of("split", 1)


def test_messages_write_them_as_users_do():
    assert words((Shard(0),)) == "sbp.split(0)"
    assert words((Partial(), Replicate())) == "(sbp.partial_sum, sbp.broadcast)"
    assert words((Partial("max"),)) == "a partial max"
