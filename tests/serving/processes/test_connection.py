"""A front end's requests in an engine, over a real socket and real shared memory, with both halves in this process."""

import asyncio
import contextlib
import os
import socket
import threading
import time

import numpy as np
import pytest

from headrace.errors import ExecutionError, InputError, OverloadedError
from headrace.runtime.artifact.agreement import softmax
from headrace.runtime.artifact.model_config import ConfigTensor, ModelConfig
from headrace.runtime.base.anonymous_memory import create_memory, map_memory
from headrace.runtime.base.task import Task
from headrace.serving.batching.batcher import Batcher
from headrace.serving.batching.latency_table import LatencyTable
from headrace.serving.batching.statistics import FAILURES
from headrace.serving.models.loading import best_of
from headrace.serving.models.models import TensorModel
from headrace.serving.processes.arena import BlockLayout
from headrace.serving.processes.connection import Connection
from headrace.serving.processes.engine_session import EngineSession, NumberedModel
from headrace.serving.processes.messages import Admit, AskStatistics, Count, Counted, ModelCounts, Statistics
from headrace.specs import Signature, TensorSpec

ROWS, SIZE = 4, 1 << 12
SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 8)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 8)),),
)
LAYOUT = BlockLayout(SIGNATURE)


class Doubling:
    """y = 2 x, once the gate is open."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def run(self, inputs):
        self.entered.set()
        assert self.gate.wait(20)
        if (inputs[0] < 0).any():
            raise RuntimeError("a negative number")
        return [inputs[0] * 2]

    def close(self):
        pass


class Pair:
    """A `Connection` and the `EngineSession` at its other end."""

    def __init__(self, *, memory: int = SIZE, max_queue: int = 64):
        self.session = Doubling()
        table = LatencyTable(dict.fromkeys((1, 2, ROWS), 0.001))
        task = Task.of(SIGNATURE)
        self.batcher = Batcher([dict.fromkeys(table.buckets, self.session)], table, max_queue=max_queue, best=best_of(task))
        config = ModelConfig(
            name="m",
            backend="onnxruntime",
            max_batch_size=ROWS,
            inputs=(ConfigTensor(name="x", datatype="FP32", shape=(8,)),),
            outputs=(ConfigTensor(name="y", datatype="FP32", shape=(8,)),),
        )
        model = TensorModel(
            name="m",
            version="1",
            config=config,
            batcher=self.batcher,
            signature=SIGNATURE,
            task=task,
            statistics=self.batcher.statistics,
        )
        here, there = socket.socketpair()
        descriptor = create_memory(memory)
        self.ended: list[str] = []
        self.passed_on = []
        self.engine_session = EngineSession(
            there,
            map_memory(os.dup(descriptor)),
            {5: NumberedModel(model, self.batcher, LAYOUT)},
            statistics=lambda: {5: ModelCounts({"count": 1}, {})},
            history=dict,
            control=lambda *_: None,
            on_change=lambda: None,
            on_end=lambda _: self.ended.append("engine session"),
        )
        self.connection = Connection(
            here, map_memory(descriptor), on_message=self.passed_on.append, on_end=lambda _: self.ended.append("connection")
        )
        self.size = memory

    def ask(self, rows: int = 1, timeout: float = 20.0, model: int = 5, best: int = 0):
        return self.connection.admit(model, LAYOUT, rows, timeout, 0, best)

    async def answer(self, ticket, value: float = 1.0):
        self.connection.submit(ticket, [np.full((ticket.rows, 8), value, np.float32)])
        return await asyncio.wrap_future(ticket.future)

    async def all_free(self):
        await _until(lambda: self.connection.free_bytes == self.size and not self.connection.waiting)

    async def close(self):
        self.session.gate.set()
        self.connection.channel.close()
        self.engine_session.channel.close()
        await asyncio.get_running_loop().run_in_executor(None, self.batcher.close)


async def _until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


def with_pair(**options):
    """Run a test's coroutine on a loop of its own, with a pair that is closed afterwards."""

    def decorate(test):
        def run():
            async def body():
                pair = Pair(**options)
                try:
                    await test(pair)
                finally:
                    await pair.close()

            asyncio.run(body())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


@with_pair()
async def test_every_request_gets_its_own_rows_back(pair):
    async def one(number: int) -> None:
        (rows,) = await pair.answer(pair.ask(1 + number % ROWS), number)
        assert rows.shape == (1 + number % ROWS, 8)
        assert (rows == 2 * number).all()

    await asyncio.gather(*(one(number) for number in range(12)))
    await pair.all_free()


