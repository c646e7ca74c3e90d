"""A version that does not answer known rows as it should is not served."""

from dataclasses import replace

import numpy as np
import pytest

from headrace.errors import BackendError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.known_answers import known_rows, record
from headrace.runtime.artifact.manifest import read_manifest, write_manifest
from headrace.serving.batching import executor
from headrace.serving.batching.collate import split
from headrace.serving.config import ServeConfig
from headrace.serving.models.loading import load_tensor_model
from headrace.serving.models.self_check import _alone, check_joining, likeness
from headrace.specs import INT8
from tests.serving.conftest import SIGNATURE, WEIGHTS


def load(repository):
    models = repository.path
    if not models.joinpath("tiny").exists():
        repository.package("tiny")
    config = ServeConfig.of(models=models, instances=1, threads=1)
    return load_tensor_model(models / "tiny", config, lambda text: None, version=1)


def recorded(repository, scale=1.0):
    """The repository with the answers of their known rows, as if the model gave them times `scale`."""
    (rows,) = known_rows(SIGNATURE)
    repository.package("tiny")
    version = repository.path / "tiny" / "1"
    content, _ = read_manifest(version)
    answers = record(scale * (rows.reshape(len(rows), -1) @ WEIGHTS), 0.0)
    write_manifest(version, {**content, "answers": {"output": 0, **answers}})
    return repository


def test_what_answers_as_recorded_is_served(repository):
    model = load(recorded(repository))
    (rows,) = known_rows(SIGNATURE)
    ticket = model.batcher.admit(len(rows), timeout=60)
    model.batcher.submit(ticket, [rows])
    assert np.allclose(ticket.future.result()[0], rows.reshape(len(rows), -1) @ WEIGHTS, atol=1e-3)
    assert model.statistics.snapshot()["inference_count"] == len(rows)  # the check's own requests are counted nowhere
    model.close()


def test_another_model_s_answers_are_not_served(repository):
    with pytest.raises(BackendError, match="off by 1[12]% of what tells rows apart from those that were recorded"):
        load(recorded(repository, scale=0.9))


def of_the_end(outputs, items):
    """The last rows of the batch, among them what fills it up."""
    rows = sum(item.rows for item in items)
    return split([output[len(output) - rows :] for output in outputs], items)


def exchanged(outputs, items):
    """Each row is the one after it, and the last the first."""
    return split([np.roll(output, 1, axis=0) for output in outputs], items)


def backwards(outputs, items):
    return [[value[::-1] for value in answer] for answer in split(outputs, items)]


FAULTS = {"a row of padding": of_the_end, "rows of two requests exchanged": exchanged, "rows of one backwards": backwards}


@pytest.mark.parametrize("name", FAULTS)
def test_requests_that_do_not_get_their_own_rows_are_seen(repository, monkeypatch, name):
    monkeypatch.setattr(executor, "split", FAULTS[name])
    with pytest.raises(BackendError, match="an answer that is not its own"):
        load(repository)


def test_a_batch_late_is_seen(repository, monkeypatch):
    before = {}  # by the number of rows, since how requests come together is up to what else the machine does

    def late(outputs, items):
        last, before[len(outputs[0])] = before.get(len(outputs[0]), outputs), [value.copy() for value in outputs]
        return split(last, items)

    monkeypatch.setattr(executor, "split", late)
    with pytest.raises(BackendError, match="an answer that is not its own"):
        load(repository)


class Joining:
    """Scores and a second output, altered by `change(outputs, images)`; they say whose rows they are."""

    def __init__(self, change=None):
        self.change = change

    def run(self, inputs):
        flat = inputs[0].reshape(len(inputs[0]), -1)
        outputs = [flat @ WEIGHTS, flat[:, :5].copy()]
        return (self.change and self.change(outputs, inputs[0])) or outputs


@pytest.fixture
def artifact(repository):
    return load_artifact(recorded(repository).path / "tiny")


def join(artifact, change=None, bucket=8):
    (rows,) = known_rows(SIGNATURE)
    check_joining(artifact, artifact.plan_here(), {bucket: Joining(change)}, Joining().run([rows]))


@pytest.mark.parametrize("bucket", [1, 4, 6, 8, 13])
def test_what_answers_as_the_first_session_joins(artifact, bucket):
    join(artifact, bucket=bucket)


def leaking(outputs, images):
    """Far too little to be seen, but for NaN."""
    outputs[0] += 1e-12 * np.roll(outputs[0], 1, axis=0)


JOINING = {
    "second output": (lambda out, images: [out[0], 1.02 * out[1]], "row . of output 1 is off by"),
    "another model": (lambda out, images: [1.05 * out[0], out[1]], "row . of output 0 is off by"),
    "rows lost": (lambda out, images: [value[:-1] for value in out], "have 7 rows"),
    "order of outputs": (lambda out, images: out[::-1], "not its own"),
    "not finite": (lambda out, images: [out[0] / np.float32(0), out[1]], "answer that is not its own"),
    "a leak": (leaking, "in a batch of 8 beside rows of NaN, output 0 is not finite"),
    "last rows": (lambda out, images: [value[np.minimum(np.arange(8), 6)] for value in out], "row 7 .* not its own"),
}


@pytest.mark.parametrize("name", JOINING)
def test_what_answers_otherwise_does_not_join(artifact, name):
    change, why = JOINING[name]
    with pytest.raises(BackendError, match=why), np.errstate(divide="ignore", invalid="ignore"):
        join(artifact, change)


def test_a_leak_between_two_rows_is_seen(artifact):
    with pytest.raises(BackendError, match="in a batch of 2 beside rows of NaN"):
        join(artifact, leaking, bucket=2)


def test_a_session_is_asked_for_as_many_rows_as_it_runs():
    seen = []

    class Session:
        def run(self, inputs):
            seen.append(len(inputs[0]))
            return inputs

    (given,) = _alone({4: Session(), 8: Session()}, [np.arange(6.0)])
    assert given.tolist() == [0, 1, 2, 3, 4, 5]
    assert seen == [4] * 6


def test_rows_are_looked_at_in_every_batch(artifact):
    """Six rows in batches of four are two, and the second is wrong."""
    calls = []

    def second(out, images):
        calls.append(1)
        return [value * (1 + 0.05 * (len(calls) == 2)) for value in out]

    with pytest.raises(BackendError, match="in a batch of 4, row . of output 0"):
        join(artifact, second, bucket=4)


def test_how_alike_sessions_must_be(artifact):
    plan = artifact.plan_here()
    assert likeness(artifact, plan) == 0.01
    assert likeness(replace(artifact, answers=None), plan) == 0.05
    lossy = replace(plan, choices={1: replace(plan.first(), precision=INT8)})
    assert likeness(artifact, lossy) == 0.75


def test_another_model_is_told_by_a_lossy_plan_too(repository, monkeypatch):
    """Its rows need not be equal to what was recorded, but resemble it."""
    monkeypatch.setattr("headrace.serving.models.self_check._lossy", lambda plan: True)
    load(recorded(repository, scale=0.9)).close()
    version = repository.path / "tiny" / "1"
    content, _ = read_manifest(version)
    write_manifest(version, {**content, "answers": {**content["answers"], "values": content["answers"]["values"][::-1]}})
    with pytest.raises(BackendError, match="nearest to their own recorded ones"):
        load(repository)
