"""Parameters are gathered where they are first used and gone after their last use; gradients are summed by the bucket."""

import weakref

import pytest
import torch
from torch.fx import symbolic_trace

from headrace.runtime.parallel import buckets
from headrace.runtime.training.stage_exchanges import ExchangingPart
from headrace.runtime.training.stage_split import Part

KILO = 1 << 10
LIKE = torch.empty(KILO // 4, device="meta")


def backward(rows, first, second, third, wanted):
    """Something like a way back: each parameter is used for one gradient, the last gradient is an output as well."""
    third_gradient = rows @ third
    second_gradient = third_gradient @ second
    first_gradient = second_gradient @ first + wanted
    return third_gradient, second_gradient, first_gradient


@pytest.fixture
def part():
    program = symbolic_trace(backward)
    nodes = list(program.graph.nodes)
    outputs = tuple(node.name for node in nodes[-1].args[0])
    return Part(program, ("rows", "first", "second", "third", "wanted"), outputs)


@pytest.mark.parametrize("most", [KILO, 2 * KILO, 1 << 20])
def test_no_more_than_a_bucket_is_whole_at_a_time(part, most, monkeypatch):
    monkeypatch.setattr(buckets, "BUCKET_BYTES", most)
    like = dict.fromkeys(("first", "second", "third"), LIKE)
    gradients = {name: (output, LIKE) for name, output in zip(("third", "second", "first"), part.outputs, strict=True)}
    rewritten = ExchangingPart(part, like, gradients, wanted={part.outputs[-1]})
    assert rewritten.inputs == ("rows", "wanted")
    assert rewritten.outputs == part.outputs[-1:]
    torch.manual_seed(0)
    values = {name: torch.randn(3, 3) for name in part.inputs}
    calls, alive = [], weakref.WeakSet()

    def gather(table):
        calls.append(("gather", *table))
        found = {name: values[name].clone() for name in table}
        alive.update(found.values())
        assert len(alive) * KILO <= most, "what was used before is gone"
        return found

    def reduce(table):
        calls.append(("reduce", *table))
        return {name: 2 * value for name, value in table.items()}

    outputs, summed = rewritten(gather, reduce, [values[name] for name in rewritten.inputs])
    wanted = dict(zip(("third", "second", "first"), backward(*(values[name] for name in part.inputs)), strict=True))
    assert torch.equal(outputs[0], wanted["first"])
    assert all(torch.equal(value, 2 * wanted[name]) for name, value in zip(rewritten.gradients, summed, strict=True))
    each = most // KILO
    names = ["third", "second", "first"]
    expected = [tuple(names[at : at + each]) for at in range(0, 3, each)] if each < 3 else [tuple(names)]
    assert [call[1:] for call in calls if call[0] == "gather"] == expected
    assert [call[1:] for call in calls if call[0] == "reduce"] == expected
    if most == KILO:
        assert [call[0] for call in calls] == ["gather", "reduce"] * 3


def test_a_gradient_that_is_only_handed_on_is_left_to_the_caller(part):
    """As that of a later stage, which the addition of a bias passes as it is: it comes in, and is no result of this part."""
    rewritten = ExchangingPart(part, {}, {"bias": ("wanted", LIKE), "third": (part.outputs[0], LIKE)}, wanted=())
    assert rewritten.gradients == ("third",)
    assert rewritten.inputs == part.inputs


@pytest.mark.parametrize("most", [KILO, 2 * KILO])  # in a bucket each, and together
def test_one_value_may_be_the_gradient_of_two_parameters(part, most, monkeypatch):
    monkeypatch.setattr(buckets, "BUCKET_BYTES", most)
    both = dict.fromkeys(("one", "other"), (part.outputs[1], LIKE))
    rewritten = ExchangingPart(part, {}, both, wanted=set(part.outputs))
    values = [torch.randn(3, 3) for _ in part.inputs]
    outputs, summed = rewritten(dict, dict, values)
    assert len(outputs) == 3
    assert torch.equal(summed[0], outputs[1])
    assert torch.equal(summed[1], outputs[1])
