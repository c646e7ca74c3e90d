"""A capture is alone; modules answer side by side, and wait for one that waits."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.runtime.base.lock import CaptureLock

PATIENCE = 60  # seconds, after which a lock that is never given is an error


@pytest.fixture
def lock():
    return CaptureLock()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(3) as threads:
        yield threads


def test_any_number_is_beside_at_once(lock, pool):
    met = threading.Barrier(3)

    def beside(_):
        with lock.beside(), lock.beside():
            met.wait(PATIENCE)

    list(pool.map(beside, range(3)))


def test_one_alone_waits_for_those_beside_and_keeps_later_ones_out(lock, pool):
    order, alone_waits, go = [], threading.Event(), threading.Event()

    def beside_first():
        with lock.beside():
            alone_waits.set()
            go.wait(PATIENCE)
            with lock.beside():  # within its own it waits for nobody
                order.append("first")

    def alone():
        alone_waits.wait(PATIENCE)
        with lock:
            order.append("alone")
            with lock, lock.beside():
                order.append("within")

    def beside_later():
        while not lock._waiting:
            threading.Event().wait(0.001)
        later.append(True)
        with lock.beside():
            order.append("later")

    later: list[bool] = []
    done = [pool.submit(each) for each in (beside_first, alone, beside_later)]
    while not later:
        threading.Event().wait(0.001)
    assert order == []
    go.set()
    for each in done:
        each.result(PATIENCE)
    assert order == ["first", "alone", "within", "later"]


def test_two_that_are_beside_may_both_ask_to_be_alone(lock, pool):
    """As two models whose `forward` calls a graph that is then captured."""
    met, inside = threading.Barrier(2), []

    def nested(name):
        with lock.beside():
            met.wait(PATIENCE)
            with lock:
                inside.append(name)
                assert inside == [name]
                inside.remove(name)
            with lock.beside():
                return name

    assert list(pool.map(nested, "ab")) == ["a", "b"]
    with lock:
        pass


def test_an_error_within_leaves_it_free(lock, pool):
    for way in (lock, lock.beside()):
        with pytest.raises(KeyError), way:
            raise KeyError

    def alone():
        with lock:
            return True

    assert pool.submit(alone).result(PATIENCE)
