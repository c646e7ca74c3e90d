import numpy as np
import pytest
import torch
from torch import nn

from headrace.runtime.graph.watch import Watch, held_in, modules_in


class Owner:
    """Stands for a graph: its attributes are what is watched."""

    def __init__(self):
        self.model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Sequential(nn.Linear(4, 2, bias=False)))
        self.heads = [nn.Linear(2, 2), {"last": nn.Linear(2, 2)}]
        self.scale = torch.ones(2)
        self.names = ["cat", "dog"]


@pytest.fixture
def owner():
    return Owner()


def test_nothing_changed(owner):
    watch = Watch(owner)
    owner.names.append("bird")
    owner.other = 5
    assert not watch.changed()
    assert watch.why() == ""


def write(owner):
    with torch.no_grad():
        owner.model[0].weight.mul_(2)


def write_many(owner):
    with torch.no_grad():
        for value in owner.model.parameters():
            value.add_(1)


def replace_parameter(owner):
    owner.model[0].bias = nn.Parameter(torch.zeros(4))


def replace_data(owner):
    owner.heads[0].weight.data = torch.zeros(2, 2)


def replace_module(owner):
    owner.model[2][0] = nn.Linear(4, 2)


def replace_attribute(owner):
    owner.model = nn.Identity()


def replace_in_list(owner):
    owner.heads[1]["last"] = nn.Linear(2, 2)


def add_parameter(owner):
    owner.model[2][0].bias = nn.Parameter(torch.zeros(2))


def remove_buffer(owner):
    owner.model[1].running_mean = None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (write, "parameter model.0.weight was written"),
        (write_many, "parameters model.0.weight, model.0.bias, model.1.weight and 2 more were written"),
        (replace_parameter, "parameter model.0.bias was replaced"),
        (replace_data, "parameter heads[0].weight was written"),
        (replace_module, "module model.2.0 was replaced"),
        (replace_attribute, "module model was replaced"),
        (replace_in_list, "module heads[1]['last'] was replaced"),
        (add_parameter, "parameter model.2.0.bias was added"),
        (remove_buffer, "buffer model.1.running_mean was removed"),
        (lambda owner: owner.model[1].num_batches_tracked.add_(1), "buffer model.1.num_batches_tracked was written"),
        (lambda owner: owner.model.append(nn.ReLU()), "module model.3 was added"),
        (lambda owner: owner.scale.add_(1), "tensor scale was written"),
        (lambda owner: setattr(owner, "scale", torch.zeros(2)), "tensor scale was replaced"),
        (lambda owner: delattr(owner, "scale"), "tensor scale was removed"),
    ],
)
def test_a_change_is_seen_and_named(owner, change, why):
    watch = Watch(owner)
    change(owner)
    assert watch.changed()
    assert watch.why() == why
    again = Watch(owner)
    assert not again.changed()


def test_several_changes_are_all_named(owner):
    watch = Watch(owner)
    write(owner)
    replace_module(owner)
    assert set(watch.why().split("; ")) == {"module model.2.0 was replaced", "parameter model.0.weight was written"}


def test_a_module_that_takes_a_freed_ones_place_in_memory_is_another(owner):
    watch = Watch(owner)
    for _ in range(50):
        owner.heads[0] = None
        owner.heads[0] = nn.Linear(2, 2)
        assert watch.changed()


def test_modules_are_found_inside_containers_by_the_expression_that_reaches_them(owner):
    assert [name for name, _ in modules_in(vars(owner))] == ["model", "heads[0]", "heads[1]['last']"]
    assert [name for name, _ in held_in(vars(owner))] == ["model", "heads[0]", "heads[1]['last']", "scale"]


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.scale, self.kinds, self.unread = nn.Linear(2, 2), 2.0, ["a", "b"], 5

    def forward(self, x):
        if self.training:
            return x
        return self.linear(x) * self.factor()

    def factor(self):
        return self.scale * len(self.kinds)


class Building:
    def __init__(self):
        self.model, self.shift, self.calls, self.unread = Scaled().eval(), 1, 0, 1

    def build(self, x):
        self.calls += 1
        return [self.model(x) + self.shift for _ in range(2)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda owner: setattr(owner, "shift", 1.0), "attribute shift was changed"),
        (lambda owner: setattr(owner.model, "scale", 3.0), "attribute model.scale was changed"),
        (lambda owner: owner.model.kinds.append("c"), "attribute model.kinds was changed"),
        (lambda owner: delattr(owner, "shift"), "attribute shift was removed"),
    ],
)
def test_numbers_that_the_code_reads_are_constants_of_the_graph(change, why):
    owner = Building()
    watch = Watch(owner)
    owner.unread = owner.model.unread = 7
    owner.calls += 1  # what the code itself counts
    owner.model.train()
    assert not watch.changed()
    change(owner)
    assert watch.changed()
    assert watch.why() == why


