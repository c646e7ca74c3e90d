import os
import socket
import threading
import time

import numpy as np
import pytest

from headrace.errors import BackendError
from headrace.runtime.artifact.pipeline import channel
from headrace.runtime.artifact.pipeline.channel import SLOTS, Inlet, LinkLostError, Outlet
from headrace.runtime.artifact.split.link import Link


@pytest.fixture
def hop():
    first, second = map(Link, socket.socketpair())
    yield Outlet(first), Inlet(second)
    first.close()
    second.close()


VALUES = [
    [np.arange(6, dtype=np.float32).reshape(2, 3)],
    [np.float64(7.5) * np.ones(()), np.array([True, False]), np.zeros((0, 4), np.float32)],
    [np.arange(12, dtype=np.int64).reshape(3, 4).T, np.arange(5, dtype=np.uint8), np.float16([1.5])],
    [np.zeros((0, 9), np.int32)],
    [],
]


@pytest.mark.parametrize("values", VALUES)
def test_values_arrive_as_they_were_sent(hop, values):
    outlet, inlet = hop
    outlet.send(8, values)
    arrived = inlet.receive()
    assert arrived.serial == 8
    assert [(value.dtype, value.shape) for value in arrived.values] == [(value.dtype, value.shape) for value in values]
    assert all(np.array_equal(own, value) for own, value in zip(arrived.values, values, strict=True))


def test_a_slot_grows_and_stays(hop):
    outlet, inlet = hop
    before = len(os.listdir("/proc/self/fd"))
    for rows in (1, 5, 3000, 2, 4000, 1, 1, 1):
        value = np.random.default_rng(rows).random((rows, 100))
        outlet.send(rows, [value])
        arrived = inlet.receive()
        assert np.array_equal(arrived.values[0], value)
        inlet.give_back(arrived.slot)
    assert len(os.listdir("/proc/self/fd")) <= before + 2 * SLOTS, "descriptors are not kept, and mappings are those of slots"
    assert max(map(len, outlet._memory.values())) >= 4000 * 100 * 8


def test_no_more_is_sent_than_there_are_credits(hop):
    outlet, inlet = hop
    sent = []

    def send():
        for number in range(SLOTS + 3):
            outlet.send(number, [np.full((4,), number)])
            sent.append(number)

    sending = threading.Thread(target=send)
    sending.start()
    first = inlet.receive()
    time.sleep(0.1)
    assert len(sent) == SLOTS
    held = [first, *(inlet.receive() for _ in range(SLOTS - 1))]
    assert len({arrived.slot for arrived in held}) == SLOTS
    for number, arrived in enumerate(held):
        assert (arrived.values[0] == number).all(), "what is held is not written over"
    for number in range(3):
        inlet.give_back(held.pop(0).slot)
        held.append(inlet.receive())
        assert (held[-1].values[0] == SLOTS + number).all()
    sending.join(60)
    assert not sending.is_alive()


def test_many_messages_never_sleep_past_a_credit(hop):
    """A wakeup that is lost would end this in the time limit of all tests."""
    outlet, inlet = hop

    def send():
        for number in range(5000):
            outlet.send(number, [np.int64([number])])

    sending = threading.Thread(target=send)
    sending.start()
    for number in range(5000):
        arrived = inlet.receive()
        assert (arrived.serial, int(arrived.values[0][0])) == (number, number)
        inlet.give_back(arrived.slot)
    sending.join()


def test_whoever_waits_for_a_credit_hears_of_the_end(hop):
    outlet, inlet = hop
    for number in range(SLOTS):
        outlet.send(number, [np.zeros(3)])
    ended = []

    def wait():
        try:
            outlet.wait()
        except LinkLostError:
            ended.append(True)

    waiting = threading.Thread(target=wait)
    waiting.start()
    inlet.link.end()
    waiting.join(60)
    assert ended == [True]
    with pytest.raises(LinkLostError):
        Inlet(outlet.link).receive()


def test_sending_to_nobody_is_an_end(hop):
    outlet, inlet = hop
    inlet.link.close()
    with pytest.raises(LinkLostError):
        outlet.send(1, [np.zeros(3)])
    with pytest.raises(LinkLostError):
        inlet.give_back(0)


def test_what_cannot_lie_in_memory_is_rejected_and_nothing_else(hop):
    outlet, inlet = hop
    with pytest.raises(BackendError, match="object"):
        outlet.send(1, [np.array(["a", None], object)])
    outlet.send(2, [np.zeros(3)])
    assert inlet.receive().serial == 2


def test_without_memory_a_batch_fails_and_the_hop_goes_on(hop, monkeypatch):
    outlet, inlet = hop

    def none_left(size):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(channel, "create_memory", none_left)
    for _ in range(SLOTS + 1):
        with pytest.raises(BackendError, match="no shared memory of 832 bytes"):
            outlet.send(1, [np.zeros(100)])
    monkeypatch.undo()
    outlet.send(2, [np.zeros(100)])
    assert inlet.receive().serial == 2
