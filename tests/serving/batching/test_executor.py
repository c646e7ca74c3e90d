"""One batch at a time, without a queue: what each request is answered with, and what is told of the batch."""

import time

import numpy as np
import pytest

from headrace.errors import ExecutionError
from headrace.serving.batching.collate import Collator
from headrace.serving.batching.executor import BatchExecutor
from headrace.serving.batching.latency_table import LatencyTable
from headrace.serving.batching.staging import Staging
from headrace.serving.batching.statistics import ModelStatistics
from headrace.serving.batching.ticket import Joining, Ticket


def greatest(outputs, count):
    """Of one value per row, its row and itself, so many times."""
    (values,) = outputs
    return [np.repeat(np.arange(len(values))[:, None], count, 1), np.repeat(values.astype(np.float64), count, 1)]


class Doubler:
    """Gives twice its input, and notes how many rows came."""

    def __init__(self):
        self.sizes = []

    def run(self, inputs):
        self.sizes.append(len(inputs[0]))
        return [inputs[0] * 2]


class Finder(Doubler):
    """One that finds the best classes by itself, too: of three times its input."""

    def __init__(self):
        super().__init__()
        self.found = []

    def best(self, inputs, count):
        self.found.append((len(inputs[0]), count))
        return greatest([inputs[0] * 3], count)


class World:
    """An executor, and batches of requests of which each is given as (values, how many of the best)."""

    def __init__(self, *, best=greatest, joining=Joining.PADDED, staging=None):
        self.table, self.statistics = LatencyTable(dict.fromkeys((1, 2, 4, 8), 0.001)), ModelStatistics()
        self.staging = staging or Staging([], 0)
        self.executor = BatchExecutor(
            self.table, self.statistics, self.staging, best=best, joining=joining, clock=time.monotonic
        )
        self.collator = Collator(8)

    def run(self, session, *requests, bucket=8):
        now = time.monotonic()
        tickets = []
        for serial, (values, best) in enumerate(requests):
            ticket = Ticket(len(values), now + 60, 1, now, serial, best)
            ticket.inputs, ticket.state = [np.array(values, np.float32).reshape(-1, 1)], "running"
            tickets.append(ticket)
        self.executor.run(session, self.collator, tickets, bucket)
        assert {ticket.state for ticket in tickets} == {"done"}
        return [ticket.future.result(0) for ticket in tickets]


@pytest.mark.parametrize("asked", [(2, 1, 3), (2, 0, 3)])
def test_a_session_that_finds_the_best_is_asked_where_all_want_no_more(asked):
    session = Finder()
    answers = World().run(session, *(([10.0 + number], best) for number, best in enumerate(asked)), bucket=4)
    alone = 0 not in asked
    assert (session.found, session.sizes) == (([(4, 3)], []) if alone else ([], [4]))
    for number, (best, answer) in enumerate(zip(asked, answers, strict=True)):
        value = (3 if alone else 2) * (10.0 + number)
        wanted = [[[number] * best], [[value] * best]] if best else [[[value]]]
        assert [found.tolist() for found in answer] == wanted


def test_a_watched_batch_has_its_outputs_whatever_is_asked_for():
    world, seen = World(), []
    world.executor.watch = lambda inputs, outputs, rows: seen.append((inputs[0].tolist(), outputs[0].tolist(), rows))
    session = Finder()
    (first, _) = world.run(session, ([1.0, 2.0], 1), ([5.0], 1), bucket=4)
    assert (session.found, session.sizes) == ([], [4])
    assert [found.tolist() for found in first] == [[[0], [1]], [[2.0], [4.0]]]
    assert seen == [([[1.0], [2.0], [5.0], [5.0]], [[2.0], [4.0], [10.0], [10.0]], 3)]


def test_without_padding_only_the_rows_there_are_run():
    session = Doubler()
    answers = World(joining=Joining.EXACT).run(session, ([1.0, 2.0], 0), ([3.0], 0))
    assert session.sizes == [3]
    assert [answer[0].ravel().tolist() for answer in answers] == [[2.0, 4.0], [6.0]]


class PassThrough(Doubler):
    def run(self, inputs):
        return list(inputs)


def test_an_answer_does_not_lie_where_the_next_batch_comes():
    world = World()
    ((kept,), (other,)) = world.run(PassThrough(), ([1.0, 2.0], 0), ([3.0], 0))
    world.run(PassThrough(), ([7.0, 7.0], 0), ([7.0], 0))
    assert (kept.ravel().tolist(), other.ravel().tolist()) == ([1.0, 2.0], [3.0])


@pytest.mark.parametrize("given", [lambda rows: rows[:-1], lambda rows: rows[0, 0], lambda rows: np.repeat(rows, 2, 0)])
def test_outputs_with_other_rows_than_the_batch_answer_nobody(given):
    class Wrong(Doubler):
        def run(self, inputs):
            return [given(inputs[0])]

    world = World()
    with pytest.raises(ExecutionError, match="outputs of a batch of 8 have shapes"):
        world.run(Wrong(), ([1.0], 0), ([2.0], 0))
    assert world.statistics.snapshot()["inference_count"] == 0


def test_what_a_batch_took_is_counted_by_its_real_rows():
    world = World()
    world.run(Doubler(), ([1.0, 2.0], 0), ([3.0], 0))
    told = world.statistics.snapshot()
    assert (told["inference_count"], told["execution_count"]) == (3, 1)
    assert world.executor.gives_best
    assert not World(best=None).executor.gives_best
