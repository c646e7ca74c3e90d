"""Several devices are several openers; here each gives sessions that know which one they are of, and how they share it."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from headrace.errors import BackendError
from headrace.serving.batching.batcher import Batcher
from headrace.serving.models import warmup
from headrace.serving.models.warmup import warm_up
from headrace.specs import Signature, TensorSpec

SIGNATURE = Signature(
    inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3)),),
    outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", 3)),),
)
COPYING, COMPUTING = 0.004, 0.006  # seconds


class Clock:
    """Time that passes when all threads that are at work sleep, and then at once: a real machine may have other work."""

    def __init__(self):
        self.now, self._at_work, self._asleep = 0.0, 1, []
        self._changed = threading.Condition()

    def sleep_until(self, moment):
        with self._changed:
            until = [moment]
            self._asleep.append(until)
            self._pass()
            assert self._changed.wait_for(lambda: not any(until is other for other in self._asleep), 60)

    def together(self, work, items):
        """What `work` gives for each item, on a thread each; the caller waits meanwhile."""
        results = [None] * len(items)

        def one(number):
            results[number] = work(items[number])
            with self._changed:
                self._at_work -= 1
                self._pass()

        self._at_work = len(items)
        threads = [threading.Thread(target=one, args=(number,)) for number in range(len(items))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._at_work = 1
        return results

    def _pass(self):
        if self._asleep and len(self._asleep) == self._at_work:
            first = min(self._asleep)
            self.now = max(self.now, first[0])
            self._asleep = [other for other in self._asleep if other is not first]
            self._changed.notify_all()


@pytest.fixture
def clock(monkeypatch):
    """Warm-up's own, as are its threads."""
    made = Clock()

    class Threads:
        def __init__(self, _):
            self.map = made.together

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(warmup, "time", SimpleNamespace(perf_counter=lambda: made.now))
    monkeypatch.setattr(warmup, "ThreadPoolExecutor", Threads)
    return made


class Device:
    """Computes for one session at a time; copies go on meanwhile, unless it is `busy` with them, too.

    It takes its time by a `clock`, or none at all. `together` holds every run back until so many are under way.
    """

    def __init__(self, ordinal, log, *, overlaps=True, fails=False, clock=None):
        self.ordinal, self.log, self.overlaps, self.fails, self.clock = ordinal, log, overlaps, fails, clock
        self.lock, self.free_at = threading.Lock(), 0.0
        self.together = None

    def open(self):
        session = Session(self)
        self.log.append(self.ordinal)
        return {2: session, 8: session}


class Session:
    def __init__(self, device):
        self.device = device
        self.closed = False
        self.runs = 0

    def run(self, inputs):
        if self.device.fails:
            raise RuntimeError("out of memory")
        self.runs += 1
        if (clock := self.device.clock) is not None:
            if self.device.overlaps:
                clock.sleep_until(clock.now + COPYING)
            taken = COMPUTING if self.device.overlaps else COPYING + COMPUTING
            with self.device.lock:
                done = self.device.free_at = max(clock.now, self.device.free_at) + taken
            clock.sleep_until(done)
        if self.device.together is not None:
            self.device.together.wait(60)
        return [inputs[0] * 2 + self.device.ordinal]

    def close(self):
        assert not self.closed
        self.closed = True


def devices(count, **options):
    log = []
    made = [Device(ordinal, log, **options) for ordinal in range(count)]
    return made, log


def hold_until_together(made, count):
    """From now on runs wait for one another, so many at a time."""
    barrier = threading.Barrier(count)
    for device in made:
        device.together = barrier


def opened_on(instances):
    return [instance[8].device.ordinal for instance in instances]


def test_every_device_has_the_instances_that_are_asked_for_first_ones_first():
    made, _ = devices(3)
    instances, table = warm_up([device.open for device in made], SIGNATURE, count=2)
    assert opened_on(instances) == [0, 1, 2, 0, 1, 2]
    assert all(instance[2].runs >= 2 for instance in instances)  # each bucket of each
    assert table.buckets == (2, 8)


def test_two_in_flight_on_every_device_where_copies_overlap_computing(clock):
    made, log = devices(2, clock=clock)
    instances, _ = warm_up([device.open for device in made], SIGNATURE, count=None)
    assert opened_on(instances) == [0, 1, 0, 1]
    assert log == [0, 1, 0, 1]


def test_one_on_every_device_where_a_second_gains_nothing(clock):
    made, log = devices(2, overlaps=False, clock=clock)
    instances, _ = warm_up([device.open for device in made], SIGNATURE, count=None)
    assert opened_on(instances) == [0, 1]
    assert log == [0, 1, 0]  # it was tried on the first, and closed


@pytest.mark.parametrize(
    "slow", [range(2, 4), range(3, 5), range(4, 30)], ids=["the first round", "between two", "all but the first round"]
)
def test_a_slow_moment_spoils_no_size_against_the_others(clock, slow):
    """Runs of batches of 2 and 8 take 2 ms and 8, and a hundred times that while the machine is slow."""
    runs = iter(range(1000))

    class Timed(Session):
        def run(self, inputs):
            clock.sleep_until(clock.now + len(inputs[0]) / 1000 * (100 if next(runs) in slow else 1))
            return [inputs[0] * 2]

    session = Timed(Device(0, []))
    _, table = warm_up([lambda: {2: session, 8: session}], SIGNATURE, count=1)
    assert [table.seconds(bucket) for bucket in (2, 8)] == pytest.approx([0.002, 0.008])


