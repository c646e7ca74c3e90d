"""Instances of several processes in a batcher; with real processes: tests/serving/models/test_several_sets_of_ranks.py."""

import threading
import time

import numpy as np
import pytest

from headrace.errors import OverloadedError, RankLostError
from headrace.serving.batching.batcher import Batcher
from headrace.serving.batching.latency_table import LatencyTable
from headrace.serving.batching.presence import Presence, processes, trouble

TABLE = {1: 0.001, 2: 0.001, 4: 0.001}


class Ranks:
    trouble = ""


class Session:
    """Doubles its input; `lose` has it lose what it computes, and everything after that until it is `whole` again."""

    def __init__(self):
        self.ranks, self.seen = Ranks(), []
        self.waits, self.entered, self.go_on = False, threading.Event(), threading.Event()

    def run(self, inputs):
        self.seen.append(inputs[0].copy())
        if self.waits:
            self.entered.set()
            assert self.go_on.wait(60)
        if self.ranks.trouble:
            raise RankLostError(self.ranks.trouble)
        return [inputs[0] * 2]

    def lose(self, why="rank 1 of 2 has ended"):
        self.ranks.trouble = why
        self.waits = False
        self.go_on.set()

    def close(self):
        pass


class Alone:
    run = close = None


@pytest.fixture
def two():
    """A batcher of two instances, and their sessions."""
    sessions = [Session(), Session()]
    batcher = Batcher([dict.fromkeys(TABLE, session) for session in sessions], LatencyTable(TABLE))
    yield batcher, *sessions
    for session in sessions:
        session.go_on.set()
    batcher.close(drain=False)


def send(batcher, value):
    ticket = batcher.admit(1, timeout=60)
    batcher.submit(ticket, [np.full((1, 3), value)])
    return ticket.future


def first_and_other(*sessions):
    """The session that computes, and the one that does not; `waits` of both has been set."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for session in sessions:
            if session.entered.is_set():
                return session, next(other for other in sessions if other is not session)
        time.sleep(0.001)
    raise AssertionError("no session computes")


def test_instances_of_one_process_are_all_there():
    instances = [{1: Alone()}, {1: Alone()}]
    assert processes(instances[0]) == []
    assert trouble(instances[0]) == ""
    assert Presence(instances).able(2) == [0, 1]
    assert Presence([]).able(0) == []


def test_those_that_lack_a_process():
    sessions = [Session(), Session(), Session()]
    presence = Presence([{1: session, 2: session} for session in sessions])
    assert presence.able(3) == [0, 1, 2]
    sessions[1].lose()
    assert presence.able(3) == [0, 2]
    assert presence.able(2) == [0]
    assert presence.others(1, 3)
    assert not presence.others(0, 2)
    for session in sessions:
        session.lose()
    assert presence.able(3) == [0, 1, 2]  # so that requests are told why
    assert not presence.others(0, 3)


def test_one_that_lacks_a_process_is_given_nothing(two):
    batcher, lost, other = two
    lost.lose()
    batcher.look_again()
    assert [send(batcher, value).result(60)[0][0, 0] for value in range(20)] == [2 * value for value in range(20)]
    assert lost.seen == []
    lost.ranks.trouble = ""
    other.lose()
    batcher.look_again()
    assert send(batcher, 7).result(60)[0][0, 0] == 14
    assert len(lost.seen) == 1


def test_what_was_lost_is_computed_by_the_other(two):
    batcher, *sessions = two
    for session in sessions:
        session.waits = True
    answer = send(batcher, 3)
    computing, other = first_and_other(*sessions)
    other.waits = False
    computing.lose()
    assert answer.result(60)[0][0, 0] == 6
    assert len(computing.seen) == len(other.seen) == 1
    assert batcher.load() == (0, 0, 0)
    assert batcher.depth == 0


def test_a_request_is_computed_again_once(two):
    """One that ends whoever computes it would end one set after another."""
    batcher, *sessions = two
    for session in sessions:
        session.waits = True
    answer = send(batcher, 3)
    computing, other = first_and_other(*sessions)
    computing.lose()
    assert other.entered.wait(60)
    computing.ranks.trouble = ""  # it is back
    batcher.look_again()
    other.lose("rank 0 of 2 has ended")
    with pytest.raises(OverloadedError, match="rank 0 of 2 has ended") as error:
        answer.result(60)
    assert error.value.retry_after
    assert send(batcher, 5).result(60)[0][0, 0] == 10


def test_all_lack_one(two):
    batcher, *sessions = two
    for session in sessions:
        session.lose()
    batcher.look_again()
    with pytest.raises(OverloadedError, match="rank 1 of 2 has ended"):
        send(batcher, 1).result(60)
    sessions[1].ranks.trouble = ""
    batcher.look_again()
    assert send(batcher, 1).result(60)[0][0, 0] == 2


def test_a_request_that_waits_again_is_given_up_at_its_deadline(two):
    batcher, *sessions = two
    for session in sessions:
        session.waits = True
    ticket = batcher.admit(1, timeout=60)
    batcher.submit(ticket, [np.ones((1, 3))])
    computing, other = first_and_other(*sessions)
    occupying = send(batcher, 2)
    assert other.entered.wait(60)
    computing.lose()
    end = time.monotonic() + 60
    while not ticket.again and time.monotonic() < end:
        time.sleep(0.001)
    batcher.expire(ticket)
    with pytest.raises(OverloadedError, match="deadline passed"):
        ticket.future.result(60)
    other.waits = False
    other.go_on.set()
    assert occupying.result(60)[0][0, 0] == 4


def test_closing_leaves_nobody_waiting(two):
    batcher, *sessions = two
    sessions[0].lose()
    batcher.look_again()
    sessions[1].waits = True
    answers = [send(batcher, value) for value in range(3)]
    assert sessions[1].entered.wait(60)
    closing = threading.Thread(target=batcher.close)
    closing.start()
    sessions[1].waits = False
    sessions[1].go_on.set()
    closing.join(60)
    assert not closing.is_alive()
    assert [answer.result(0)[0][0, 0] for answer in answers] == [0, 2, 4]
