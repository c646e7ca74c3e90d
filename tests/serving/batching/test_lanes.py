import pytest

from headrace.serving.batching.lanes import in_flight, lanes


class Plain:
    def __init__(self):
        self.closed = False

    def close(self):
        self.closed = True


class Streaming(Plain):
    """A session of which several may be used at a time; `most` can be opened."""

    def __init__(self, in_flight=3, most=100):
        super().__init__()
        self.in_flight, self.most, self.twins = in_flight, most, []

    def twin(self):
        if len(self.twins) == self.most:
            raise MemoryError
        self.twins.append(Plain())
        return self.twins[-1]


def test_other_sessions_are_given_one_batch_at_a_time():
    instances = [{1: Plain(), 4: Plain()}, {1: Plain(), 4: Plain()}]
    assert lanes(instances) == instances
    assert in_flight(instances[0]) == 1
    assert lanes([]) == []


def test_buckets_that_share_a_session_share_its_twins():
    session = Streaming()
    instance = dict.fromkeys((1, 2, 4), session)
    found = lanes([instance])
    assert found == [instance, *(dict.fromkeys((1, 2, 4), twin) for twin in session.twins)]
    assert len(session.twins) == 2


def test_first_lanes_come_before_second_ones():
    first, second = Streaming(2), Streaming(3)
    found = lanes([{1: first}, {1: second}])
    assert [lane[1] for lane in found] == [first, second, first.twins[0], second.twins[0], second.twins[1]]


def test_no_twin_stays_open_where_another_cannot_be_opened():
    first, second = Streaming(), Streaming(most=1)
    with pytest.raises(MemoryError):
        lanes([{1: first}, {1: second}])
    assert all(twin.closed for twin in (*first.twins, *second.twins))
    assert not first.closed
