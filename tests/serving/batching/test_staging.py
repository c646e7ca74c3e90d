"""Rows that are made side by side: the ring alone, and under a batcher with clients that come, go and give up."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

from headrace.errors import OverloadedError, RequestError
from headrace.serving.batching.batcher import Batcher
from headrace.serving.batching.latency_table import LatencyTable
from headrace.serving.batching.staging import Staging


@dataclass(eq=False)
class Item:
    rows: int
    place: int | None


def staging(largest: int = 4) -> Staging:
    return Staging([((2, 3), np.dtype(np.float32)), ((), np.dtype(np.int64))], largest)


def test_rows_lie_side_by_side():
    ring = staging()
    items = [Item(rows, ring.take(rows)) for rows in (1, 2, 1)]
    for number, item in enumerate(items):
        for view in ring.views(item.place, item.rows):
            view[...] = number
    images, ids = ring.batch(random.sample(items, 3), 4)
    assert images.shape == (4, 2, 3)
    assert images.flags.c_contiguous
    assert images[:, 0, 0].tolist() == ids.tolist() == [0, 1, 1, 2]
    assert ring.owns(images[1:2])
    assert not ring.owns(images.copy())


def test_items_are_put_in_the_order_of_their_places():
    ring = staging()
    items = [Item(1, ring.take(1)) for _ in range(4)]
    mixed = [items[2], items[0], items[3], items[1]]
    assert ring.batch(mixed, 4) is not None
    assert mixed == items


def test_what_does_not_fill_a_batch_is_left_to_a_copy():
    ring = staging()
    first, second, third = (Item(1, ring.take(1)) for _ in range(3))
    assert ring.batch([first, third], 2) is None  # a gap
    assert ring.batch([first, second, third], 4) is None  # padding is needed, and what follows is another's
    assert ring.batch([first, Item(1, None)], 2) is None
    assert ring.batch([second, third], 2) is not None


def test_the_ring_goes_round_and_never_gives_a_row_twice():
    ring, drawn, held = staging(), random.Random(0), []
    taken = refused = 0
    for _ in range(3000):
        if held and drawn.random() < 0.5:
            ring.give(*held.pop(drawn.randrange(len(held))))
        rows = drawn.randint(1, 4)
        start = ring.take(rows)
        if start is None:
            refused += 1
            continue
        taken += 1
        assert not any(start < other + count and other < start + rows for other, count in held)
        assert start + rows <= 16
        held.append((start, rows))
        if drawn.random() < 0.3:
            ring.turn()
    assert taken > 100
    assert refused > 100


def test_batches_stay_whole_over_many_turns():
    """One batch runs while the next is made, as under steady load: none has to be copied."""
    ring = staging()
    running: list[Item] = []
    for _ in range(100):
        coming = [Item(1, ring.take(1)) for _ in range(4)]
        assert ring.batch(coming, 4) is not None
        ring.turn()
        for item in running:
            ring.give(item.place, 1)
        running = coming


def test_the_largest_batch_of_a_gpu_has_its_ring():
    """Four batches of 128 images as floats are 308 MB, more than it may take: it has as many rows as fit."""
    image = (3, 224, 224)
    ring = Staging([(image, np.dtype(np.float32))], 128)
    items = [Item(1, ring.take(1)) for _ in range(256)]
    assert ring.batch(items[:128], 128) is not None
    assert ring.batch(items[128:], 128) is not None
    assert sum(buffer.nbytes for buffer in ring._buffers) <= 256 << 20


def test_memory_beyond_reason_is_not_taken():
    ring = Staging([((1 << 20,), np.dtype(np.float32))], 64)
    assert ring.take(1) is None
    ring.turn()


TABLE = {1: 0.001, 2: 0.001, 4: 0.001, 8: 0.001}
IMAGES = [((5,), np.dtype(np.float32))]


class Doubler:
    """Says how much of what it got lay in the staging."""

    def __init__(self, ring: Staging, gate: threading.Event | None = None) -> None:
        self.ring, self.gate = ring, gate
        self.entered = threading.Event()
        self.staged = self.copied = 0

    def run(self, inputs):
        self.entered.set()
        assert self.gate is None or self.gate.wait(60)
        self.staged += self.ring.owns(inputs[0])
        self.copied += not self.ring.owns(inputs[0])
        return [inputs[0] * 2]

    def close(self):
        pass


@pytest.fixture
def batcher_of():
    made = []

    def make(session, ring, **options) -> Batcher:
        sessions = [dict.fromkeys(TABLE, session)]
        made.append(Batcher(sessions, LatencyTable(TABLE), staging=ring, **options))
        return made[-1]

    yield make
    for batcher in made:
        batcher.close(drain=False)


def write(batcher, ticket, value: float) -> None:
    with batcher.slot(ticket) as slot:
        rows = np.empty((ticket.rows, 5), np.float32) if slot is None else slot[0]
        rows[...] = value
    batcher.submit(ticket, [rows])


def test_a_batch_is_run_where_it_was_written(batcher_of):
    gate, ring = threading.Event(), Staging(IMAGES, 8)
    session = Doubler(ring, gate)
    batcher = batcher_of(session, ring)
    tickets = [batcher.admit(1, timeout=60) for _ in range(9)]
    write(batcher, tickets[0], 0)
    assert session.entered.wait(60)
    for number, ticket in enumerate(tickets[1:], 1):
        write(batcher, ticket, number)
    gate.set()
    assert [ticket.future.result(60)[0][0, 0] for ticket in tickets] == [2.0 * number for number in range(9)]
    assert (session.staged, session.copied) == (2, 0)


def test_a_place_that_is_still_written_is_nobody_elses(batcher_of):
    ring = Staging(IMAGES, 8)
    batcher = batcher_of(Doubler(ring), ring)
    slow = batcher.admit(8, timeout=60)
    with batcher.slot(slow) as slot:
        batcher.reject(slow, OverloadedError("given up"))
        for _ in range(40):
            other = batcher.admit(8, timeout=60)
            write(batcher, other, 1)
            assert not np.may_share_memory(other.future.result(60)[0], slot[0])
        slot[0][...] = 99
        other = batcher.admit(8, timeout=60)
        write(batcher, other, 3)
        assert (other.future.result(60)[0] == 6).all()
    assert slow.place is None
    with batcher.slot(slow) as slot:
        assert slot is None
    for _ in range(8):  # all of the ring is free again
        write(batcher, other := batcher.admit(8, timeout=60), 1)
        assert other.future.result(60)[0][0, 0] == 2


def test_a_model_that_hands_its_input_through_gives_a_copy(batcher_of):
    class PassThrough(Doubler):
        def run(self, inputs):
            return [inputs[0]]

    ring = Staging(IMAGES, 8)
    batcher = batcher_of(PassThrough(ring), ring)
    write(batcher, ticket := batcher.admit(8, timeout=60), 7)
    assert not ring.owns(ticket.future.result(60)[0])


def test_every_answer_is_its_own_whoever_gives_up(batcher_of):
    ring = Staging(IMAGES, 8)
    session = Doubler(ring)
    batcher = batcher_of(session, ring)

    def client(seed: int) -> None:
        drawn = random.Random(seed)
        for number in range(40):
            value = float(seed * 1000 + number)
            ticket = batcher.admit(drawn.randint(1, 8), timeout=30, priority=drawn.choice((0, 0, 1, 200)))
            if drawn.random() < 0.1:
                ticket.future.cancel()
            if drawn.random() < 0.1:  # tensors, which lie elsewhere
                batcher.submit(ticket, [np.full((ticket.rows, 5), value, np.float32)])
            else:
                write(batcher, ticket, value)
            if drawn.random() < 0.1:
                batcher.expire(ticket)
            if drawn.random() < 0.1:
                ticket.future.cancel()
            if ticket.future.cancelled():
                continue
            try:
                (answer,) = ticket.future.result(30)
            except RequestError:
                continue
            assert answer.shape == (ticket.rows, 5)
            assert (answer == 2 * value).all()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(client, range(16)))
    batcher.close()
    assert session.staged > 10
    assert batcher.depth == 0
    assert not any(ring._taken)
