import collections
import dataclasses
import json

import pytest
import torch

from headrace.runtime.base.structure import Structure, flatten

Pair = collections.namedtuple("Pair", "logits features")


@dataclasses.dataclass
class Output:
    logits: object
    aux: object = None


class ModelOutput(collections.OrderedDict):
    """A mapping with a type of its own, as libraries define them."""


class Named(dict):
    """A dict that is made of names alone."""

    def __init__(self, **values):
        super().__init__(**values)


class Closed(dict):
    """One that nobody else can make."""

    def __init__(self, size, *, seed):
        super().__init__(logits=float(size))


class Several(list):
    pass


def is_leaf(value):
    return isinstance(value, float)


def taken_apart(value):
    strays = []
    leaves, structure = flatten(value, is_leaf, lambda where, item: strays.append((where, item)))
    return leaves, structure, strays


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (1.0, ["output"]),
        ((1.0,), ["output_0"]),
        ([1.0, 2.0], ["output_0", "output_1"]),
        ({"logits": 1.0, "aux": None}, ["logits"]),
        ({"a": (1.0, 2.0), "b": {"c": 3.0}}, ["a_0", "a_1", "b_c"]),
        (Pair(1.0, 2.0), ["logits", "features"]),
        (Output(1.0), ["logits"]),
        (ModelOutput(logits=1.0, hidden=(2.0,)), ["logits", "hidden_0"]),
        ({"a b": 1.0, "a-b": 2.0}, ["a_b_0", "a_b_1"]),
        ({0: 1.0, 1: 2.0}, ["0", "1"]),
        ({("head", 0): 1.0}, ["__head___0_"]),
        (collections.OrderedDict({3: 1.0}), ["3"]),
        (collections.defaultdict(list, logits=1.0), ["logits"]),
        (Named(logits=1.0, features=2.0), ["logits", "features"]),
        (Several([1.0, 2.0]), ["output_0", "output_1"]),
        (torch.return_types.topk((1.0, 2.0)), ["output_0", "output_1"]),
    ],
)
def test_rebuild_gives_back_the_same_value_and_type(value, names):
    leaves, structure, strays = taken_apart(value)
    assert not strays
    assert structure.names() == names
    rebuilt = structure.rebuild(leaves)
    assert rebuilt == value
    assert type(rebuilt) is type(value)


def test_json_keeps_plain_containers_and_opens_the_users_own():
    _, structure, _ = taken_apart({"a": (1.0, [2.0]), "b": Output(3.0)})
    read = Structure.from_json(json.loads(json.dumps(structure.to_json())))
    assert read.rebuild([1, 2, 3]) == {"a": (1, [2]), "b": {"logits": 3, "aux": None}}


def test_what_is_no_leaf_is_reported_with_its_place():
    _, _, strays = taken_apart({"n": (1.0, "text")})
    assert strays == [("output['n']['1']", "text")]


def test_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="kind"):
        Structure.from_json({"kind": "set", "children": []})


def test_a_mapping_that_cannot_be_made_again_is_a_stray():
    leaves, _, strays = taken_apart({"all": Closed(1, seed=2)})
    assert leaves == []
    assert strays == [("output['all']", {"logits": 1.0})]
