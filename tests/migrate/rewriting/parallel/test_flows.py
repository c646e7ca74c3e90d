"""Names that stand for one object: resolved by scope, never by their spelling."""

import ast

from headrace.migrate.rewriting.parallel.flows import bindings, flows, forward, is_spawn, itself, place_of, together

TEXT = """\
import torch
import torch.multiprocessing as mp
from torch import nn


class Trainer:
    def __init__(self, net, *, other=None):
        self.net = net.to(0)
        self.plain = other

    def fit(self):
        return step(self.net, 1)


def step(m, x):
    inner = m.module
    return inner(x)


def worker(rank, model, n):
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    Trainer(model, other=torch.nn.Linear(1, 1)).fit()


def unrelated(model):
    return model


model = nn.Linear(1, 1)
mp.spawn(worker, args=(model, 2), nprocs=2)
"""


def names(places):
    return {(getattr(place.scope, "name", None), place.name) for place in places}


def test_an_object_is_followed_through_calls_attributes_and_spawns(context_of):
    module = context_of(TEXT).module
    (made,) = [node for node in module.tree.body if isinstance(node, ast.Assign)]
    start = place_of(module, made.targets[0])
    known = flows(module)
    expected = {(None, "model"), ("worker", "model"), ("__init__", "net"), ("Trainer", "self.net"), ("step", "m")}
    assert names(forward(start, known)) == expected
    assert names(together(next(place for place in forward(start, known) if place.name == "m"), known)) == expected
    (unwraps,) = [flow for flow in known if flow.unwraps]
    assert (unwraps.source.name, unwraps.target.name) == ("m", "inner")
    assert [node.lineno for node in bindings(module, start)] == [made.lineno]
    assert [is_spawn(module, call) for call in module.calls].count(True) == 1


def test_what_only_moves_a_module_gives_it_back(context_of):
    module = context_of("import torch\n\na = b.to(0).cuda().eval()\nc = b.half_of()\n").module
    first, second = (node.value for node in module.of_kind(ast.Assign))
    assert ast.unparse(itself(module, first)) == "b"
    assert itself(module, second) is second
