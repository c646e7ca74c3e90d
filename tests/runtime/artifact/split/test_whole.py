import numpy as np
import pytest

from headrace.errors import ArtifactError, ParityError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.split.whole import BATCHES, Whole, largest_difference, save_part
from tests.runtime.artifact.split.models import linear


@pytest.fixture(scope="module")
def whole(thirds, tmp_path_factory):
    return Whole.open(thirds[0], tmp_path_factory.mktemp("out"))


class Given:
    """A session that gives recorded outputs, changed."""

    def __init__(self, answers, change):
        self._answers, self._change = answers, change

    def run(self, inputs):
        return [self._change(value.copy()) for value in self._answers[len(inputs[0])]]


def test_answers_are_the_sessions(whole):
    answers = whole.answers()
    assert tuple(answers) == BATCHES
    session = load_artifact(whole.artifact.path.parent).open()
    try:
        for batch, (scores,) in answers.items():
            assert np.array_equal(session.run([value[:batch] for value in whole.rows])[0], scores)
    finally:
        session.close()
    assert largest_difference(Given(answers, lambda value: value), whole.rows, answers) == 0


@pytest.mark.parametrize("share", [0.9e-6, 1.2e-6])
def test_differences_are_shares_of_a_rows_largest(whole, share):
    answers = {batch: [value.astype(np.float64) for value in values] for batch, values in whole.answers().items()}

    def change(value):
        value[-1, 0] += share * np.abs(value[-1]).max()
        return value

    session = Given(answers, change)
    if share < 1e-6:
        assert largest_difference(session, whole.rows, answers) == pytest.approx(share, rel=1e-6)
        return
    with pytest.raises(ParityError, match=r"output 0 of the parts differs by 1.2e-06 .* at 1 rows \(allowed: 1e-06\)"):
        largest_difference(session, whole.rows, answers)


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value[:, :-1],
        lambda value: value.astype(np.float64),
        lambda value: np.where(np.arange(value.shape[1]) == 3, np.nan, value).astype(np.float32),
        lambda value: np.where(np.arange(value.shape[1]) == 3, np.inf, value).astype(np.float32),
        lambda value: np.roll(value, 1, axis=1),
        np.zeros_like,
    ],
)
def test_what_is_something_else_is_rejected(whole, change):
    answers = whole.answers()
    with pytest.raises(ParityError):
        largest_difference(Given(answers, change), whole.rows, answers)


@pytest.mark.parametrize(("dtype", "change"), [("int64", 1), ("bool", True), ("float32", 0)])
def test_values_that_are_no_floats_are_exact(dtype, change):
    answers = {1: [np.zeros((1, 4), dtype)]}
    same = Given(answers, lambda value: value)
    assert largest_difference(same, [np.zeros((6, 2))], answers) == 0
    if change:
        other = Given(answers, lambda value: np.where([[True, False, False, False]], np.array(change, dtype), value))
        with pytest.raises(ParityError):
            largest_difference(other, [np.zeros((6, 2))], answers)


def test_classes_that_are_ruled_out_stay_so():
    answers = {1: [np.float32([[-np.inf, 3, 2]])]}
    assert largest_difference(Given(answers, lambda value: value), [np.zeros((6, 2))], answers) == 0


def test_a_part_that_is_too_large_says_what_to_do(tmp_path, monkeypatch):
    import onnx

    def too_large(*_):
        raise ValueError("Message onnx.ModelProto exceeds maximum protobuf size of 2GB")

    monkeypatch.setattr(onnx, "save_model", too_large)
    with pytest.raises(ArtifactError, match=r"part-1.onnx would be larger than 2 GB; give more --ranks"):
        save_part(linear(10), tmp_path / "part-1.onnx", "give more --ranks")
