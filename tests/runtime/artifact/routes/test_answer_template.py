"""What a template makes of a row of scores."""

import numpy as np
import pytest

from headrace.runtime.artifact.routes.answer_template import (
    Answered,
    Best,
    BestByName,
    Constant,
    FileName,
    Index,
    Items,
    Name,
    Object,
    Pick,
    Position,
    Score,
    Text,
)

LABELS = ("cat", "dog", "owl")
ROW = np.log(np.array([0.2, 0.7, 0.1], np.float32))
BEST, EACH = Pick(rank=0), Pick()


def fill(node):
    return node.fill(Answered(ROW, (LABELS, ("n1", "n2", "n3")), "photo.jpg"), None)


@pytest.mark.parametrize(
    ("node", "answer"),
    [
        (Constant(value=None), None),
        (Name(pick=BEST), "dog"),
        (Name(pick=Pick(rank=2), table=1), "n3"),
        (Name(pick=Pick(index=0)), "cat"),
        (Index(pick=BEST), 1),
        (Index(pick=BEST, text=True), "1"),
        (FileName(), "photo.jpg"),
        (Score(pick=BEST, source="softmax", decimals=3), 0.7),
        (Score(pick=BEST, source="softmax", times=100, decimals=1), 70.0),
        (Score(pick=BEST, source="softmax", times=100, decimals=0, style="integer"), 70),
        (Score(pick=BEST, source="softmax", times=100, decimals=2, style="fixed"), "70.00"),
        (Score(pick=BEST, source="softmax", decimals=2, style="plain"), "0.7"),
        (Score(pick=BEST, source="sigmoid", decimals=4), round(0.7 / 1.7, 4)),
        (Score(pick=BEST, source="output", decimals=4), round(float(np.log(0.7)), 4)),
        (
            Text(parts=(Name(pick=BEST), Constant(value=": "), Score(pick=BEST, source="softmax", decimals=1, style="fixed"))),
            "dog: 0.7",
        ),
        (Items(items=(Constant(value=1), Name(pick=BEST))), [1, "dog"]),
        (
            Best(count=2, item=Object(members=(("n", Name(pick=EACH)), ("at", Position(first=1))))),
            [{"n": "dog", "at": 1}, {"n": "cat", "at": 2}],
        ),
        (BestByName(count=2, value=Score(pick=EACH, source="softmax", decimals=2)), {"dog": 0.7, "cat": 0.2}),
    ],
)
def test_each_part_says_what_it_is_called(node, answer):
    filled = fill(node)
    assert (filled, type(filled)) == (answer, type(answer))


def test_a_score_without_decimals_is_as_exact_as_float32():
    assert fill(Score(pick=BEST, source="softmax")) == float(np.float32(fill(Score(pick=BEST, source="softmax", decimals=12))))


def test_of_equal_scores_the_first_is_the_best_and_large_ones_stay_numbers():
    answered = Answered(np.array([5.0, 5.0]), ((),))
    assert answered.ranked.tolist() == [0, 1]
    large = Answered(np.array([1e30, -1e30]), ((),))
    assert large.softmax.tolist() == [1.0, 0.0]
    assert np.isfinite(large.sigmoid).all()
