"""How many images a lossy candidate is judged on: a table of scores stands for what it computes."""

from types import SimpleNamespace

import numpy as np
import pytest

from headrace import GraphConfig
from headrace.runtime.artifact.plan import Choice
from headrace.runtime.base.session import Target
from headrace.runtime.base.task import Head, Task
from headrace.runtime.tuning.candidate import Candidate
from headrace.runtime.tuning.judging_data import JudgingData
from headrace.runtime.tuning.reference import Reference
from headrace.specs import BF16

ROWS, CLASSES = 192, 10


class Table:
    """A session that answers each image, which holds its own number, with its row of the table."""

    def __init__(self, scores):
        self.scores, self.rows = scores, 0

    def run(self, inputs):
        self.rows += len(inputs[0])
        return [self.scores[inputs[0].reshape(len(inputs[0]), -1)[:, 0].astype(int)]]

    def close(self):
        pass


@pytest.fixture
def scores():
    random = np.random.default_rng(0)
    found = random.normal(size=(ROWS, CLASSES)).astype(np.float32)
    found[np.arange(ROWS), np.arange(ROWS) % CLASSES] += 6
    return found


@pytest.fixture
def reference(scores):
    images = np.arange(ROWS, dtype=np.float32).reshape(-1, 1, 1, 1)
    task = Task((Head(output="y", kind="single-label"),))
    return Reference([images[:16]], [scores[:16]], (0.0,), task, JudgingData(images=(images,), scores=(scores,)))


def computes(scores, **target):
    choice = Choice(backend="table", precision=BF16)
    backend = SimpleNamespace(name="table", format="onnx")
    return Candidate(backend, Target(precision=BF16, **target), choice, session=Table(scores))


def flipped(scores, rows):
    wrong = scores.copy()
    wrong[rows] = np.roll(wrong[rows], 1, axis=1)
    return wrong


@pytest.mark.parametrize("batch", [None, 1, 5, 16, 64])
def test_what_computes_as_one_that_has_passed_is_shown_by_a_few_images(scores, reference, batch):
    proved, sibling = computes(scores), computes(scores + np.float32(1e-3), batch=batch)
    assert proved.passes(reference, GraphConfig())
    assert proved.session.rows >= ROWS
    assert sibling.passes(reference, GraphConfig(), proved)
    assert sibling.session.rows <= max(35, batch or 0)
    assert sibling.parity.passed
    assert "shown by table bf16" in sibling.parity.why


def test_what_computes_otherwise_is_judged_on_all_images(scores, reference):
    proved = computes(scores)
    assert proved.passes(reference, GraphConfig())
    noisy = computes(scores + np.random.default_rng(1).normal(scale=0.1, size=scores.shape).astype(np.float32))
    assert noisy.passes(reference, GraphConfig(), proved)
    assert noisy.session.rows >= ROWS + 32
    assert "shown by" not in noisy.parity.why
    assert not computes(flipped(scores, slice(4))).passes(reference, GraphConfig(), proved)


def test_a_budget_is_shown_by_all_images(scores, reference):
    proved = computes(scores)
    config = GraphConfig(budget=5.0)
    assert proved.passes(reference, config)
    sibling = computes(scores)
    assert sibling.passes(reference, config, proved)
    assert sibling.session.rows >= ROWS


def test_one_that_has_passed_without_images_shows_nothing(scores, reference):
    reference.images = None
    proved, sibling = computes(scores), computes(scores + 5)
    assert proved.passes(reference, GraphConfig())
    assert not sibling.passes(reference, GraphConfig(), proved)


def test_what_flips_many_of_the_first_images_is_refused_after_those(scores, reference):
    wrong = computes(flipped(scores, slice(6)))
    table = wrong.session
    assert not wrong.passes(reference, GraphConfig())
    assert table.rows == 32
    assert "81.25% of the first 32 images" in wrong.why
    assert wrong.session is None


@pytest.mark.parametrize("rows", [slice(2), slice(40, 60)])
def test_few_flips_among_the_first_images_leave_the_judgement_to_all(scores, reference, rows):
    wrong = computes(flipped(scores, rows))
    table = wrong.session
    assert not wrong.passes(reference, GraphConfig())
    assert table.rows >= ROWS
    assert "of 192 images" in wrong.why
