import json

import pytest

from headrace.serving.bench.load.answers import as_answer, read_answer, same_answer


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        ({"predictions": [{"index": 3}, {"index": 1}]}, 3),
        ([{"predictions": [{"index": 3}]}], 3),
        ({"outputs": [{"name": "probability", "data": [0.9]}, {"name": "index", "data": [3, 1]}]}, 3),
        ({"task": "multi-label", "predictions": [{"index": 3}, {"index": 1}]}, (1, 3)),
        ({"task": "multi-label", "predictions": []}, ()),
        ({"heads": {"a": {"predictions": [{"index": 2}]}, "b": {"task": "multi-label", "predictions": []}}}, (2, ())),
        ({"embedding": [1, 0.5]}, (1.0, 0.5)),
        ({"embeddings": {"a": [1, 0.5], "b": [2]}}, ((1.0, 0.5), (2.0,))),
    ],
)
def test_what_an_answer_says(answer, read):
    found = read_answer(json.dumps(answer).encode())
    assert found == read
    assert as_answer(json.loads(json.dumps(found))) == found
    assert same_answer(found, found)
    hash(found)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b'{"predictions": []}', b'{"predictions": [{"index": "3"}]}', b"\xff", b'{"outputs": []}', b"3",
     b'{"outputs": [{"name": "index", "data": []}]}', b'{"embedding": []}', b'{"embedding": ["a"]}', b'{"heads": {"a": {}}}',
     b'{"heads": []}'],
)  # fmt: skip
def test_answers_that_say_nothing_raise_value_error(body):
    with pytest.raises(ValueError, match=r".+"):
        read_answer(body)


def test_vectors_of_one_direction_are_the_same_answer():
    assert same_answer((1.0, 2.0), (1.001, 2.0))
    assert not same_answer((1.0, 2.0), (2.0, 1.0))
    assert not same_answer((1.0, 2.0), (1.0, 2.0, 0.0))
    assert not same_answer((0.0, 0.0), (1.0, 0.0))
    assert same_answer((0.0, 0.0), (0.0, 0.0))
    assert not same_answer(3, (3,))
    assert not same_answer((1, 3), (1, 4))
    assert same_answer(((1.0, 2.0), 4), ((1.0, 2.001), 4))
    assert not same_answer(((1.0, 2.0), 4), ((1.0, 2.0), 5))
