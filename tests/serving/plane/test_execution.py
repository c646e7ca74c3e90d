"""What goes through a model's queue, without a transport in front."""

import asyncio
import threading

import numpy as np
import pytest

from headrace.errors import ExecutionError, InputError, OverloadedError
from headrace.serving.config import ServeConfig
from headrace.serving.images.decode_pool import DecodePool
from headrace.serving.models.repository import ModelRepository
from headrace.serving.plane import execution
from headrace.serving.plane.execution import Execution


@pytest.fixture(scope="module")
def tiny(models):
    repository = ModelRepository(ServeConfig.of(models=models, instances=1, threads=1))
    repository.load(lambda _: None)
    yield repository.get("tiny")
    repository.drain()
    repository.close()


@pytest.fixture
def decoder():
    pool = DecodePool(1, limit=2)
    yield pool
    pool.close()


def images(decoder, model, *photos, timeout=None, seconds=60.0):
    """What it answers, with its own deadline `seconds` and the request's `timeout`."""
    return asyncio.run(Execution(decoder, decoder, timeout=seconds).images(model, list(photos), timeout, 0))


def test_each_image_has_its_own_scores(decoder, tiny, make_photo, reference):
    photos = [make_photo(seed) for seed in range(3)]
    (scores,) = images(decoder, tiny, *photos)
    np.testing.assert_allclose(scores, [reference(photo)[1] for photo in photos], rtol=1e-3, atol=1e-4)


def test_an_image_that_is_none_is_the_clients_mistake_and_leaves_the_queue(decoder, tiny):
    with pytest.raises(InputError):
        images(decoder, tiny, b"no image")
    assert tiny.batcher.load() == (0, 0, 0)


def test_a_decoder_that_fails_as_nobody_foresaw_fails_its_own_request(decoder, tiny, make_photo, monkeypatch):
    monkeypatch.setattr(execution, "decode_rows", lambda *_: 1 / 0)
    with pytest.raises(ExecutionError, match="could not be decoded; the server's log says why"):
        images(decoder, tiny, make_photo(1))
    monkeypatch.undo()
    assert images(decoder, tiny, make_photo(1))[0].shape == (1, 7)


@pytest.mark.parametrize(("timeout", "seconds"), [(0.2, 60.0), (None, 0.2)])
def test_what_no_thread_has_decoded_by_its_deadline_is_given_up(timeout, seconds, decoder, tiny, make_photo):
    free = threading.Event()
    busy = decoder.submit(free.wait)
    with pytest.raises(OverloadedError, match="the deadline passed"):
        images(decoder, tiny, make_photo(1), timeout=timeout, seconds=seconds)
    assert tiny.batcher.load() == (0, 0, 0)
    free.set()
    assert busy.result(60)
