"""What `headrace.compile` gives for what it is given."""

import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.errors import InputError
from headrace.runtime.graph.graph import ModuleGraph
from headrace.runtime.graph.tiered.tiered_graph import TieredGraph

EAGER = GraphConfig(backend="eager", buckets=(1,), threads=1)


def test_a_module_alone_is_compiled_when_it_pays_and_with_a_configuration_at_the_first_call():
    module = nn.Linear(4, 2).eval()
    assert type(headrace.compile(module)) is TieredGraph
    graph = headrace.compile(module, config=EAGER)
    assert type(graph) is ModuleGraph
    assert graph.captures == 0
    graph(torch.randn(1, 4))
    assert graph.captures == 1


@pytest.mark.parametrize("example", [torch.randn(1, 4), (torch.randn(1, 4),), [torch.randn(1, 4)]])
def test_with_examples_it_is_compiled_now(example):
    assert headrace.compile(nn.Linear(4, 2).eval(), example, config=EAGER).captures == 1


def test_with_images_their_first_rows_are_the_examples():
    images = torch.randn(64, 4)
    assert headrace.compile(nn.Linear(4, 2).eval(), images=images, config=EAGER).signature.inputs[0].row_shape == (4,)


def test_what_is_no_module_is_refused():
    with pytest.raises(InputError, match=r"nn\.Module"):
        headrace.compile(lambda value: value)
