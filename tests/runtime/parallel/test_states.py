"""State dicts as files hold them: plain tensors under the names that they had, saved and loaded."""

from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor

from headrace import parallel
from headrace.errors import InputError


def trained(alone):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(module.parameters())
    parallel.to_global(module, parallel.world("cpu"), optimizer=optimizer)
    module(parallel.to_global(torch.randn(6, 3), parallel.world("cpu"), parallel.sbp.split(0))).sum().backward()
    optimizer.step()
    return module, optimizer


def test_what_is_saved_is_what_a_plain_module_has(alone, tmp_path):
    module, optimizer = trained(alone)
    state = parallel.whole(module.state_dict(prefix="module."))
    plain = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    wrapped = nn.Module()
    wrapped.module = plain
    assert list(state) == list(wrapped.state_dict())
    assert type(state) is OrderedDict
    assert state._metadata.keys() >= {"module.0", "module.1"}
    assert not any(isinstance(value, DTensor) for value in state.values())
    torch.save({"net": state, "optimizer": parallel.whole(optimizer.state_dict())}, tmp_path / "c.pth")
    loaded = torch.load(tmp_path / "c.pth", weights_only=True)
    wrapped.load_state_dict(loaded["net"])
    own = torch.optim.Adam(plain.parameters())
    own.load_state_dict(loaded["optimizer"])
    assert torch.equal(
        own.state[plain[0].weight]["exp_avg"], parallel.whole(optimizer.state[next(module.parameters())]["exp_avg"])
    )


def test_what_a_plain_module_saved_is_loaded(alone):
    module, optimizer = trained(alone)
    other, steps = trained(alone)
    with torch.no_grad():
        for value in other.parameters():
            value.add_(1.0)
    state, steps_state = parallel.whole(other.state_dict(prefix="module.")), parallel.whole(steps.state_dict())
    parallel.load_state(module, state, prefix="module.")
    assert all(
        torch.equal(parallel.whole(a), parallel.whole(b)) for a, b in zip(module.parameters(), other.parameters(), strict=True)
    )
    parallel.load_state(optimizer, steps_state)
    assert all(isinstance(value["exp_avg"], DTensor) for value in optimizer.state.values())
    optimizer.step()


def test_a_weight_of_two_modules_is_loaded(alone):
    def tied():
        module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        module[1].weight = module[0].weight
        return module

    plain, module = tied(), parallel.to_global(tied(), parallel.world("cpu"))
    parallel.load_state(module, plain.state_dict())
    assert torch.equal(parallel.whole(module[1].weight), plain[1].weight)


def test_names_and_shapes_that_do_not_fit_are_torchs_own_errors(alone):
    module, _ = trained(alone)
    state = parallel.whole(module.state_dict())
    with pytest.raises(RuntimeError, match=r"Missing key.*0\.weight"):
        parallel.load_state(module, state, prefix="module.")
    with pytest.raises((RuntimeError, ValueError), match="size|shape"):
        parallel.load_state(module, {**state, "0.bias": torch.ones(9)})


def test_an_optimizer_that_has_stepped_is_rejected(alone):
    module = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    with pytest.raises(InputError, match="stepped before"):
        parallel.to_global(module, parallel.world("cpu"), optimizer=optimizer)
