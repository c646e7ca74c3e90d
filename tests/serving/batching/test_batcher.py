"""The batcher's threads with session-like objects that compute real (small) answers."""

import random
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait

import numpy as np
import pytest

from headrace.errors import ExecutionError, InputError, OverloadedError, RankLostError
from headrace.serving.batching.batcher import Batcher
from headrace.serving.batching.latency_table import LatencyTable
from headrace.serving.batching.policy import BatchPolicy

TABLE = {1: 0.001, 2: 0.001, 4: 0.001, 8: 0.001}


class Doubler:
    """Gives twice its input; records batch sizes; waits for `gate` and fails on negative values."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.sizes: list[int] = []
        self.gate = gate
        self.entered = threading.Event()
        self.closed = False

    def run(self, inputs):
        self.sizes.append(len(inputs[0]))
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(60)
        if (inputs[0] < 0).any():
            raise RuntimeError("secret detail /etc/passwd")
        return [inputs[0] * 2]

    def close(self):
        self.closed = True


class PassThrough(Doubler):
    def run(self, inputs):
        return [inputs[0]]


@pytest.fixture
def batcher_of():
    made = []

    def make(session, instances: int = 1, **options) -> Batcher:
        sessions = [session] * instances
        made.append(Batcher([dict.fromkeys(TABLE, one) for one in sessions], LatencyTable(TABLE), **options))
        return made[-1]

    yield make
    for batcher in made:
        batcher.close(drain=False)


def send(batcher, *values: float, timeout: float = 60.0, priority: int = 0):
    ticket = batcher.admit(len(values), timeout=timeout, priority=priority)
    batcher.submit(ticket, [np.array(values, np.float32).reshape(-1, 1)])
    return ticket


def values(ticket) -> list[float]:
    return ticket.future.result(60)[0].ravel().tolist()


def greatest(outputs, count):
    """Of what `Doubler` gives, the one value there is, so many times."""
    (doubled,) = outputs
    return [np.repeat(np.arange(len(doubled))[:, None], count, 1), np.repeat(doubled.astype(np.float64), count, 1)]


def test_a_batch_answers_what_each_asks_for(batcher_of):
    """Some the outputs, some so many of the best; they are found once for all, and not in the rows that fill a batch up."""
    gate, calls = threading.Event(), []
    session = Doubler(gate)
    batcher = batcher_of(
        session, best=lambda outputs, count: calls.append((len(outputs[0]), count)) or greatest(outputs, count)
    )
    first = send(batcher, 1.0)
    assert session.entered.wait(60)
    tickets = []
    for number, best in enumerate((2, 0, 3)):
        ticket = batcher.admit(1, timeout=60.0, best=best)
        batcher.submit(ticket, [np.array([[10.0 + number]], np.float32)])
        tickets.append(ticket)
    gate.set()
    assert values(first) == [2.0]
    two, whole, three = (ticket.future.result(60) for ticket in tickets)
    assert [found.tolist() for found in two] == [[[0, 0]], [[20.0, 20.0]]]
    assert [found.tolist() for found in whole] == [[[22.0]]]
    assert [found.tolist() for found in three] == [[[2, 2, 2]], [[24.0, 24.0, 24.0]]]
    assert calls == [(3, 3)]


def test_a_lost_rank_is_named_and_may_be_asked_again(batcher_of):
    class Lost(Doubler):
        def run(self, inputs):
            if inputs[0][0, 0] == 5.0:
                raise RankLostError("rank 1 of 2 has ended (signal SIGKILL); it is started again")
            return super().run(inputs)

    batcher = batcher_of(Lost(), name="m")
    with pytest.raises(OverloadedError, match="model 'm': rank 1 of 2 has ended") as caught:
        values(send(batcher, 5.0))
    assert caught.value.retry_after > 0
    assert values(send(batcher, 4.0)) == [8.0]


def test_a_model_without_a_best_class_refuses(batcher_of):
    with pytest.raises(InputError, match="one class of several"):
        batcher_of(Doubler()).admit(1, timeout=1.0, best=5)


def test_answers_are_each_requests_own(batcher_of):
    batcher = batcher_of(Doubler(), instances=2)

    def work(seed: int) -> None:
        numbers = [float(seed * 10 + position) for position in range(1 + seed % 5)]
        assert values(send(batcher, *numbers)) == [2 * number for number in numbers]

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(work, range(640)))
    assert batcher.depth == 0
    assert batcher.statistics.snapshot()["inference_count"] == sum(1 + seed % 5 for seed in range(640))


def test_a_model_that_hands_its_input_through_does_not_share_buffers(batcher_of):
    batcher = batcher_of(PassThrough())
    first = send(batcher, 1.0, 2.0, 3.0)
    kept = first.future.result(60)[0]
    for value in range(20):
        values(send(batcher, float(value), 0.0, 0.0))
    assert kept.ravel().tolist() == [1.0, 2.0, 3.0]


def test_what_waits_runs_together_padded_to_a_bucket(batcher_of):
    gate = threading.Event()
    session = Doubler(gate)
    batcher = batcher_of(session)
    first = send(batcher, 0.0)
    assert session.entered.wait(60)
    others = [send(batcher, float(number)) for number in range(1, 6)]
    gate.set()
    assert [values(ticket) for ticket in [first, *others]] == [[2.0 * number] for number in range(6)]
    assert session.sizes == [1, 8]
    sizes = {entry["batch_size"] for entry in batcher.statistics.snapshot()["batch_stats"]}
    assert sizes == {1, 5}  # statistics count real rows


def test_an_error_fails_its_batch_only_and_says_nothing_of_the_inside(batcher_of):
    batcher = batcher_of(Doubler(), name="m")
    with pytest.raises(ExecutionError, match="model 'm' failed") as caught:
        values(send(batcher, -1.0))
    assert "passwd" not in str(caught.value)
    assert values(send(batcher, 4.0)) == [8.0]
    assert batcher.statistics.snapshot()["inference_stats"]["fail"]["count"] == 1


def test_full_queue_and_hopeless_deadlines_are_refused_on_arrival(batcher_of):
    gate = threading.Event()
    batcher = batcher_of(Doubler(gate), max_queue=2)
    running = send(batcher, 0.0)
    assert running.future.running() or batcher.depth == 1
    while not running.future.running():
        time.sleep(0.001)
    waiting = [send(batcher, 1.0), send(batcher, 2.0)]
    with pytest.raises(OverloadedError, match="full"):
        send(batcher, 3.0)
    waiting[0].future.cancel()
    with pytest.raises(OverloadedError, match="within"):
        send(batcher, 3.0, timeout=0.0001)
    gate.set()
    assert values(waiting[1]) == [4.0]
    for rows in (0, 9):
        with pytest.raises(InputError, match="rows"):
            batcher.admit(rows, timeout=1.0)


def test_cancelled_and_expired_requests_leave_at_once(batcher_of):
    gate = threading.Event()
    session = Doubler(gate)
    batcher = batcher_of(session)
    running = send(batcher, 0.0)
    assert session.entered.wait(60)
    tickets = [send(batcher, float(number)) for number in range(3)]
    coming = batcher.admit(1, timeout=60.0)
    assert batcher.depth == 4
    tickets[0].future.cancel()
    assert batcher.depth == 3
    batcher.expire(tickets[1])
    assert batcher.depth == 2
    coming.future.cancel()
    assert batcher.depth == 1
    batcher.submit(coming, [np.zeros((1, 1), np.float32)])  # decoded after it was given up
    assert batcher.depth == 1
    with pytest.raises(OverloadedError, match="deadline"):
        values(tickets[1])
    with pytest.raises(CancelledError):
        values(tickets[0])
    batcher.expire(running)  # runs already, so it is answered
    gate.set()
    assert values(running) == [0.0]
    assert values(tickets[2]) == [4.0]
    assert batcher.statistics.failure_counts() == {"REJECTED": 1, "CANCELED": 2, "BACKEND": 0, "OTHER": 0}


def test_order_is_priority_then_deadline(batcher_of):
    gate = threading.Event()
    session = Doubler(gate)
    batcher = batcher_of(session)
    done: list[str] = []
    send(batcher, 0.0)
    assert session.entered.wait(60)
    full = [0.0] * 8  # fills a batch, so that each request runs alone
    tickets = []
    for name, timeout, priority in (("late", 90.0, 0), ("early", 60.0, 0), ("first", 90.0, 1), ("last", 30.0, 200)):
        ticket = send(batcher, *full, timeout=timeout, priority=priority)
        ticket.future.add_done_callback(lambda _, name=name: done.append(name))
        tickets.append(ticket.future)
    gate.set()
    wait(tickets, 60)
    assert done == ["first", "early", "late", "last"]


def test_closing_answers_what_was_admitted_and_refuses_the_rest(batcher_of):
    gate = threading.Event()
    session = Doubler(gate)
    batcher = batcher_of(session)
    tickets = [send(batcher, float(number)) for number in range(5)]
    closing = threading.Thread(target=batcher.close)
    closing.start()
    while not batcher._closing:
        time.sleep(0.001)
    with pytest.raises(OverloadedError, match="shutting down"):
        send(batcher, 1.0)
    gate.set()
    assert [values(ticket) for ticket in tickets] == [[2.0 * number] for number in range(5)]
    closing.join(60)
    assert session.closed


def test_an_idle_batcher_uses_no_processor_time(batcher_of):
    batcher_of(Doubler(), instances=4)
    time.sleep(0.1)
    begin = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - begin < 0.05


class Checking(BatchPolicy):
    """A policy that compares what the batcher has counted with what there is."""

    seen = coming_seen = 0

    def admit(self, now, *, ahead, ahead_rows, waiting, deadline, **rest):
        before = list(ahead)
        assert ahead_rows == sum(ticket.rows for ticket in before)
        assert len(before) <= waiting
        orders = [ticket.order for ticket in before]
        assert orders == sorted(orders)
        Checking.seen += 1
        return super().admit(now, ahead=before, ahead_rows=ahead_rows, waiting=waiting, deadline=deadline, **rest)

    def decide(self, now, queue, table, *, coming, **rest):
        assert [ticket.order for ticket in queue] == sorted(ticket.order for ticket in queue)
        assert coming >= 0
        Checking.coming_seen = coming
        return super().decide(now, queue, table, coming=coming, **rest)


def test_what_is_counted_is_what_waits_whoever_comes_and_goes(batcher_of):
    """Against the tickets themselves, after every step that a client may take."""
    gate, drawn = threading.Event(), random.Random(4)
    session = Doubler(gate)
    batcher = batcher_of(session, policy=Checking(), max_queue=1000)
    first = send(batcher, 0.0)
    assert session.entered.wait(10)  # from here on nobody leaves the queue but by these steps
    tickets = []
    for _ in range(400):
        step, open_ones = drawn.random(), [ticket for ticket in tickets if ticket.state in ("coming", "queued")]
        coming = [ticket for ticket in open_ones if ticket.state == "coming"]
        if step < 0.5 or not open_ones:
            rows, priority = drawn.randint(1, 8), drawn.choice((0, 0, 1, 200))
            tickets.append(batcher.admit(rows, timeout=drawn.uniform(50, 1000), priority=priority))
        elif step < 0.8 and coming:
            ticket = drawn.choice(coming)
            batcher.submit(ticket, [np.full((ticket.rows, 1), ticket.rows, np.float32)])
        else:
            drawn.choice((batcher.expire, lambda ticket: ticket.future.cancel()))(drawn.choice(open_ones))
        open_ones = [ticket for ticket in tickets if ticket.state in ("coming", "queued")]
        newest = batcher.admit(1, timeout=10_000.0, priority=300)  # behind all others
        assert batcher.depth == len(open_ones) + 1
        newest.future.cancel()
        queued = [ticket for ticket in open_ones if ticket.state == "queued"]
        assert batcher.load()[:2] == (len(open_ones) - len(queued), len(queued))
    for ticket in [ticket for ticket in tickets if ticket.state == "coming"]:
        batcher.submit(ticket, [np.full((ticket.rows, 1), ticket.rows, np.float32)])
    left = [ticket for ticket in tickets if ticket.state == "queued"]
    gate.set()
    assert values(first) == [0.0]
    for ticket in left:
        assert values(ticket) == [2.0 * ticket.rows] * ticket.rows
    assert batcher.depth == 0
    assert (Checking.seen > 400, Checking.coming_seen) == (True, 0)


def answered(batcher, count=40):
    tickets = [batcher.admit(8, timeout=60) for _ in range(count)]
    for number, ticket in enumerate(tickets):
        batcher.submit(ticket, [np.full((8, 1), number, np.float32)])
    for number, ticket in enumerate(tickets):
        assert (ticket.future.result(60)[0] == 2 * number).all()


def test_an_instance_joins_rests_and_goes_while_requests_are_answered(batcher_of):
    first, second = Doubler(), Doubler()
    batcher = batcher_of(first)
    with ThreadPoolExecutor(1) as pool:
        traffic = pool.submit(lambda: [answered(batcher, 20) for _ in range(60)])
        assert batcher.grow(dict.fromkeys(TABLE, second))
        assert second.entered.wait(60)
        for _ in range(20):
            batcher.activate(1)
            batcher.activate(2)
        batcher.activate(1)
        while batcher.load()[2] > 1:  # the batch that it ran when it was told
            time.sleep(0.001)
        ran = len(second.sizes)
        answered(batcher)
        assert len(second.sizes) == ran
        batcher.drop()
        assert (second.closed, first.closed, batcher.instances) == (True, False, 1)
        traffic.result()
    assert batcher.grow(dict.fromkeys(TABLE, Doubler()))
    answered(batcher)


def test_one_that_rests_does_not_keep_the_others_from_ending(batcher_of):
    gate = threading.Event()
    first, second = Doubler(gate), Doubler()
    batcher = batcher_of(first)
    assert batcher.grow(dict.fromkeys(TABLE, second))
    batcher.activate(1)
    ticket = send(batcher, 1.0)
    ending = threading.Thread(target=batcher.close)
    ending.start()
    gate.set()
    ending.join(60)
    assert not ending.is_alive()
    assert values(ticket) == [2.0]
    assert (first.closed, second.closed) == (True, True)


def test_sessions_are_exchanged_between_two_batches(batcher_of):
    gate = threading.Event()
    first, other = Doubler(gate), Doubler()
    batcher = batcher_of(first)
    running = send(batcher, 1.0)
    assert first.entered.wait(60)
    assert batcher.exchange(1, other, quicker=4.0)
    gate.set()
    assert values(running) == [2.0]
    assert values(send(batcher, 3.0)) == [6.0]
    assert (other.sizes, first.sizes, first.closed) == ([1], [1], False)
    assert batcher.table.to_json() == {"1": 0.25, "2": 1.0, "4": 1.0, "8": 1.0}


def test_once_it_is_closed_nothing_joins(batcher_of):
    batcher = batcher_of(Doubler())
    batcher.close()
    late = Doubler()
    assert not batcher.grow(dict.fromkeys(TABLE, late))
    assert not batcher.exchange(1, late)
    assert not late.closed  # it is the caller's


def test_it_tells_once_that_there_is_more_to_do_than_is_done(batcher_of):
    batcher, told = batcher_of(Doubler()), []
    batcher.under_pressure(lambda: told.append(True))
    for _ in range(100):
        answered(batcher, 1)
    assert told == []
    for _ in range(10):
        answered(batcher, 60)
    assert told == [True]
    assert batcher.work().rows == 8 * 700


def test_a_rejection_tells_times_that_are_not_rounded_to_nothing(batcher_of):
    batcher = batcher_of(Doubler())
    with pytest.raises(OverloadedError, match=r"within 0\.\d*[1-9]\d* ms, about \d*\.?\d*[1-9]\d* ms are needed"):
        batcher.admit(1, timeout=5e-4)
