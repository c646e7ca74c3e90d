import collections
import enum
import functools
import types
from argparse import Namespace

import numpy as np
import pytest
import torch
from torch import nn

from headrace.runtime.capture.code_reads import Reads, names_in, plain

SCALE = 2.0
SEEN = []


def helper(x):
    return x * SCALE


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.shift, self.calls, self.cache, self.last, self.unread = nn.Linear(2, 2), 1.0, 0, {}, None, 3
        self.squash, self._temperature = torch.tanh, 1.0

    @property
    def temperature(self):
        return self._temperature

    def forward(self, x):
        self.calls += 1
        self.last = x
        self.cache[len(x)] = self.last
        SEEN.append(x)
        return self.squash(helper(self.layer(x) + self.shift) / self.temperature)


def decorated(function):
    @functools.wraps(function)
    def around(self, x):
        return function(self, x)

    return around


class Decorated(Model):
    forward = decorated(Model.forward)


@pytest.mark.parametrize("kind", [Model, Decorated])
def test_what_forward_reads_is_found_where_it_lies(kind):
    model = kind()
    reads = Reads(list(model.modules()))
    own = {name for table, name in reads.places if table is vars(model)}
    assert own == {"shift", "cache", "squash", "_temperature"}  # what it sets is its own
    assert {"cache", "SEEN"} <= reads.filled
    beside = {name for table, name in reads.places if table is globals()}
    assert beside >= {"SCALE", "SEEN", "helper"}
    assert reads.sets is None


settings = types.ModuleType("settings")
settings.SHARE, settings.__file__ = 0.5, __file__


def test_functions_objects_and_the_modules_that_they_name_are_followed():
    rounds = 3

    class Criterion:
        def __init__(self):
            self.weight = 1.0

        def __call__(self, x):
            return x * self.weight * settings.SHARE * rounds

    reads = Reads([Criterion()])
    assert {name for _, name in reads.places} >= {"weight", "SHARE"}
    assert "rounds" in {name for name, _ in reads.cells}


def test_what_is_set_outside_of_a_function_is_told():
    rounds = 0

    def counting(x):
        nonlocal rounds
        rounds += 1
        return x

    assert Reads([counting]).sets == "rounds"


def test_what_code_sets_before_it_reads_it_is_made_there():
    names = names_in(Model.forward.__code__)
    assert names.made == {"last"}
    assert names.written == {"calls", "last"}


class Kind(enum.Enum):
    ONE = 1


class Options:
    def __init__(self, scale):
        self.scale, self.unread = scale, object()


ARRAY = np.arange(3)
PAIRS = [
    (1, 2),
    (1, True),
    (0.0, 0),
    ("a", b"a"),
    (None, 0),
    ([1, [2]], [1, [3]]),
    ({"a": {"b": 1}}, {"a": {"b": 2}}),
    ({1, 2}, {1, 3}),
    (slice(0, 2), slice(0, 3)),
    (ARRAY, ARRAY + 1),
    (ARRAY, ARRAY.reshape(3, 1)),
    (torch.float32, torch.float64),
    (Kind.ONE, "Kind.ONE"),
    (torch.relu, torch.tanh),
    (helper, decorated),
    (functools.partial(helper, 1), functools.partial(helper, 2)),
    (collections.deque([1]), collections.deque([2])),
    (Namespace(scale=1), Namespace(scale=2)),
    (types.SimpleNamespace(scale=1), types.SimpleNamespace(scale=2)),
    (Options(1), Options(2)),
    (Options({"a": [1]}), Options({"a": [2]})),
    (torch.ones(2), torch.zeros(2)),
    (nn.ReLU(), nn.ReLU()),
]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda value: repr(value)[:20])
def test_values_are_told_apart(one, other):
    def told(value):
        return plain(value, lambda tensor: tuple(tensor.tolist()), frozenset(("scale",)))

    assert told(one) == told(one)
    assert told(one) != told(other)
    hash(told(one))


def test_what_nobody_reads_of_an_object_and_what_holds_itself_tell_nothing():
    endless = []
    endless.append(endless)
    told = [plain(value, id, frozenset(("scale",))) for value in (Options(1), Options(1))]
    assert told[0] == told[1]
    plain(endless, id)
