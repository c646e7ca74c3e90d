"""Queue policies, priority levels and preferred sizes of a config, as Triton's documentation has them."""

import threading

import numpy as np
import pytest

from headrace.errors import ArtifactError, OverloadedError
from headrace.runtime.artifact.model_config import parse_config
from headrace.serving.batching.batcher import Batcher
from headrace.serving.batching.latency_table import LatencyTable
from headrace.serving.batching.policy import BatchPolicy, Dispatch, PreferredSizes, Wait
from headrace.serving.batching.queue_rules import QueueRules

TABLE = dict.fromkeys((1, 2, 4, 8), 0.001)


def rules_of(text: str = "", *, most: int = 8) -> QueueRules:
    return QueueRules.of(parse_config(f'name: "m" max_batch_size: {most} dynamic_batching {{ {text} }}'))


class Recorder:
    """Gives back its input once `gate` is open; `seen` are the first values of all rows, in the order in which they ran."""

    def __init__(self) -> None:
        self.gate, self.entered, self.seen = threading.Event(), threading.Event(), []

    def run(self, inputs):
        self.entered.set()
        assert self.gate.wait(60)
        self.seen += [inputs[0].ravel().tolist()]
        return [inputs[0].copy()]

    def close(self):
        self.gate.set()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def busy():
    """A batcher of these rules whose one instance is at work until its session's gate is opened, and its clock."""
    made = []

    def make(rules: QueueRules, policy: BatchPolicy | None = None):
        session, clock = Recorder(), Clock()
        batcher = Batcher([dict.fromkeys(TABLE, session)], LatencyTable(TABLE), rules=rules, policy=policy, clock=clock)
        made.append((batcher, session))
        send(batcher, 0.0, 0.0, 0.0, 0.0)
        assert session.entered.wait(60)
        return batcher, session, clock

    yield make
    for batcher, session in made:
        session.gate.set()
        batcher.close(drain=False)


def send(batcher, *values: float, requested: float | None = None, priority: int = 0):
    timeout, wait = batcher._rules.times(requested, priority, 30.0)
    ticket = batcher.admit(len(values), timeout=timeout, priority=priority, wait=wait)
    batcher.submit(ticket, [np.array(values, np.float32).reshape(-1, 1)])
    return ticket


def order_of(session, batcher) -> list[float]:
    session.gate.set()
    batcher.close()
    return [value for batch in session.seen[1:] for value in dict.fromkeys(batch)]


def test_without_rules_a_request_has_its_own_time_and_rank():
    rules = rules_of()
    assert rules == QueueRules()
    assert [rules.times(2.0, 7, 30.0), rules.times(None, 0, 30.0)] == [(2.0, 0.0), (30.0, 0.0)]
    assert (rules.level(7), rules.order(7, 5.0, 1)) == (7, (7, 5.0, 1))


@pytest.mark.parametrize(
    ("policy", "requested", "wait"),
    [
        ("default_timeout_microseconds: 5000", None, 0.005),
        ("default_timeout_microseconds: 5000", 0.001, 0.005),  # it may not be overridden
        ("default_timeout_microseconds: 5000 allow_timeout_override: true", 0.001, 0.001),
        ("default_timeout_microseconds: 5000 allow_timeout_override: true", 9.0, 0.005),  # only ever shortened
        ("allow_timeout_override: true", 0.001, 0.0),  # of no timeout there is nothing to shorten
    ],
)
def test_the_time_in_the_queue(policy, requested, wait):
    assert rules_of(f"default_queue_policy {{ {policy} }}").times(requested, 0, 30.0) == (30.0, wait)


def test_levels_of_priority_and_their_policies():
    rules = rules_of(
        "priority_levels: 3 default_priority_level: 2 default_queue_policy { max_queue_size: 9 } "
        "priority_queue_policy { key: 1 value { timeout_action: DELAY default_timeout_microseconds: 7 } }"
    )
    assert [rules.level(given) for given in (0, 1, 2, 3, 4)] == [2, 1, 2, 3, 2]
    assert [(rules.policy(level).delays, rules.policy(level).size) for level in (1, 3)] == [(True, 0), (False, 9)]
    assert [rules.times(None, given, 30.0) for given in (1, 99)] == [(30.0, 7e-6), (30.0, 0.0)]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("priority_levels: 2", "default_priority_level must be from 1"),
        ("priority_levels: 2 default_priority_level: 3", "default_priority_level must be from 1"),
        ("priority_queue_policy { key: 1 value { } }", "names level 1"),
        ("preferred_batch_size: [ 4, 9 ]", "must be <= max batch size 8, got 9"),
        ("preferred_batch_size: [ 0 ]", "must be positive"),
    ],
)
def test_what_triton_refuses_is_refused(text, wrong):
    with pytest.raises(ArtifactError, match=wrong):
        rules_of(text)


