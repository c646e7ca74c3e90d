import logging
import re
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.runtime.capture.source_locations import of_node

log = logging.getLogger("headrace.graph")
EAGER = GraphConfig(backend="eager", buckets=(1,), threads=1)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, rows):
        return self.linear(rows).relu() * 3


@pytest.fixture
def said(caplog):
    return lambda: [record.getMessage() for record in caplog.records if record.name == "headrace.graph"]


@pytest.fixture
def unconfigured(monkeypatch):
    """To be called in the test: makes it as in a program that has configured no logging, without pytest's own handlers."""

    def cut():
        monkeypatch.setattr(log, "propagate", False)
        monkeypatch.setattr(log, "handlers", [])

    return cut


def test_off_says_nothing_and_one_tells_captures_with_reasons_passes_and_the_plan(said):
    graph = headrace.compile(Scaled(), config=EAGER)
    graph(torch.randn(2, 4))
    assert said() == []
    assert graph.debug(1) is graph
    with torch.no_grad():
        graph.model.linear.bias.add_(1)
    graph(torch.randn(2, 4))
    first, second, third, fourth = said()
    assert first == "Scaled: capture 2, for rows float32 [batch, 4]: parameter model.linear.bias was written"
    assert re.fullmatch(r"Scaled: captured in \d+\.\d\d s", second)
    assert re.fullmatch(r"Scaled: passes: .*fold_batch_norm unchanged.*", third)
    assert re.fullmatch(
        r"Scaled: planned in .* s, the choices as before, held to parity again: batch 1 by eager fp32 .*", fourth
    )


def test_two_adds_every_candidates_measurement(said):
    graph = headrace.compile(Scaled(), config=GraphConfig(buckets=(1, 2), threads=1, max_tuning_seconds=2)).debug(2)
    graph(torch.randn(2, 4))
    table = said()[-1]
    assert "candidates:\nimages per second" in table
    for item in graph.plan.measurements:
        assert item.candidate in table
    assert not any("operations" in message for message in said())


def test_three_adds_the_operations_with_the_users_own_lines(said):
    headrace.compile(Scaled(), config=EAGER).debug(3)(torch.randn(2, 4))
    text = next(message for message in said() if "operations captured:" in message)
    line = Scaled.forward.__code__.co_firstlineno + 1
    for operation in ("linear", "relu", "mul"):
        assert re.search(rf"\n  {re.escape(__file__)}:{line}: {operation} = aten\.{operation}\.\w+\(", text), text


def test_a_bucket_that_a_call_brings_is_told(said):
    graph = headrace.compile(Scaled(), config=GraphConfig(backend="eager", threads=1))
    graph(torch.randn(1, 4))
    graph.debug()(torch.randn(8, 4))
    (message,) = said()
    assert re.fullmatch(r"Scaled: planned in .* s, measured now: batch 8 by eager fp32 .*", message)


def test_each_graph_is_as_loud_as_it_was_told_and_leaves_the_logger_as_it_is(said):
    before = (log.level, list(log.handlers), log.propagate)
    loud, silent = (headrace.compile(Scaled(), config=EAGER) for _ in range(2))
    loud.debug(2)
    silent(torch.randn(2, 4))
    assert said() == []
    loud(torch.randn(2, 4))
    count = len(said())
    assert count
    loud.debug(0)(torch.randn(2, 5)[:, :4].contiguous())
    assert len(said()) == count
    assert (log.level, list(log.handlers), log.propagate) == before


@pytest.mark.parametrize("level", [-1, 4, True, "1", None])
def test_other_levels_are_refused(level):
    with pytest.raises(ValueError, match="level must be one of 0, 1, 2, 3"):
        headrace.compile(Scaled(), config=EAGER).debug(level)


def test_without_logging_configured_it_writes_to_stderr(unconfigured, capsys):
    unconfigured()
    graph = headrace.compile(Scaled(), config=EAGER).debug(1)
    graph(torch.randn(2, 4))
    out, err = capsys.readouterr()
    assert "headrace.graph: Scaled: capture 1, for rows float32 [batch, 4]\n" in err
    assert out == ""
    assert log.handlers == []


def test_handlers_of_the_users_own_are_used_instead_of_stderr_whenever_they_came(unconfigured, capsys):
    unconfigured()
    records = []
    graph = headrace.compile(Scaled(), config=EAGER).debug(1)
    handler = logging.Handler()
    handler.emit = records.append
    log.addHandler(handler)
    graph(torch.randn(2, 4))
    assert "captured in" in records[1].getMessage()
    assert (records[1].levelname, records[1].filename) == ("INFO", "compiler.py")
    assert capsys.readouterr().err == ""


def test_logging_disable_is_obeyed(said):
    logging.disable(logging.INFO)
    try:
        headrace.compile(Scaled(), config=EAGER).debug(1)(torch.randn(2, 4))
    finally:
        logging.disable(logging.NOTSET)
    assert said() == []


class Train(headrace.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    def build(self, rows):
        loss = self.model(rows).square().mean()
        loss.backward()
        return loss


def test_a_training_graph_tells_its_captures_and_operations(said):
    graph = Train(Scaled()).debug(3)
    for count in (2, 2, 5):
        graph(torch.randn(count, 4))
    assert "Train: capture 1, of a step for rows [2, 4]" in said()
    assert "Train: capture 2, of a step for rows [5, 4]: input rows has shape (5, 4), before (2, 4)" in said()
    assert any(re.match(r"Train: step for \[\(2, 4\)\]: captured with its update, after .* s", message) for message in said())
    text = next(message for message in said() if "operations captured:" in message)
    line = Scaled.forward.__code__.co_firstlineno + 1
    for operation in ("addmm", "relu"):
        assert re.search(rf"\n  {re.escape(__file__)}:{line}: {operation} = aten\.{operation}\.default\(", text), text
    assert "aten.threshold_backward" in text


def test_the_users_line_is_the_innermost_that_is_no_librarys():
    trace = f'  File "/home/a/model.py", line 3, in forward\n    x = f(x)\n  File "{torch.__file__}", line 9, in f\n    pass\n'
    for text, place in ((trace, ("/home/a/model.py", 3)), (f'  File "{torch.__file__}", line 9, in f', ("", 0)), ("", ("", 0))):
        assert of_node(SimpleNamespace(meta={"stack_trace": text})) == place
