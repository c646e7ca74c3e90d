import collections
import random

import numpy as np
import pytest
import torch
from torch import nn

from headrace.runtime.capture.state_guard import state_guard


class Restless(nn.Module):
    """Changes whatever a module can change of itself."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.log, self.cache, self.seen = [1, [2]], {"a": torch.ones(2)}, {3}
        self.queue, self.pair = collections.deque([1], maxlen=4), ([0], torch.zeros(2))
        self.count, self.steps = 0, torch.zeros(())

    def forward(self, x):
        self.count += 1
        self.steps += 1
        self.log.append(x)
        self.log[1].append(3)
        self.cache.clear()
        self.seen.add(4)
        self.queue.append(2)
        self.pair[0].append(1)
        self.pair[1].add_(1)
        self.linear.weight.data.mul_(0)
        self.norm.running_mean = torch.ones(4)
        self.norm.running_var.add_(1)
        self.linear.bias.data = torch.ones(7)
        self.extra = nn.ReLU()
        self.linear.register_forward_hook(lambda module, inputs, output: output * 0)
        self.train()
        random.random()
        np.random.rand(3)
        torch.rand(3)
        raise RuntimeError("and fails")


def test_nothing_is_left_of_it():
    module = Restless()
    module.norm.eval()
    rows, layer = torch.randn(2, 4), module.linear(torch.ones(1, 4))
    weights = {name: value.clone() for name, value in module.state_dict().items()}
    places = {name: value.data_ptr() for name, value in module.state_dict().items() if name != "linear.bias"}
    held = [module.log, module.cache, module.seen, module.queue, module.norm.running_mean]
    drawn = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    with state_guard(module):
        assert not any(item.training for item in module.modules())
        with pytest.raises(RuntimeError, match="and fails"):
            module(rows)
    assert (module.training, module.norm.training, module.count) == (True, False, 0)
    assert (module.log, module.seen, list(module.queue), module.pair[0]) == ([1, [2]], {3}, [1], [0])
    assert list(module.cache) == ["a"]
    assert [id(one) for one in held] == [
        id(one) for one in (module.log, module.cache, module.seen, module.queue, module.norm.running_mean)
    ]
    assert module.steps.item() == 0
    assert module.pair[1].tolist() == [0, 0]
    assert module.queue.maxlen == 4
    assert not hasattr(module, "extra")
    assert all(torch.equal(value, weights[name]) for name, value in module.state_dict().items())
    assert all(value.data_ptr() == places[name] for name, value in module.state_dict().items() if name in places)
    assert torch.equal(module.linear(torch.ones(1, 4)), layer), "the hook is gone"
    assert torch.equal(torch.get_rng_state(), drawn[0])
    assert random.getstate() == drawn[1]
    assert np.random.get_state()[1].tolist() == drawn[2]


def test_an_error_passes_through():
    module = nn.Linear(4, 4)
    with pytest.raises(ValueError, match="boom"), state_guard(module):
        raise ValueError("boom")
    assert module.training


def test_what_was_not_changed_keeps_its_versions():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    versions = [value._version for value in module.state_dict(keep_vars=True).values()]
    with state_guard(module), torch.no_grad():
        module(torch.randn(3, 4))
    assert [value._version for value in module.state_dict(keep_vars=True).values()] == versions