def test_the_queue_of_a_level_takes_so_many(busy):
    rules = rules_of(
        "priority_levels: 2 default_priority_level: 2 priority_queue_policy { key: 2 value { max_queue_size: 2 } }"
    )
    batcher, _, _ = busy(rules)
    tickets = [send(batcher, 1.0), send(batcher, 2.0)]
    with pytest.raises(OverloadedError, match="Exceeds maximum queue size: max_queue_size of model 'model' lets 2 wait"):
        send(batcher, 3.0)
    send(batcher, 4.0, priority=1)  # another level's queue
    tickets[0].future.cancel()
    send(batcher, 5.0)


def test_levels_are_served_in_order_and_each_in_the_order_of_arrival(busy):
    batcher, session, _ = busy(rules_of("priority_levels: 2 default_priority_level: 2"))
    for value, priority, requested in ((1.0, 0, None), (2.0, 0, 5.0), (3.0, 1, None), (4.0, 77, 1.0), (5.0, 1, 3.0)):
        send(batcher, value, priority=priority, requested=requested)
    assert order_of(session, batcher) == [3.0, 5.0, 1.0, 2.0, 4.0]


def test_what_waits_too_long_is_rejected_and_what_runs_is_not(busy):
    batcher, session, clock = busy(rules_of("default_queue_policy { default_timeout_microseconds: 1000000 }"))
    late = send(batcher, 1.0)
    clock.now += 0.9
    early = send(batcher, 2.0)
    clock.now += 0.2
    session.gate.set()
    assert early.future.result(60)[0].tolist() == [[2.0]]
    with pytest.raises(OverloadedError, match="Request timeout expired"):
        late.future.result(60)
    assert batcher.depth == 0


def test_what_is_delayed_goes_behind_its_own_level_only(busy):
    policy = "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1000000 }"
    batcher, session, clock = busy(rules_of(f"priority_levels: 2 default_priority_level: 1 {policy}"))
    send(batcher, 1.0)
    clock.now += 1.1
    send(batcher, 2.0)
    send(batcher, 3.0, priority=2)
    assert order_of(session, batcher) == [2.0, 1.0, 3.0]


class _Waiting:
    def __init__(self, rows, queued=0.0, deadline=30.0, priority=1):
        self.rows, self.queued, self.deadline, self.priority = rows, queued, deadline, priority


@pytest.mark.parametrize(
    ("rows", "now", "decision"),
    [
        ([1], 0.0, Wait(0.01)),
        ([1], 0.01, Dispatch(1, 1)),
        ([1, 1, 1, 1], 0.0, Dispatch(4, 4)),
        ([1, 1, 1, 1, 1], 0.0, Dispatch(4, 4)),  # the largest preferred size that there is
        ([3, 2], 0.0, Wait(0.01)),  # 6 can still be had
        ([4, 3], 0.0, Dispatch(1, 4)),
        ([3, 4], 0.0, Dispatch(2, 8)),  # nothing larger is preferred
        ([5, 5], 0.0, Dispatch(1, 8)),  # the two do not fit
        ([3, 3], 0.0, Dispatch(2, 8)),  # 6 rows, padded to the bucket
    ],
)
def test_preferred_sizes(rows, now, decision):
    policy = PreferredSizes(max_delay=0.01, preferred=(4, 6))
    assert policy.decide(now, [_Waiting(each) for each in rows], LatencyTable(TABLE), free=1) == decision


def test_a_batcher_forms_the_preferred_size(busy):
    batcher, session, clock = busy(rules_of("preferred_batch_size: 4"), PreferredSizes(max_delay=1.0, preferred=(4,)))
    tickets = [send(batcher, float(value)) for value in range(1, 8)]
    session.gate.set()
    assert [ticket.future.result(60)[0].item() for ticket in tickets[:4]] == [1.0, 2.0, 3.0, 4.0]
    assert not any(ticket.future.done() for ticket in tickets[4:])
    clock.now += 2
    send(batcher, 8.0)
    assert tickets[4].future.result(60)[0].item() == 5.0
    assert session.seen[1:] == [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]
