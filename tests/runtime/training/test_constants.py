"""Numbers that forward and the loss read beside tensors: a step is captured for them as they are, and never used for others."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import headrace
from headrace.runtime.training.constants import Constants

share = 1.0
settings = {"share": 1.0}
rounds = 0
seen = []


class Meter:
    def __init__(self):
        self.rounds = 0


meter = Meter()
scale = nn.Parameter(torch.ones(()))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.drop, self.head = nn.Conv2d(2, 4, 3), nn.Dropout(0.1), nn.Linear(4, 3)
        self.factor, self.weights, self.bank = 1.0, torch.ones(3), torch.zeros(3)

    def forward(self, x):
        return self.head(self.drop(self.conv(x).mean((2, 3)))) * self.factor * self.weights


class Bank(Net):
    def forward(self, x):
        self.bank.mul_(0.9).add_(1.0)
        return super().forward(x) + self.bank


class Weighted:
    def __init__(self):
        self.weight = [1.0]

    def __call__(self, outputs, targets):
        return self.weight[0] * plain(outputs, targets)


def plain(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)


def of_global(outputs, targets):
    return share * plain(outputs, targets)


def of_a_function_around(outputs, targets):
    return of_global(outputs, targets)


def of_a_table(outputs, targets):
    return settings["share"] * plain(outputs, targets)


def sets_a_global(outputs, targets):
    global rounds  # noqa: PLW0603 - it is what the test is about
    rounds += 1
    return plain(outputs, targets) / rounds


def appends(outputs, targets):
    seen.append(outputs.detach())
    return plain(outputs, targets) * len(seen)


def counts(outputs, targets):
    meter.rounds += 1
    return plain(outputs, targets) / meter.rounds


def learned(outputs, targets):
    return plain(outputs, targets) * scale


weighted = Weighted()


def set_global(model, value):
    globals()["share"] = value


CHANGES = {
    "an attribute": (plain, lambda model, value: setattr(model, "factor", value)),
    "a number of NumPy": (plain, lambda model, value: setattr(model, "factor", np.float64(value))),
    "a dropout's share": (plain, lambda model, value: setattr(model.drop, "p", value / 10)),
    "a tensor": (plain, lambda model, value: setattr(model, "weights", torch.full((3,), value))),
    "a global": (of_global, set_global),
    "a global of a function that is called": (of_a_function_around, set_global),
    "a table": (of_a_table, lambda model, value: settings.update(share=value)),
    "a list of an object": (weighted, lambda model, value: weighted.weight.__setitem__(0, value)),
}
EFFECTS = {
    "sets a global": (Net, sets_a_global, "'rounds' is set"),
    "appends to a list": (Net, appends, "changes 'seen'"),
    "counts in an object": (Net, counts, "changes 'rounds' of Meter"),
    "reads a parameter": (Net, learned, "'scale', which wants a gradient"),
    "writes into a tensor": (Bank, plain, "writes to a tensor that is no parameter or buffer"),
}


def trained(make, criterion, change, *, captured, update=True):
    """Losses and weights of ten steps, and the step."""
    globals()["rounds"] = meter.rounds = 0
    scale.grad = None
    seen.clear()
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    config = headrace.GraphConfig(backend="captured")
    step = headrace.training_step(model, criterion, optimizer, update=update, config=config) if captured else None
    losses = []
    for index in range(10):
        change(model, 1.0 + index // 4)
        x, y = torch.randn(4, 2, 6, 6), torch.randint(3, (4,))
        if step is not None:
            losses.append(step(x, y)[0].item())
        else:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            losses.append(loss.item())
        if step is None or not update:
            optimizer.step()
            optimizer.zero_grad()
    learned = None if scale.grad is None else scale.grad.clone()
    return losses, copy.deepcopy(model.state_dict()), learned, step


def check(make, criterion, change, *, update):
    expected, weights, gradient, _ = trained(make, criterion, change, captured=False)
    actual, own, own_gradient, step = trained(make, criterion, change, captured=True, update=update)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    for name, value in weights.items():
        torch.testing.assert_close(own[name], value)
    torch.testing.assert_close(own_gradient, gradient)
    return step


@pytest.mark.parametrize("case", CHANGES)
def test_a_step_is_captured_anew_for_another_number(case):
    step = check(Net, *CHANGES[case], update=True)
    assert step.captures == 3
    assert all("number that forward or the loss reads" in item.reason for item in step.recompiles)
    assert {record.way for record in step.steps} <= {"captured", "eager"}
    assert any(record.way == "captured" for record in step.steps)


def test_numbers_that_change_at_every_step_end_the_captures():
    values = iter(range(100))
    step = check(Net, plain, lambda model, _: setattr(model, "factor", 1.0 + next(values) % 10), update=False)
    assert step.captures <= 4
    assert "change from step to step" in step.steps[-1].why


@pytest.mark.parametrize("update", [True, False])
@pytest.mark.parametrize("case", EFFECTS)
def test_what_code_does_beside_tensors_keeps_it_eager(case, update):
    make, criterion, why = EFFECTS[case]
    step = check(make, criterion, lambda model, value: None, update=update)
    assert all(record.way == "eager" for record in step.steps)
    assert any(why in record.why for record in step.steps), [str(record) for record in step.steps]


def test_an_input_that_wants_a_gradient_gets_it():
    model = Net()
    step = headrace.training_step(
        model, plain, torch.optim.SGD(model.parameters(), lr=0.1), config=headrace.GraphConfig(backend="captured")
    )
    for _ in range(3):
        x = torch.randn(4, 2, 6, 6, requires_grad=True)
        step(x, torch.randint(3, (4,)))
        assert x.grad is not None
    assert "gradient of an input" in step.steps[-1].why


def test_what_code_reads_is_found_in_what_it_calls():
    model = Net()
    constants = Constants([model, of_a_function_around])
    set_global(model, 1.0)
    before = constants.now()
    set_global(model, 7.0)
    assert constants.now() != before
    set_global(model, 1.0)
    assert constants.now() == before
