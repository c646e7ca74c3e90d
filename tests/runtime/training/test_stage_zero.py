"""What one rank keeps of an update that is split; on several ranks: tests/runtime/parallel/test_stage_parameters.py."""

import pytest
import torch
from torch.distributed.tensor import DTensor

from headrace import parallel
from headrace.errors import InputError
from headrace.runtime.parallel.stage_parameters import parts
from tests.runtime.training.staged_cases import Step, adam, batch, net, sgd, train


def graph_of(zero, mesh=(1, 1), **options):
    model = net("odd")
    return Step(model, options.pop("optimizer", sgd)(model), parallel.world("cpu", mesh), zero=zero, **options)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_one_rank_trains_as_without(alone, zero):
    expected, one = train("odd", 3, clip=0.05, optimizer=adam)
    given, graph = train("odd", 3, parallel.world("cpu", (1, 1)), clip=0.05, optimizer=adam, zero=zero)
    for (loss, _), (own, _) in zip(expected, given, strict=True):
        assert torch.allclose(loss, own, rtol=1e-12, atol=0)
    expected, given = (each.state_dict()["modules"]["model"] for each in (one, graph))
    for name, value in given.items():
        assert torch.allclose(expected[name], value, rtol=1e-10, atol=1e-12)
        assert not isinstance(value, DTensor)
    assert bool(parts(graph.model)) == (zero == 3)
    assert str(graph.steps[0]).endswith(f"microbatches, ZeRO {zero})")


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_gradients_between_updates_and_the_state(alone, zero):
    """They stand in `.grad` with 1; what is there at 2, as after a load, is taken too. A state dict has whole tensors."""
    graph, other = graph_of(zero, accumulate=3, optimizer=adam), graph_of(0, accumulate=3, optimizer=adam)
    for each in (graph, other):
        each(*batch("odd", 0))
    stand = {name for name, value in graph.model.named_parameters() if value.grad is not None}
    assert bool(stand) == (zero == 1)
    states = [each.state_dict()["training"] for each in (graph, other)]
    assert not any(isinstance(value, DTensor) for value in states[0]["gradients"].values())
    assert states[0]["gradients"].keys() == states[1]["gradients"].keys()
    graph.load_state_dict(graph.state_dict())
    for each in (graph, other) if zero < 3 else ():
        each.model.last.weight.grad += 1  # what is the user's own counts too
    for at in (1, 2):
        for each in (graph, other):
            each(*batch("odd", at))
    expected, given = (each.state_dict()["modules"]["model"] for each in (other, graph))
    assert all(torch.allclose(expected[name], value, rtol=1e-10, atol=1e-12) for name, value in given.items())
    assert all(value.grad is None for value in graph.model.parameters())
    kept = graph._trainer.optimizer.state[graph.model.last.weight]
    assert isinstance(kept["exp_avg"], DTensor)
    assert not isinstance(kept["step"], DTensor)
    slots = graph.state_dict()["training"]["optimizer"]["state"]
    assert not any(isinstance(value, DTensor) for slot in slots.values() for value in slot.values())


def test_an_optimizer_is_as_it_was_after_an_update(alone):
    graph = graph_of(1)
    before = [group["params"] for group in graph._trainer.optimizer.param_groups]
    graph(*batch("odd", 0))
    after = [group["params"] for group in graph._trainer.optimizer.param_groups]
    assert all(one is two for one, two in zip(before, after, strict=True))
    assert set(graph._trainer.optimizer.state) <= set(graph.model.parameters())


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_a_parameter_that_is_taken_out_of_the_optimizer_stays_as_it_is(alone, zero):
    graph, other = graph_of(zero, optimizer=adam), graph_of(0, optimizer=adam)
    for each in (graph, other):
        each(*batch("odd", 0))
        optimizer = each._trainer.optimizer
        optimizer.state.pop(optimizer.param_groups[-1]["params"].pop())
        for at in (1, 2):
            each(*batch("odd", at))
    expected, given = (each.state_dict()["modules"]["model"] for each in (other, graph))
    assert all(torch.allclose(expected[name], value, rtol=1e-10, atol=1e-12) for name, value in given.items())


def test_what_cannot_be_is_rejected(alone):
    for zero in (4, -1, True, "1"):
        with pytest.raises(InputError, match="0 .none. to 3"):
            graph_of(zero)
    with pytest.raises(InputError, match=r"the mesh \(data\) has none; give a mesh with one more axis"):
        graph_of(1, mesh=(1,))
    with pytest.raises(InputError, match="with update=False the update is yours"):
        graph_of(1, update=False)(*batch("odd", 0))
