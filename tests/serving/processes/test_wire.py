"""Records between processes: whatever was sent arrives, however the stream is cut; what nobody sends is refused."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.serving.processes import wire

U8, U16, U32, U64 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32, 64))
SECONDS = st.floats(allow_nan=False)
MESSAGES = st.one_of(
    st.builds(wire.Admit, U64, U32, U32, U64, U64, SECONDS, SECONDS),
    *(st.builds(kind, U64) for kind in (wire.Submit, wire.Cancel, wire.Expire, wire.Refuse, wire.AskStatistics)),
    st.builds(wire.Done, U64, SECONDS, SECONDS, U32),
    st.builds(wire.Count, U32, U8, U32, U64),
    st.builds(wire.Failed, U64, U16, U32, st.text(max_size=50)),
    st.builds(wire.Catalogue, U64, st.text(max_size=50)),
    st.builds(wire.Seen, U64),
    st.builds(wire.Released, U32),
    st.builds(wire.Control, U64, st.text(max_size=50)),
    st.builds(wire.Settled, U64, U16, U32, st.text(max_size=50)),
    st.builds(wire.Statistics, U64, st.text(max_size=50)),
)


@given(st.lists(MESSAGES, max_size=20), st.lists(st.integers(1, 40), min_size=1))
def test_messages_arrive_in_order_however_the_stream_is_cut(messages, cuts):
    stream = b"".join(wire.encode(message) for message in messages)
    reader, arrived, at, turn = wire.Reader(), [], 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        arrived += reader.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert arrived == messages
    assert [type(message) for message in arrived] == [type(message) for message in messages]


def test_every_kind_of_message_is_tried_above():
    # hypothesis tries each branch of one_of; a kind that is added must be added there too.
    assert len(wire._LAYOUTS) == 15


@pytest.mark.parametrize("data", [b"\xff\0\0\0\0", b"\0\1\0\0\0", struct.pack("<BI", 9, 1 << 31)], ids=["kind", "text", "size"])
def test_what_is_no_record_is_refused(data):
    with pytest.raises(wire.WireError):
        wire.Reader().feed(data + bytes(100))


def test_text_that_cannot_be_encoded_is_sent_all_the_same():
    (arrived,) = wire.Reader().feed(wire.encode(wire.Failed(1, 400, 0, "bad \udcff name")))
    assert arrived == wire.Failed(1, 400, 0, "bad ? name")