def test_a_device_that_fails_leaves_nothing_open():
    made, _ = devices(2)
    made[1].fails = True
    opened = []

    def remembering(device):
        def opener():
            opened.append(device.open())
            return opened[-1]

        return opener

    with pytest.raises(BackendError, match="warm-up with a batch of 2 failed: out of memory"):
        warm_up([remembering(device) for device in made], SIGNATURE, count=1)
    assert [instance[8].closed for instance in opened] == [True, True]


def test_batches_are_spread_over_the_devices():
    made, _ = devices(2)
    instances, table = warm_up([device.open for device in made], SIGNATURE, count=1)
    hold_until_together(made, 2)
    batcher = Batcher(instances, table)
    try:
        tickets = [batcher.admit(8, timeout=60) for _ in range(12)]
        for number, ticket in enumerate(tickets):
            batcher.submit(ticket, [np.full((8, 3), number, np.float32)])
        answers = [ticket.future.result(timeout=60)[0] for ticket in tickets]
    finally:
        batcher.close()
    by = [int(answer[0, 0]) - 2 * number for number, answer in enumerate(answers)]
    assert all((answer == 2 * number + by[number]).all() for number, answer in enumerate(answers))
    assert set(by) == {0, 1}


def test_a_batch_goes_to_a_device_that_computes_nothing():
    """Whichever instance is woken: with two batches under way, no device has both."""
    made, _ = devices(2)
    instances, table = warm_up([device.open for device in made], SIGNATURE, count=2)
    batcher = Batcher(instances, table, devices=[0, 1, 0, 1])
    pairs = []
    hold_until_together(made, 2)
    try:
        for _ in range(40):
            while batcher.load()[2]:  # an answer is out a moment before its instance counts as idle
                time.sleep(0.001)
            tickets = [batcher.admit(8, timeout=60) for _ in range(2)]
            for ticket in tickets:
                batcher.submit(ticket, [np.zeros((8, 3), np.float32)])
            pairs.append({int(ticket.future.result(timeout=60)[0][0, 0]) for ticket in tickets})
        while batcher.load()[2]:
            time.sleep(0.001)
        # More than there are devices: the second instances take the rest, or no four would ever be under way.
        hold_until_together(made, 4)
        tickets = [batcher.admit(8, timeout=60) for _ in range(40)]
        for ticket in tickets:
            batcher.submit(ticket, [np.zeros((8, 3), np.float32)])
        for ticket in tickets:
            ticket.future.result(timeout=60)
    finally:
        batcher.close()
    assert pairs == [{0, 1}] * 40


def test_every_instance_ends_when_the_last_request_was_still_on_its_way():
    made, _ = devices(2)
    instances, table = warm_up([device.open for device in made], SIGNATURE, count=2)
    batcher = Batcher(instances, table, devices=[0, 1, 0, 1])
    ticket = batcher.admit(8, timeout=60)
    ending = threading.Thread(target=batcher.close, daemon=True)
    ending.start()
    time.sleep(0.1)  # all instances sleep until it comes
    batcher.submit(ticket, [np.zeros((8, 3), np.float32)])
    ending.join(timeout=20)
    assert not ending.is_alive()
    assert ticket.future.done()


def test_the_smallest_batch_is_answered_before_the_others_were_run():
    """By the session that is measured meanwhile, one call at a time, and which the early batcher leaves open."""
    made, log = devices(1, overlaps=False)
    seen = {}

    def early(instance, table):
        seen["runs"], seen["log"] = instance[8].run.__self__._session.runs, list(log)
        seen["batcher"] = Batcher([instance], table)
        seen["tickets"] = [seen["batcher"].admit(2, timeout=60) for _ in range(3)]
        for number, ticket in enumerate(seen["tickets"]):
            seen["batcher"].submit(ticket, [np.full((2, 3), number, np.float32)])

    instances, table = warm_up([made[0].open], SIGNATURE, count=None, early=early)
    seen["batcher"].close()
    assert [ticket.future.result(timeout=60)[0][0, 0] for ticket in seen["tickets"]] == [0, 2, 4]
    assert (seen["runs"], seen["log"]) == (2, [0])  # both of the smallest bucket, and before a second instance was tried
    assert instances[0][2].run([np.zeros((2, 3), np.float32)])[0].shape == (2, 3)  # open still
    for instance in instances:
        for session in {id(session): session for session in instance.values()}.values():
            session.close()
    assert table.buckets == (2, 8)


def test_an_early_answer_does_not_keep_what_fails_later():
    class Small(Session):
        def run(self, inputs):
            if len(inputs[0]) > 2:
                raise RuntimeError("too many rows")
            return super().run(inputs)

    session, called = Small(Device(0, [])), []
    with pytest.raises(BackendError, match="warm-up with a batch of 8 failed: too many rows"):
        warm_up([lambda: {2: session, 8: session}], SIGNATURE, count=1, early=lambda *given: called.append(given))
    assert (len(called), session.closed) == (1, True)