SHARE = 2.0
SETTINGS = {"temperature": 1.0}


class Options:
    def __init__(self):
        self.temperature, self.unread = 1.0, 0


def shared(x):
    return x * SHARE / SETTINGS["temperature"]


class Reading(nn.Module):
    """Reads what a graph has as constants, from wherever people keep it."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.activation = nn.Linear(2, 2), nn.BatchNorm1d(2), nn.LeakyReLU(0.1)
        self.mean, self.prototypes, self.bias = torch.zeros(2), {"cats": torch.ones(2)}, np.ones(2, np.float32)
        self.options, self.table, self.squash, self.cache = Options(), {"head": {"scale": 1.0}}, torch.tanh, {}
        self._temperature, self._kept = 1.0, slice(0, 2)

    @property
    def temperature(self):
        return self._temperature

    def forward(self, x):
        self.cache["last"] = len(x)
        y = self.activation(self.norm(self.linear(x - self.mean))) + self.prototypes["cats"] + torch.from_numpy(self.bias)
        y = self.squash(shared(y) / self.temperature / self.options.temperature * self.table["head"]["scale"])
        return y[:, self._kept]


def other_forward(owner):
    owner.model.forward = lambda x: x


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda owner: owner.model.mean.add_(1), "attribute model.mean was changed"),
        (lambda owner: setattr(owner.model, "mean", torch.ones(2)), "attribute model.mean was changed"),
        (lambda owner: owner.model.prototypes.update(cats=torch.zeros(2)), "attribute model.prototypes was changed"),
        (lambda owner: owner.model.bias.fill(2), "attribute model.bias was changed"),
        (lambda owner: setattr(owner.model.options, "temperature", 2.0), "attribute model.options was changed"),
        (lambda owner: owner.model.table["head"].update(scale=2.0), "attribute model.table was changed"),
        (lambda owner: setattr(owner.model, "squash", torch.sigmoid), "attribute model.squash was changed"),
        (lambda owner: setattr(owner.model, "_temperature", 2.0), "attribute model._temperature was changed"),
        (lambda owner: setattr(owner.model, "_kept", slice(0, 1)), "attribute model._kept was changed"),
        (lambda owner: setattr(owner.model.norm, "eps", 1.0), "attribute model.norm.eps was changed"),
        (lambda owner: setattr(owner.model.activation, "negative_slope", 1.0), "attribute model.activation.negative_slope"),
        (lambda owner: SETTINGS.update(temperature=SETTINGS["temperature"] + 1), f"global {__name__}.SETTINGS was changed"),
        (lambda owner: globals().update(SHARE=3.0), f"global {__name__}.SHARE was changed"),
        (other_forward, "method model.forward was replaced"),
        (lambda owner: owner.model.linear.register_forward_hook(print), "forward hook model.linear was changed"),
        (lambda owner: owner.model.linear.register_forward_pre_hook(print), "forward pre-hook model.linear was changed"),
        (lambda owner: owner.model.linear.weight.data.mul_(2), "parameter model.linear.weight was written"),
        (lambda owner: owner.model.linear.weight.detach().numpy().fill(3), "parameter model.linear.weight was written"),
        (lambda owner: owner.model.norm.running_mean.data.add_(1), "buffer model.norm.running_mean was written"),
    ],
)
def test_all_that_the_code_reads_is_a_constant_of_the_graph(change, why):
    owner = Owner()
    owner.model = Reading().eval()
    watch = Watch(owner)
    owner.model(torch.rand(3, 2))  # what it keeps itself is its own
    owner.model.options.unread = 5
    owner.model.mean, owner.model.options.temperature = owner.model.mean, float("1.0")  # equal ones
    assert not watch.changed()
    change(owner)
    assert watch.changed()
    assert watch.why().startswith(why)


def test_a_tensor_that_shrinks_where_it_lies_is_another(owner):
    watch = Watch(owner)
    owner.model[0].weight.data = owner.model[0].weight.data[:2]
    assert watch.changed()
