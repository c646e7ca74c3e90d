"""A version that does not answer known rows as it should is not served."""

import numpy as np
import pytest

from headrace.errors import BackendError
from headrace.runtime.artifact.known_answers import known_rows, record
from headrace.runtime.artifact.manifest import read_manifest, write_manifest
from headrace.serving.batching import batcher
from headrace.serving.batching.collate import split
from headrace.serving.config import ServeConfig
from headrace.serving.models.loading import load_tensor_model
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
    monkeypatch.setattr(batcher, "split", FAULTS[name])
    with pytest.raises(BackendError, match="an answer that is not its own"):
        load(repository)


def test_a_batch_late_is_seen(repository, monkeypatch):
    before = []

    def late(outputs, items):
        before.append([value.copy() for value in outputs])
        return split(before[-2] if len(before) > 1 and len(before[-2][0]) == len(outputs[0]) else outputs, items)

    monkeypatch.setattr(batcher, "split", late)
    with pytest.raises(BackendError, match="an answer that is not its own"):
        load(repository)
