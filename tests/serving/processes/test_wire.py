"""The bytes between processes: what nobody sends is rejected, and named."""

import os
import socket
import struct

import pytest

from headrace.serving.processes import messages, wire
from headrace.serving.processes.control import ControlLink


@pytest.mark.parametrize("data", [b"\xff\0\0\0\0", b"\0\1\0\0\0", struct.pack("<BI", 9, 1 << 31)], ids=["kind", "text", "size"])
def test_what_is_no_record_is_refused(data):
    with pytest.raises(wire.WireError):
        wire.Reader().feed(data + bytes(100))


def number_of(kind):
    return next(number for number, form in enumerate(wire._KINDS) if form.kind is kind)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (messages.Failed, struct.pack("<QHI", 1, 400, 0) + b"\xff\xfe"),
        (messages.Failed, b"short"),
        (messages.LoadModel, b"{"),
        (messages.LoadModel, b"[1, 2]"),
        (messages.LoadModel, b'{"question": 1}'),
        (messages.LoadModel, b"[" * 100_000),
        (messages.StartEngine, b'{"config": {"models": 5}}'),
        (messages.Catalog, b'{"serial": 1, "loaded": true, "ready": true, "index": [], "models": [{"kind": "other"}]}'),
        (messages.Statistics, b'{"question": 1, "counts": {"five": {}}}'),
    ],
)
def test_a_message_that_cannot_be_read_is_named(kind, body):
    with pytest.raises(wire.WireError, match=f"a {kind.__name__} message of {len(body)} bytes that cannot be read"):
        wire.Reader().feed(struct.pack("<BI", number_of(kind), len(body)) + body)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b""])
def test_one_message_is_one_message(change):
    data = wire.encode(messages.Stop())
    assert wire.decode(data) == messages.Stop()
    with pytest.raises(wire.WireError, match="cut off"):
        wire.decode(change(data))


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (messages.Failed(1, 400, 0, "bad \udcff name"), messages.Failed(1, 400, 0, "bad ? name")),
        (messages.LoadModel(1, "\ud800", "\udcff"), messages.LoadModel(1, "?", "?")),
    ],
)
def test_text_that_cannot_be_encoded_is_sent_all_the_same(sent, expected):
    assert wire.Reader().feed(wire.encode(sent)) == [expected]


def test_descriptors_of_what_is_no_message_are_closed():
    link, theirs = ControlLink.pair()
    other = ControlLink(theirs)
    inside, outside = os.pipe()
    link.send(messages.Connect(), (inside,))
    message, (received,) = other.receive()
    assert message == messages.Connect()
    os.close(received)
    before = len(os.listdir("/proc/self/fd"))
    socket.send_fds(link._socket, [b"\xff\0\0\0\0"], [inside])
    with pytest.raises(wire.WireError, match="kind 255"):
        other.receive()
    assert len(os.listdir("/proc/self/fd")) == before
    for descriptor in (inside, outside):
        os.close(descriptor)
    link.close()
    assert other.receive() is None
    other.close()
