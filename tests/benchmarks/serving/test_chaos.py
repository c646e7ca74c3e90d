"""A short chaos: the whole is `make chaos`."""

import pytest

from tests.benchmarks.serving.chaos import leaks, run
from tests.benchmarks.serving.chaos_memory import run_memory


@pytest.mark.slow  # a minute of two busy cores
def test_nothing_is_lost():
    traffic, chaos, found = run(15, seed=1)
    assert not found, found
    assert sum(chaos.done.values()) >= 3
    assert {kind for kind, outcome in traffic.counted if outcome == "right"} == {"http", "classify", "grpc", "stream"}


@pytest.mark.slow
def test_shared_memory_of_clients_that_die():
    clients, found = run_memory(15, seed=2)
    assert not found, found
    assert sum(clients.done.values()) >= 3
    assert clients.counted["right"] > 0


def test_what_is_held_for_good_is_named():
    before = {"processes": 4, "descriptors": 100, "memory": 1 << 30}
    assert leaks(before, {"processes": 4, "descriptors": 120, "memory": 1 << 30}) == []
    assert leaks(before, {"processes": 5, "descriptors": 200, "memory": 1 << 30}) == [
        "processes: 4 became 5", "descriptors: 100 became 200"
    ]  # fmt: skip
