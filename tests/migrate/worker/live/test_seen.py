from collections import UserDict
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from headrace.migrate.worker.live.seen import Call, tensors_in, value_at


@dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...] = ()


def test_every_tensor_is_found_and_lies_where_it_is_said_to() -> None:
    one, two, three = torch.rand(2), torch.rand(3), torch.rand(4)
    held = [{"a": one, "text": "no"}, Output(two, (three,)), 7, None, UserDict({"again": one})]
    found = dict(tensors_in(held))
    assert list(found) == [(0, "a"), (1, ".logits"), (1, ".hidden", 0), (4, "again")]
    assert all(value_at(held, place) is value for place, value in found.items())


def test_what_lies_too_deep_is_left() -> None:
    deep = [[[[[torch.rand(2)]]]]]
    assert list(tensors_in(deep)) == []
    assert list(tensors_in(SimpleNamespace(logits=torch.rand(2)))) == []


@pytest.mark.parametrize(("training", "grad", "evaluating"), [(True, True, False), (True, False, True), (False, True, True)])
def test_a_call_evaluates_where_nothing_can_be_learned_from_it(training: bool, grad: bool, evaluating: bool) -> None:
    call = Call(torch.rand(1, 3, 4, 4), (0, 0), (), {}, "run.py:1", training, grad, (3, 4, 4))
    assert call.evaluating is evaluating
