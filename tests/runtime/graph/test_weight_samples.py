import pytest
import torch
from torch import nn

from headrace.runtime.graph.weight_samples import Sample, state_of

VALUES = [
    torch.rand(3, 5),
    torch.rand(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
    torch.rand(7, 3)[::2, 1],
    torch.rand(5).double(),
    torch.rand(5).bfloat16(),
    torch.randint(1, 100, (70,)),
    torch.rand(3) > 2,
    torch.rand(()),
    nn.Parameter(torch.rand(1000, 3)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{value.dtype} {tuple(value.stride())}")
def test_what_writes_all_of_a_tensor_shows_though_torch_counts_no_write(value):
    sample = Sample(value)
    before = sample.state(value)
    assert sample.state(value) == before
    version = value._version
    value.data[...] = value.data == 0 if value.dtype == torch.bool else value.data + 1
    assert value._version == version
    assert sample.state(value) != before


def test_a_tensor_whose_memory_is_another_is_not_read_at_the_old_place():
    value = nn.Parameter(torch.rand(100))
    sample = Sample(value)
    before = sample.state(value)
    value.data = torch.rand(2)
    assert sample.state(value)[:2] == before[:2]  # torch counts nothing
    assert sample.state(value)[-1] == b""


@pytest.mark.parametrize("value", [torch.rand(0, 3), torch.rand(3, device="meta"), torch.rand(3, dtype=torch.complex64)])
def test_others_are_known_by_what_torch_counts(value):
    assert Sample(value).state(value)[:-1] == state_of(value)[:-1]


def test_tensors_made_in_inference_mode_have_no_version():
    with torch.inference_mode():
        value = torch.rand(3)
    before = Sample(value).state(value)
    assert before[1] == 0
    assert len(before[-1]) == 12
