"""One word for tensors and modules."""

import pytest
import torch
from torch.distributed.tensor import DTensor

from headrace import parallel
from headrace.errors import InputError


def test_a_tensor_becomes_global_and_a_module_does_in_place(alone):
    mesh = parallel.placement("cpu", [0])
    value = parallel.to_global(torch.arange(6.0), mesh, parallel.sbp.split(0))
    assert isinstance(value, DTensor)
    assert parallel.whole(parallel.to_global(value, sbp=parallel.sbp.broadcast)).tolist() == [0, 1, 2, 3, 4, 5]
    module = torch.nn.Linear(3, 2)
    assert parallel.to_global(module, mesh, zero=1) is module
    assert all(isinstance(parameter, DTensor) for parameter in module.parameters())


def test_what_only_one_of_them_takes_is_not_for_the_other(alone):
    mesh = parallel.placement("cpu", [0])
    with pytest.raises(TypeError, match="zero"):
        parallel.to_global(torch.ones(2), mesh, zero=1)
    with pytest.raises(InputError, match="needs a placement"):
        parallel.to_global(torch.ones(2))


def test_what_is_no_name_of_it_is_an_attribute_error():
    assert set(parallel.__all__) == set(dir(parallel))
    assert all(getattr(parallel, name) is not None for name in parallel.__all__)
    with pytest.raises(AttributeError, match="no attribute 'gather'"):
        parallel.gather  # noqa: B018