@with_pair()
async def test_the_best_classes_come_instead_of_the_outputs(pair):
    """More of them also take more room than the outputs would."""
    scores = np.random.default_rng(4).random((3, 8), np.float32)
    for best in (1, 3, 8):
        ticket = pair.ask(3, best=best)
        assert ticket.layout.size(3, 8) > ticket.layout.size(3)
        pair.connection.submit(ticket, [scores])
        classes, shares = await asyncio.wrap_future(ticket.future)
        order = np.argsort(-scores, axis=1)[:, :best]
        np.testing.assert_array_equal(classes, order)
        np.testing.assert_allclose(shares, np.take_along_axis(softmax(2 * scores), order, axis=1), rtol=3e-7)
    whole = await pair.answer(pair.ask())
    assert [found.shape for found in whole] == [(1, 8)]
    await pair.all_free()


@with_pair()
async def test_what_is_written_into_the_slot_is_not_copied_again(pair):
    ticket = pair.ask(2)
    with pair.connection.slot(ticket) as slot:
        slot[0][:] = 3
    assert (slot[0] == 3).all()
    pair.connection.submit(ticket, slot)
    (rows,) = await asyncio.wrap_future(ticket.future)
    assert (rows == 6).all()


@with_pair()
async def test_answers_are_the_callers_own(pair):
    (first,) = await pair.answer(pair.ask(), 1)
    await pair.answer(pair.ask(), 5)  # in the same block
    assert (first == 2).all()


@with_pair(memory=4 * LAYOUT.size(1))
async def test_full_memory_is_refused_and_comes_back(pair):
    tickets = [pair.ask() for _ in range(4)]
    with pytest.raises(OverloadedError, match="memory"):
        pair.ask()
    for ticket in tickets:
        await pair.answer(ticket)
    await pair.all_free()
    await pair.answer(pair.ask())


@with_pair(max_queue=2)
async def test_the_engines_refusal_comes_through_the_ticket(pair):
    pair.session.gate.clear()
    tickets = [pair.ask() for _ in range(8)]
    for ticket in tickets:
        pair.connection.submit(ticket, [np.ones((1, 8), np.float32)])
    await _until(lambda: sum(ticket.future.done() for ticket in tickets) >= 4)
    refused = [ticket.future.exception() for ticket in tickets if ticket.future.done()]
    assert all(isinstance(error, OverloadedError) and "full" in str(error) and error.retry_after >= 1 for error in refused)
    pair.session.gate.set()
    await pair.all_free()


@with_pair()
async def test_a_deadline_that_cannot_be_met_is_refused(pair):
    with pytest.raises(OverloadedError, match="cannot answer within"):
        await pair.answer(pair.ask(timeout=1e-9))
    await pair.all_free()


@with_pair()
async def test_the_time_to_the_engine_counts(pair):
    arrived = time.monotonic() - 10
    ticket = pair.batcher.admit(1, timeout=60, arrived=arrived)
    assert ticket.deadline == arrived + 60
    with pytest.raises(OverloadedError):
        pair.batcher.admit(1, timeout=9, arrived=arrived)
    pair.batcher.reject(ticket, OverloadedError(""))


@with_pair()
async def test_a_model_that_fails_and_one_that_is_gone(pair):
    with pytest.raises(ExecutionError, match="failed on this request"):
        await pair.answer(pair.ask(), -1)
    with pytest.raises(OverloadedError, match="exchanged"):
        await pair.answer(pair.ask(model=6))
    await pair.all_free()


@with_pair()
async def test_inputs_of_another_shape_are_refused_and_free_their_block(pair):
    ticket = pair.ask(2)
    pair.connection.submit(ticket, [np.ones((2, 7), np.float32)])
    with pytest.raises(InputError, match="8"):
        await asyncio.wrap_future(ticket.future)
    await pair.all_free()
    assert pair.batcher.depth == 0


@with_pair()
async def test_a_block_is_kept_while_a_thread_still_writes_into_it(pair):
    ticket = pair.ask()
    with pair.connection.slot(ticket) as slot:
        ticket.future.cancel()
        await _until(lambda: not pair.connection.waiting)  # the engine has let go
        assert pair.connection.free_bytes == SIZE - LAYOUT.size(1)
        other = pair.ask()
        slot[0][:] = 99
        assert (await pair.answer(other, 1))[0].max() == 2
    await pair.all_free()
    pair.connection.submit(ticket, slot)  # nothing happens any more
    await asyncio.sleep(0.05)
    assert pair.connection.free_bytes == SIZE


@with_pair()
async def test_a_cancelled_request_that_runs_keeps_its_block_until_it_has_run(pair):
    pair.session.gate.clear()
    ticket = pair.ask()
    pair.connection.submit(ticket, [np.ones((1, 8), np.float32)])
    await _until(pair.session.entered.is_set)
    ticket.future.cancel()
    await asyncio.sleep(0.05)
    assert pair.connection.free_bytes == SIZE - LAYOUT.size(1)
    pair.session.gate.set()
    await pair.all_free()


