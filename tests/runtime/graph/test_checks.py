"""Calls that no graph can answer, on a graph that captures and on one that was loaded."""

import numpy as np
import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.errors import CaptureError, InputError

FAST = GraphConfig(backend="eager", buckets=(1, 4), threads=1)
ROWS = torch.randn(2, 4)


class Two(nn.Module):
    def forward(self, first, second):
        return first * 2 + second


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    graph = headrace.compile(Two(), config=FAST)
    graph(ROWS, ROWS)
    folder = graph.save(tmp_path_factory.mktemp("models") / "two")
    return {"captured": graph, "loaded": headrace.load(folder)}


WRONG = {
    "array": (ROWS.numpy, "got a ndarray as input 1; torch.as_tensor makes one"),
    "dict": (lambda: {"x": ROWS}, "got a dict as input 1"),
    "nothing": (lambda: None, "got a NoneType as input 1"),
    "number": (lambda: torch.tensor(1.0), r"input 1 is a number; its first dimension must be the batch: value\[None\]"),
    "no rows": (lambda: ROWS[:0], r"input 1 has no rows \(shape \(0, 4\)\); give at least one"),
    "other rows": (lambda: torch.randn(3, 4), "input 1 has 3 rows, input 0 has 2; give equally many"),
    "one row": (lambda: torch.randn(1, 4), "input 1 has 1 rows, input 0 has 2; give equally many"),
    "other device": (lambda: ROWS.to("meta"), "input 1 is on meta, input 0 on cpu; move one"),
    "sparse": (ROWS.to_sparse, "input 1 is torch.sparse_coo; make it dense"),
    "nested": (lambda: torch.nested.nested_tensor([ROWS[0], ROWS[1]]), "input 1 is nested; make it dense"),
    "quantized": (lambda: torch.quantize_per_tensor(ROWS, 0.1, 0, torch.quint8), "input 1 is quantized; make it dense"),
}


@pytest.mark.filterwarnings("ignore:.*(nested tensors|quantize)")
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("kind", ["captured", "loaded"])
def test_what_is_no_input_is_refused_with_the_remedy(graphs, kind, wrong):
    make, text = WRONG[wrong]
    if kind == "loaded":
        text = text.replace("input 0", "first").replace("input 1", "second")
    with pytest.raises(InputError, match=text):
        graphs[kind](ROWS, make())
    torch.testing.assert_close(graphs[kind](ROWS, 3 * ROWS), 5 * ROWS)


@pytest.mark.parametrize("value", [torch.randn(2, 5), torch.randn(2, 4, 1), ROWS.double(), ROWS.long(), ROWS.bfloat16()])
def test_a_loaded_graph_says_what_it_takes(graphs, value):
    with pytest.raises(InputError, match=r"second must (have shape \('batch', 4\), got|be float32, got)"):
        graphs["loaded"](ROWS, value)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_loaded_graph_names_its_inputs(graphs, count):
    with pytest.raises(InputError, match=rf"takes 2 tensors \(first, second\), got {count}"):
        graphs["loaded"](*[ROWS] * count)


@pytest.mark.parametrize(("inputs", "code"), [((), "PG101"), ((ROWS,), "PG100"), ((ROWS.bfloat16(), ROWS.bfloat16()), "PG101")])
def test_a_graph_that_captures_anew_names_the_obstacle(graphs, inputs, code):
    with pytest.raises(CaptureError) as caught:
        graphs["captured"](*inputs)
    assert {item.code for item in caught.value.obstacles} == {code}


@pytest.mark.parametrize("model", [lambda x: x, None, "resnet50"])
def test_compile_takes_a_module(model):
    with pytest.raises(InputError, match="compile takes an nn.Module, got a"):
        headrace.compile(model, ROWS)


@pytest.mark.parametrize("example", [np.zeros((2, 4)), {"x": ROWS}, "cat", 3, [3]])
def test_compile_takes_tensors_as_examples(example):
    with pytest.raises(InputError, match="a graph takes tensors, got a"):
        headrace.compile(nn.Linear(4, 4), example)


def test_weights_that_became_nan_are_named_at_the_next_call():
    module = nn.Linear(4, 4)
    graph = headrace.compile(module, ROWS, config=FAST)
    with torch.no_grad():
        module.weight[0, 0] = float("nan")
    with pytest.raises(CaptureError, match=r"PG110 .*weight holds NaN or infinity; load weights that are finite"):
        graph(ROWS)
