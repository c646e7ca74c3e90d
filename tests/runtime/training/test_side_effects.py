"""What a captured step would leave out is seen: those steps stay eager, say why, and nothing is done twice."""

import copy
import random
import re

import numpy as np
import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(196, 5)

    def forward(self, x):
        return self.head(self.conv(x).flatten(1))


class Step(headrace.Graph):
    def __init__(self, model, optimizer=None, **options):
        super().__init__(config=GraphConfig(backend="captured"))
        self.model = model
        self.add_optimizer(optimizer or torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), **options)

    def build(self, images, labels):
        loss = nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        return loss


def batches(count=8):
    torch.manual_seed(1)
    return [(torch.randn(8, 3, 9, 9), torch.randint(5, (8,))) for _ in range(count)]


def both(make, data, between=lambda index, model, optimizer: None):
    """Losses of eager steps and of a graph's from the same start; both models, and the graph."""
    torch.manual_seed(0)
    one = make()
    two = copy.deepcopy(one)
    optimizer = torch.optim.SGD(one.parameters(), lr=0.05, momentum=0.9)
    expected, actual = [], []
    random.seed(0)
    np.random.seed(0)
    for index, (images, labels) in enumerate(data):
        between(index, one, optimizer)
        loss = nn.functional.cross_entropy(one(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        expected.append(loss.item())
    step = Step(two)
    random.seed(0)
    np.random.seed(0)
    for index, item in enumerate(data):
        between(index, two, step._trainer.optimizer)
        actual.append(step(*item).item())
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    for (name, a), (_, b) in zip(one.state_dict().items(), two.state_dict().items(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7, msg=name)
    return one, two, step


class Counts(Net):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) / self.calls


class Remembers(Net):
    def forward(self, x):
        self.features = self.conv(x)
        return self.head(self.features.flatten(1))


class Collects(Net):
    def __init__(self):
        super().__init__()
        self.means = []

    def forward(self, x):
        self.means.append(x.mean())
        return super().forward(x)


class Meter:
    def __init__(self):
        self.total = 0.0

    def __deepcopy__(self, memo):
        return Meter()


class Metered(Net):
    def __init__(self):
        super().__init__()
        self.meter = Meter()

    def forward(self, x):
        self.meter.total = self.meter.total + x.detach().mean()
        return super().forward(x)


class Reads(Net):
    def forward(self, x):
        return super().forward(x) * float(self.head.bias.detach().abs().sum())


class Draws(Net):
    def forward(self, x):
        return super().forward(x) * (1.0 if random.random() < 0.5 else 0.1)


class DrawsFromNumPy(Net):
    def forward(self, x):
        return super().forward(x) * float(np.random.rand())


class Sums(Net):
    """Keeps a tensor that is no buffer."""

    def __init__(self):
        super().__init__()
        self.total = torch.zeros(2)

    def forward(self, x):
        self.total[:1].add_(x.mean())
        return super().forward(x)


class Replaces(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(5))

    def forward(self, x):
        scores = super().forward(x)
        self.center = 0.9 * self.center + 0.1 * scores.detach().mean(0)
        return scores - self.center


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Counts, "changes 'calls' of Counts"),
        (Remembers, "changes 'features' of Remembers"),
        (Collects, "changes 'means' of Collects"),
        (Metered, "changes 'total' of Meter"),
        (Reads, r"test_side_effects.py:\d+: PG120"),
        (Draws, "random numbers from Python or NumPy"),
        (DrawsFromNumPy, "random numbers from Python or NumPy"),
        (Sums, "writes to a tensor that is no parameter or buffer"),
        (Replaces, "replaces the buffer center"),
    ],
)
def test_steps_with_side_effects_stay_eager_and_say_why(make, why):
    one, two, step = both(make, batches())
    record = step.steps[-1]
    assert record.way == "eager"
    assert re.search(why, record.why), record.why
    assert record.why.count("not captured") == 1
    for name in ("calls", "means", "total"):
        if hasattr(one, name):
            a, b = getattr(one, name), getattr(two, name)
            assert torch.equal(torch.as_tensor(a), torch.as_tensor(b)), name
    if isinstance(two, Metered):
        assert two.meter.total == one.meter.total
    if isinstance(two, Remembers):
        assert torch.equal(one.features, two.features)


def test_inputs_and_parameters_may_change_their_memory_format():
    data = batches()
    data[4:] = [(images.contiguous(memory_format=torch.channels_last), labels) for images, labels in data[4:]]
    _, _, step = both(Net, data)
    assert [record.way for record in step.steps] == ["eager", "captured", "captured"]

    def between(index, model, optimizer):
        if index == 4:
            model.to(memory_format=torch.channels_last)

    _, _, step = both(Net, batches(), between)
    assert step.steps[-1].way == "captured"


def test_an_optimizer_whose_state_was_cleared_makes_it_anew():
    def between(index, model, optimizer):
        if index in (3, 6):
            optimizer.state.clear()

    both(Net, batches(12), between)


def test_steps_within_autocast_do_not_cast_what_eager_does_not():
    data = batches()
    torch.manual_seed(0)
    one = Net()
    two = copy.deepcopy(one)
    optimizer = torch.optim.SGD(one.parameters(), lr=0.05, momentum=0.9)
    step = Step(two)
    for images, labels in data:
        with torch.autocast("cpu", torch.bfloat16):
            expected = nn.functional.cross_entropy(one(images), labels)
            expected.backward()
            actual = step(images, labels)
        optimizer.step()
        optimizer.zero_grad()
        torch.testing.assert_close(actual, expected.detach(), rtol=2e-2, atol=1e-3)
    assert step.steps[-1].way == "captured", step.steps[-1].why
    step(*data[0])
    assert len(step.steps) == 3  # without autocast it is a step of another kind


def test_state_between_two_updates_is_whole():
    data = batches(10)
    torch.manual_seed(0)
    one = Net()
    two = copy.deepcopy(one)
    step = Step(one, accumulate=4)
    expected = [step(*item).item() for item in data]
    first = Step(two, accumulate=4)
    actual = [first(*item).item() for item in data[:6]]
    state = copy.deepcopy(first.state_dict())
    second = Step(Net(), accumulate=4)
    second.load_state_dict(state)
    actual += [second(*item).item() for item in data[6:]]
    assert actual == expected
    assert torch.equal(second.model.head.weight, one.head.weight)
    with pytest.raises(headrace.errors.InputError, match="lacks gradients"):
        second.load_state_dict({**state, "training": {k: v for k, v in state["training"].items() if k != "gradients"}})
    state["training"]["gradients"]["0.other"] = torch.zeros(3)
    with pytest.raises(headrace.errors.InputError, match=r"0\.other"):
        second.load_state_dict(state)


def test_optimizers_that_are_none_for_one_step_are_refused():
    model = Net()
    with pytest.raises(ValueError, match="several times per step"):
        Step(model, torch.optim.LBFGS(model.parameters()))
    with pytest.raises(ValueError, match=r"torch\.optim\.Optimizer"):
        Step(model, "sgd")
