"""Work of many threads done in batches; what is tested is that everybody gets their own, whatever happens beside them."""

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.serving.images.gather import Gatherer


class Doubles:
    """The work: each number twice; negative ones fail their whole batch. A batch is done when the gate is open."""

    def __init__(self, *, gate=True):
        self.gate = threading.Event()
        if gate:
            self.gate.set()
        self.batches = []
        self.running = 0

    def __call__(self, numbers):
        self.running += 1
        assert self.running == 1, "one batch at a time"
        try:
            self.batches.append(len(numbers))
            assert self.gate.wait(60)
            if any(number < 0 for number in numbers):
                raise ValueError("negative")
            return [2 * number for number in numbers]
        finally:
            self.running -= 1


def test_one_thread_gets_its_results_in_order():
    work = Doubles()
    gather = Gatherer(work, 4)
    assert gather([]) == []
    assert gather([3]) == [6]
    assert gather(range(10)) == [2 * number for number in range(10)]
    assert work.batches == [1, 4, 4, 2]


def come(gather, work, count):
    """Wait until so many are under way or wait."""
    end = time.monotonic() + 60
    while sum(work.batches) + len(gather._waiting) < count:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_what_comes_while_a_batch_is_done_makes_the_next():
    work = Doubles(gate=False)
    gather = Gatherer(work, 16)
    with ThreadPoolExecutor(40) as pool:
        found = [pool.submit(gather, [number]) for number in range(40)]
        come(gather, work, 40)
        work.gate.set()
        assert [one.result() for one in found] == [[2 * number] for number in range(40)]
    assert sum(work.batches) == 40
    assert max(work.batches) <= 16
    assert len(work.batches) <= 4, "the first, and three of what came meanwhile"


def test_an_error_is_that_of_its_batch_alone():
    work = Doubles(gate=False)
    gather = Gatherer(work, 2)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(gather, [1])
        come(gather, work, 1)
        while not work.batches:  # it is under way; these wait in their order
            time.sleep(0.001)
        pair = []
        for number, numbers in enumerate(([-1], [2], [3], [4])):
            pair.append(pool.submit(gather, numbers))
            come(gather, work, 2 + number)
        work.gate.set()
        assert first.result() == [2]
        for wrong in pair[:2]:
            with pytest.raises(ValueError, match="negative"):
                wrong.result()
        assert [right.result() for right in pair[2:]] == [[6], [8]]
    assert gather([5]) == [10]


def test_who_asks_for_more_than_a_batch_leads_to_the_end_after_an_error():
    gather = Gatherer(Doubles(), 2)
    with pytest.raises(ValueError, match="negative"):
        gather([-1, 0, 1, 2, 3])
    assert gather([1, 2, 3]) == [2, 4, 6]


def test_many_threads_with_errors_among_them():
    work = Doubles()
    gather = Gatherer(work, 8)
    ends = []

    def ask(thread):
        for turn in range(200):
            numbers = [thread * 1000 + turn + step for step in range(1 + (thread + turn) % 5)]
            if (thread + turn) % 37 == 0:
                numbers[-1] = -1
            with contextlib.suppress(ValueError):
                assert gather(numbers) == [2 * number for number in numbers]
        ends.append(thread)

    threads = [threading.Thread(target=ask, args=(thread,)) for thread in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(ends) == list(range(12))
    assert max(work.batches) <= 8
