"""Random layers are found in the classes that a construction reaches."""

import ast

import pytest

from headrace.migrate.rewriting.parallel.contents import what_draws

BLOCK = """\
from torch import nn


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = LAYER


class Block(Base):
    pass
"""


@pytest.mark.parametrize(
    ("layer", "found"),
    [
        ("nn.Dropout(0.5)", "nn.Dropout (block.py:7)"),
        ("nn.Dropout2d()", "nn.Dropout2d (block.py:7)"),
        ("nn.functional.dropout", None),  # no call
        ("nn.functional.dropout(nn.ones, 0.2)", "nn.functional.dropout (block.py:7)"),
        ("nn.Dropout(p=0)", None),
        ("nn.BatchNorm1d(3)", None),
    ],
)
def test_through_files_functions_and_bases(context_of, layer, found):
    text = "import torch\nfrom block import Block\n\n\ndef make():\n    return Block()\n\n\nnet = make()\n"
    context = context_of(text, block=BLOCK.replace("LAYER", layer))
    value = next(node.value for node in context.module.of_kind(ast.Assign))
    assert what_draws(context, value) == found


def test_classes_that_make_each_other_end(context_of):
    text = "import torch\n\nclass A:\n    def a(self):\n        return B()\n\nclass B(A):\n    b = A()\n\nnet = A()\n"
    context = context_of(text)
    assert what_draws(context, context.module.tree) is None
