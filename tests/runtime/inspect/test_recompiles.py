import dataclasses
import logging
import re

import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.errors import CaptureError
from headrace.runtime.inspect.recompiles import Recompile, changed_inputs, described_inputs, kinds_of

EAGER = GraphConfig(backend="eager", buckets=(1,), threads=1)


class Add(headrace.Graph):
    def __init__(self, model, config=EAGER):
        super().__init__(config=config)
        self.model = model

    def build(self, left, right):
        return self.model(left) + right


@pytest.fixture
def graph():
    return Add(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))


def test_inputs_are_described_and_compared_by_name():
    before = kinds_of([torch.zeros(2, 3, 4), torch.zeros(2)])
    now = kinds_of([torch.zeros(5, 3, 6), torch.zeros(5, dtype=torch.int64)])
    assert described_inputs(["a", "b"], now) == "a float32 [batch, 3, 6], b int64 [batch]"
    assert changed_inputs(["a", "b"], before, now) == (
        "input a has row shape (3, 6), before (3, 4); input b has dtype int64, before float32"
    )
    assert changed_inputs(["a", "b"], before, before) == ""
    assert changed_inputs(["a"], before, now[:1]) == "the number of inputs is 1, before 2"
    there = kinds_of([torch.zeros(2, 3, 4, device="meta")])
    assert changed_inputs(["a"], before[:1], there) == "input a has device meta, before cpu"
    assert described_inputs(["a"], there) == "a float32 [batch, 3, 4] on meta"


def test_every_capture_after_the_first_is_explained(graph):
    rows = torch.randn(2, 4)
    graph(rows, rows)
    assert (graph.captures, graph.recompiles) == (1, ())
    graph(rows, torch.randn(2, 1))
    with torch.no_grad():
        graph.model[0].bias.add_(1)
    graph(rows, rows)
    graph.model[1] = nn.Linear(4, 4)
    graph(rows, rows)
    graph.model = nn.Linear(4, 4)
    torch.testing.assert_close(graph(rows, rows), graph.model(rows).detach() + rows)
    graph.compile(rows, rows)
    assert graph.recompiles == (
        Recompile(2, "input right has row shape (1,), before (4,)"),
        Recompile(3, "parameter model.0.bias was written"),
        Recompile(4, "module model.1 was replaced"),
        Recompile(5, "module model was replaced"),
        Recompile(6, "compile was called again"),
    )
    assert graph.captures == 6
    assert "capture 6: compile was called again" in str(graph)
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.recompiles[0].reason = ""


def test_a_call_that_is_answered_by_a_kept_graph_is_no_recompile(graph):
    for size in (4, 1, 4, 1):
        graph(torch.randn(3, 4), torch.randn(3, size))
    assert [item.number for item in graph.recompiles] == [2]


def test_a_capture_that_fails_is_not_counted_and_its_reason_is_kept_for_the_next(graph):
    rows = torch.randn(2, 4)
    graph(rows, rows)
    with torch.no_grad():
        graph.model[0].bias.fill_(float("nan"))
    with pytest.raises(CaptureError):
        graph(rows, rows)
    assert graph.captures == 1
    with torch.no_grad():
        graph.model[0].bias.fill_(0)
    graph(rows, rows)
    assert graph.recompiles == (Recompile(2, "parameter model.0.bias was written"),)


def test_the_bound_is_the_configurations_and_what_was_dropped_is_captured_again():
    graph = Add(nn.Linear(4, 4), GraphConfig(backend="eager", buckets=(1,), threads=1, max_captures=2))
    for dtype in (torch.float32, torch.float64, torch.int64, torch.float32):
        graph(torch.randn(1, 4), torch.ones(1, 4, dtype=dtype))
    assert len(graph._kept) == 2
    assert graph.recompiles[-1] == Recompile(
        4,
        "input right has dtype float32, before int64; captured before, and dropped to keep no more than max_captures=2",
    )


def test_thrashing_is_warned_of_once_and_names_the_remedy(caplog):
    graph = Add(nn.Linear(4, 4), GraphConfig(backend="eager", buckets=(1,), threads=1, max_captures=1))
    with caplog.at_level(logging.WARNING, "headrace.graph"):
        for count in range(8):
            graph(torch.randn(1, 4), torch.randn(1, 4 if count % 2 else 1))
    (record,) = [record for record in caplog.records if record.name == "headrace.graph"]
    assert re.search(r"Add: .*more than max_captures=1 row shapes; resize inputs to one size, or raise", record.getMessage())


def test_sizes_that_fit_are_no_reason_to_warn(graph, caplog):
    for count in range(8):
        graph(torch.randn(1, 4), torch.randn(1, 4 if count % 2 else 1))
    assert not [record for record in caplog.records if record.name == "headrace.graph"]
