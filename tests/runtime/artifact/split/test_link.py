import os
import socket
import threading

import numpy as np
import pytest

from headrace.runtime.artifact.split.link import Kind, Link


@pytest.fixture
def ends():
    first, second = map(Link, socket.socketpair())
    yield first, second
    first.close()
    second.close()


def test_messages_arrive_whole_and_in_order(ends):
    one, other = ends
    features = np.arange(6_000_000, dtype=np.float32).reshape(2000, 3000)
    sending = threading.Thread(target=lambda: [one.send(Kind.COMPUTE, 7, 5, features, b"end"), one.send(Kind.ALIVE)])
    sending.start()
    message = other.receive()
    assert message[:3] == (Kind.COMPUTE, 7, 5)
    assert message.data == features.tobytes() + b"end"
    assert other.receive() == (Kind.ALIVE, 0, 0, b"", ())
    sending.join()


def test_silence_is_limited(ends):
    one, other = ends
    other.limit_silence(0.05)
    one.send(Kind.ALIVE)
    assert other.receive().kind is Kind.ALIVE
    with pytest.raises(TimeoutError):
        other.receive()


def test_an_end_within_a_message_is_an_end():
    one, other = socket.socketpair()
    one.sendall(b"\x02" + bytes(16) + (9).to_bytes(8, "little") + b"some")
    one.close()
    assert Link(other).receive() is None


def test_closing_ends_whoever_waits(ends):
    one, _ = ends
    found = []
    waiting = threading.Thread(target=lambda: found.append(one.receive()))
    waiting.start()
    one.close()
    waiting.join(60)
    assert found == [None]


def test_descriptors_come_with_their_message(ends, tmp_path):
    one, other = ends
    before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        files = [(tmp_path / f"{number}-{each}").open("w+") for each in range(2)]
        one.send(Kind.ALIVE, 1)
        one.send(Kind.WIRE, number, 0, b"text", descriptors=[file.fileno() for file in files])
        one.send(Kind.ALIVE, 2)
        for file in files:
            file.close()
    for number in range(20):
        assert other.receive()[:2] == (Kind.ALIVE, 1)
        message = other.receive()
        assert (message.kind, message.serial, message.data, len(message.descriptors)) == (Kind.WIRE, number, b"text", 2)
        for each, descriptor in enumerate(message.descriptors):
            assert not os.get_inheritable(descriptor)
            os.write(descriptor, b"here")
            os.close(descriptor)
            assert (tmp_path / f"{number}-{each}").read_text() == "here"
        assert other.receive() == (Kind.ALIVE, 2, 0, b"", ())
    assert len(os.listdir("/proc/self/fd")) == before


def test_descriptors_of_half_a_message_are_closed():
    one, other = socket.socketpair()
    before = len(os.listdir("/proc/self/fd"))
    head = b"\x06" + bytes(16) + (9).to_bytes(8, "little")
    socket.send_fds(one, [head + b"some"], [0, 1])
    one.close()
    assert Link(other).receive() is None
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_one_who_waits_may_be_ended_by_another_thread(ends):
    one, _ = ends
    found = []
    waiting = threading.Thread(target=lambda: found.append(one.receive()))
    waiting.start()
    one.end()
    waiting.join(60)
    assert found == [None]
    one.close()
    one.end()
    with pytest.raises(OSError, match="descriptor"):
        one.send(Kind.ALIVE)
