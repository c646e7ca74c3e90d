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
