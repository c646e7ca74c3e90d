"""Calls between a loss and the update of weights, and what they may come to."""

import ast

import pytest

from headrace.migrate.reading.scopes import Repository
from headrace.migrate.reading.source import parse_source
from headrace.migrate.slicing.gradient_calls import may_reach, touches_gradients

HELPERS = """
import torch

def mask(weights):
    for item in weights:
        item.grad.mul_(0)

def deep():
    return log_all()

def log_all():
    return torch.zeros(1)
"""
SCRIPT = """
import time
import helpers
from helpers import deep, mask
from other_library import clean

def update_bn():
    for part in model.modules():
        part.weight.grad.add_(1)

def report(step):
    print(step)

def norm():
    return sum(item.norm() for item in model.parameters())

class Trainer:
    def shrink(self):
        self.apply_all()

    def apply_all(self):
        for item in self.net.parameters():
            item.grad.mul_(2)

    def tell(self):
        print("told")

    def step(self, loss, outputs):
        LINE
"""


def repository(texts):
    return Repository([parse_source(path, text.encode()) for path, text in texts.items()])


def read(line):
    module = repository({"helpers.py": HELPERS, "main.py": SCRIPT.replace("LINE", line)}).modules["main.py"]
    (function,) = (node for node in module.nodes if isinstance(node, ast.FunctionDef) and node.name == "step")
    return module, function, function.body[0]


@pytest.mark.parametrize(
    ("line", "touches", "reaches"),
    [
        ("update_bn()", "update_bn", "update_bn"),
        ("if loss: update_bn()", "update_bn", "update_bn"),
        ("mask(loss)", "mask", "mask"),
        ("helpers.mask(loss)", "helpers.mask", "helpers.mask"),
        ("self.shrink()", "self.shrink", "self.shrink"),
        ("print(norm())", None, "norm"),
        ("pruner.mask()", None, "pruner.mask"),
        ("closure()", None, "closure"),
        ("report(loss)", None, None),
        ("deep()", None, None),
        ("self.tell()", None, None),
        ("clean()", None, None),
        ("time.time()", None, None),
        ("meter.update(loss.item(), 3)", None, None),
        ("print(outputs.eq(1).sum().item(), loss.float())", None, None),
        ("meter.average()", None, None),
    ],
)
def test_what_a_call_may_come_to(line, touches, reaches):
    module, function, statement = read(line)
    assert touches_gradients(module, function, statement) == touches
    assert may_reach(module, function, statement, ("model", "optimizer"), {"loss", "outputs"}) == reaches


def test_functions_that_call_each_other_are_followed_once():
    text = "def one():\n    return two()\n\ndef two():\n    return one()\n\ndef step():\n    one()\n"
    module = repository({"main.py": text}).modules["main.py"]
    (function,) = (node for node in module.nodes if isinstance(node, ast.FunctionDef) and node.name == "step")
    assert may_reach(module, function, function.body[0], ("model",), ()) is None