@with_pair()
async def test_cancelling_expiring_and_refusing_take_a_request_out_of_the_queue(pair):
    pair.session.gate.clear()
    first = pair.ask()
    pair.connection.submit(first, [np.ones((1, 8), np.float32)])
    await _until(pair.session.entered.is_set)
    cancelled, expired, refused = (pair.ask() for _ in range(3))
    await _until(lambda: pair.batcher.depth == 3)
    cancelled.future.cancel()
    pair.connection.expire(expired)
    pair.connection.reject(refused, InputError("no image"))
    with pytest.raises(InputError, match="no image"):
        await asyncio.wrap_future(refused.future)
    with pytest.raises(OverloadedError, match="deadline"):
        await asyncio.wrap_future(expired.future)
    await _until(lambda: pair.batcher.depth == 0)
    pair.session.gate.set()
    await asyncio.wrap_future(first.future)
    await pair.all_free()
    assert pair.batcher.statistics.snapshot()["inference_stats"]["fail"]["count"] == 3
    assert pair.batcher.statistics.snapshot()["inference_stats"]["success"]["count"] == 1


@with_pair()
async def test_the_end_of_the_engine_fails_what_is_open(pair):
    pair.session.gate.clear()
    tickets = [pair.ask() for _ in range(3)]
    pair.connection.submit(tickets[0], [np.ones((1, 8), np.float32)])
    pair.engine_session.channel.close()
    for ticket in tickets:
        with pytest.raises(OverloadedError, match="engine") as error:
            await asyncio.wrap_future(ticket.future)
        assert error.value.retry_after >= 1
    with pytest.raises(OverloadedError, match="engine"):
        pair.ask()
    assert pair.ended == ["engine session", "connection"]


@with_pair()
async def test_the_end_of_a_front_end_gives_its_places_up(pair):
    pair.session.gate.clear()
    tickets = [pair.ask() for _ in range(5)]
    pair.connection.submit(tickets[0], [np.ones((1, 8), np.float32)])
    await _until(lambda: pair.batcher.depth == 4 and pair.session.entered.is_set())
    pair.connection.channel.close()
    await _until(lambda: pair.batcher.depth == 0)
    pair.session.gate.set()
    await _until(lambda: pair.batcher.load()[2] == 0)
    assert pair.ended == ["connection", "engine session"]


@with_pair()
async def test_counts_and_questions(pair):
    pair.connection.channel.send(Count(5, Counted.FAILED, FAILURES.index("OTHER"), 10))
    pair.connection.channel.send(Count(5, Counted.FAILED, len(FAILURES), 10))  # no reason that anybody knows
    pair.connection.channel.send(Count(5, Counted.COMPOSED, 3, 10))
    pair.connection.channel.send(Count(5, Counted.CACHED, 0, 10))
    pair.connection.channel.send(Count(5, Counted.MISSED, 0, 10))
    pair.connection.channel.send(Count(6, Counted.FAILED, 0, 10))  # a model that is gone
    pair.connection.channel.send(AskStatistics(7))
    await _until(lambda: pair.passed_on)
    assert pair.passed_on == [Statistics(7, {5: ModelCounts({"count": 1}, {})})]
    snapshot = pair.batcher.statistics.snapshot()
    assert snapshot["inference_count"] == 3
    assert snapshot["inference_stats"]["fail"]["count"] == 1
    assert pair.batcher.statistics.failure_counts() == dict.fromkeys(FAILURES, 0) | {"OTHER": 1}
    assert snapshot["inference_stats"]["cache_hit"]["count"] == 1
    assert snapshot["inference_stats"]["cache_miss"]["count"] == 1


@with_pair(memory=1 << 20)
async def test_many_threads_and_a_socket_that_fills_up(pair):
    """More is sent than the socket holds while nobody reads, since the loop is held up; all of it arrives."""
    results = []

    def work() -> None:
        for number in range(300):
            ticket = pair.ask()
            if number % 3:
                pair.connection.submit(ticket, [np.full((1, 8), number, np.float32)])
                results.append((number, ticket))
            elif number % 2:
                ticket.future.cancel()
            else:
                pair.connection.reject(ticket, InputError(""))

    pair.batcher._max_queue = 10_000
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, ticket in results:
        with contextlib.suppress(OverloadedError):
            (rows,) = await asyncio.wrap_future(ticket.future)
            assert (rows == 2 * number).all()
    await pair.all_free()


def test_an_admission_outside_the_memory_is_refused():
    async def body() -> None:
        pair = Pair()
        try:
            ticket = pair.ask()
            for offset in (SIZE, SIZE - LAYOUT.size(1) + 64, 1, 1 << 60):
                bad = Admit(1000 + offset % 7, 5, 1, 0, 0, offset, time.monotonic(), 10.0)
                pair.engine_session._on_message(bad)
                assert len(pair.engine_session._jobs) <= 1
            await pair.answer(ticket)
            await pair.all_free()
        finally:
            await pair.close()

    asyncio.run(body())
