"""What is read from answers, of the usual shapes and of those that nobody should send."""

from __future__ import annotations

import json

import numpy as np
import pytest

from headrace.serving.verify.answers import PROBABILITY, SCORE, UnreadableError, Vocabulary, read_answer

ANIMALS = Vocabulary(3, ("great white shark", "Tench", "n01440764"))
NUMBERS = Vocabulary(4)
NOTHING = float("nan")


def read(content, vocabulary=ANIMALS):
    return read_answer(content if isinstance(content, bytes) else json.dumps(content).encode(), vocabulary)


@pytest.mark.parametrize(
    ("content", "values", "first"),
    [
        (
            {"predictions": [{"label": "tench", "probability": 0.7}, {"label": "n01440764", "probability": 0.2}]},
            [NOTHING, 0.7, 0.2],
            1,
        ),
        ([{"class": "GREAT_WHITE-SHARK", "score": -1.5}, {"class": "tench", "score": 3}], [-1.5, 3, NOTHING], 1),
        ({"great white shark": 0.2, "tench": 0.5, "n01440764": 0.3}, [0.2, 0.5, 0.3], 1),
        ({"status": "ok", "time": 0.01, "result": {"tench": 0.5, "n01440764": 0.3}}, [NOTHING, 0.5, 0.3], 1),
        ([[0.1, 0.2, 0.7]], [0.1, 0.2, 0.7], 2),
        ({"outputs": [{"name": "y", "data": [5, 1, 2]}]}, [5, 1, 2], 0),
        ([["tench", 0.6], ["n01440764", 0.4]], [NOTHING, 0.6, 0.4], 1),
        ({"classes": ["tench", "n01440764"], "probs": [0.6, 0.4], "ms": [3]}, [NOTHING, 0.6, 0.4], 1),
        ({"class_id": "n02", "class_name": "tench_"}, [NOTHING] * 3, 1),
        ({"scores": [1, 2, 10**400], "label": "tench"}, [NOTHING] * 3, 1),
        ({"prediction": "tench", "confidence": "high"}, [NOTHING] * 3, 1),
        ({"class": 2, "confidence": 0.5}, [NOTHING, NOTHING, 0.5], 2),
        ("tench", [NOTHING] * 3, 1),
        (b"Great White Shark\n", [NOTHING] * 3, 0),
        ({"id": 2, "label": "tench", "score": 0.5}, [NOTHING, 0.5, NOTHING], 1),
        ({"id": 2, "score": 0.5}, [NOTHING, NOTHING, 0.5], 2),
        ({"label": "tench", "score": 0.5, "color": [1, 2, 3]}, [NOTHING, 0.5, NOTHING], 1),
        ({"ok": True, "label": "tench", "id": 17, "width": 3}, [NOTHING] * 3, 1),
    ],
)
def test_the_usual_shapes(content, values, first):
    row = read(content)
    np.testing.assert_array_equal(row.values, np.array(values, float))
    assert row.first == first


@pytest.mark.parametrize(
    ("content", "first"),
    [
        ({"class_id": "3"}, 3),
        ({"label": "LABEL_2"}, 2),
        ({"label": "class 1", "score": 0.9}, 1),
        ({"prediction": 0}, 0),
        ([1, 2, 9, 3], 2),
    ],
)
def test_classes_without_labels_are_numbers(content, first):
    assert read(content, NUMBERS).first == first


def test_what_values_are_called_and_how_they_are_rounded():
    assert read({"label": "tench", "confidence": 0.1234}).kind == PROBABILITY
    assert read({"label": "tench", "logit": 0.1234}).kind == SCORE
    assert read({"label": "tench", "confidence": 0.1234}).decimals == 4
    assert read([0.1, 1e-7, 0.25]).decimals == 7


def test_numbers_beside_labels_are_kept_apart():
    row = read([{"index": 0, "label": "tench", "score": 2.0}, {"index": 1, "label": "great white shark", "score": 1.0}])
    assert (row.first, row.number) == (1, 0)
    np.testing.assert_array_equal(row.by_number, [2.0, 1.0, NOTHING])


def test_labels_of_others_are_told():
    row = read({"predictions": [{"label": "goldfish", "score": 0.9}, {"label": "tench", "score": 0.1}]})
    assert row.unknown == ("goldfish",)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"<!doctype html><title>Sign in</title>", "HTML: '<!doctype html>"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 5000, "no JSON"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "no JSON"),
        ({"error": "no file"}, "names no class of the package"),
        ({"predictions": []}, "names no class"),
        ([0.1, 0.2], "names no class"),
        ({"index": 3}, "names no class"),
        ({"version": "2", "status": "tench"}, "names no class"),
        ({"index": True}, "names no class"),
        (None, "names no class"),
        ({"probabilities": [0.1, float("nan"), 0.2]}, "NaN or infinity"),
        ({"label": "tench", "score": float("inf")}, "NaN or infinity"),
    ],
)
def test_what_says_nothing_is_an_error_with_its_beginning(content, says):
    with pytest.raises(UnreadableError, match=says):
        read(content)


def test_a_thousand_objects_take_no_time_to_speak_of():
    content = [{"label": "tench", "score": 1.0, "more": [{"a": 1}] * 5}] * 2000
    assert read(content).first == 1


def test_two_classes_of_one_label_are_not_taken_for_each_other():
    birds = Vocabulary(4, ("crane", "hen", "crane", "cock"))
    row = read([{"label": "crane", "score": 3.0}, {"label": "hen", "score": 1.0}], birds)
    np.testing.assert_array_equal(row.values, [NOTHING, 1.0, NOTHING, NOTHING])
    assert (row.first, row.unknown) == (None, ())
    assert read([{"label": "crane", "index": 2, "score": 3.0}, {"label": "hen", "index": 1, "score": 1.0}], birds).first == 2


def test_labels_that_are_digits_are_not_looked_for_in_versions():
    digits = Vocabulary(10, tuple("0123456789"))
    assert read({"version": "1", "digit": "7"}, digits).first == 7
    assert read({"digit": "7", "model_version": "1", "id": 3}, digits).first == 7
    row = read({"index": 7, "id": 3, "label": "7"}, digits)
    assert (row.first, row.number) == (7, 7)
    assert read({"id": 3, "label": "7", "score": 1.0}, digits).by_number is None
