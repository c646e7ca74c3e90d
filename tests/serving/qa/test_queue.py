"""The cases of NVIDIA's qa suites L0_batcher and L0_model_queue for this server's batcher; each test names its cases.

Triton's preferred sizes and time-out actions have no counterpart: batches come from measured latencies and deadlines.
"""

import json
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.serving.inputs import input_of, noise

MODULES = {"http": triton_http, "grpc": triton_grpc}


@pytest.fixture(params=MODULES)
def module(request):
    module = MODULES[request.param]
    module.address = lambda server: getattr(server, request.param)
    return module


def _together(count: int, work) -> list:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def _statistics(server, model: str) -> dict:
    with urllib.request.urlopen(f"{server.url}/v2/models/{model}/stats") as response:
        return json.loads(response.read())["model_stats"][0]


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 7, 8])
def test_static_batches(server, module, rows, scores_of):
    """L0_batcher: test_static_batch_preferred, ..._not_preferred, ..._lt_any_preferred, ..._gt_max_preferred."""
    with module.InferenceServerClient(module.address(server)) as client:
        found = client.infer("tiny", [input_of(module, noise(rows))]).as_numpy("scores")
        np.testing.assert_allclose(found, scores_of(noise(rows)), rtol=1e-4, atol=1e-5)
        with pytest.raises(InferenceServerException, match="batch-size"):
            client.infer("tiny", [input_of(module, noise(9))])


def test_batches_of_several_requests(start, models, module, scores_of):
    """L0_batcher: test_multi_batch_*: sums below, at and over the largest batch; every request has its own rows back."""
    server = start(models)
    rows = [1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 2, 8, 3, 3, 3, 1] * 4

    def ask(number: int) -> None:
        images = noise(rows[number], number)
        with module.InferenceServerClient(module.address(server)) as client:
            found = client.infer("tiny", [input_of(module, images)], request_id=str(number))
        assert (found.get_response()["id"] if module is triton_http else found.get_response().id) == str(number)
        np.testing.assert_allclose(found.as_numpy("scores"), scores_of(images), rtol=1e-4, atol=1e-5)

    _together(len(rows), ask)
    counted = _statistics(server, "tiny")
    assert counted["inference_count"] == sum(rows)
    assert counted["inference_stats"]["success"]["count"] == len(rows)
    assert counted["execution_count"] <= len(rows)
    assert sum(batch["batch_size"] * batch["compute_infer"]["count"] for batch in counted["batch_stats"]) >= sum(rows)


def test_shapes_that_differ_are_not_put_together(server, module, scores_of):
    """L0_batcher: test_multi_batch_different_shape*, test_multi_batch_delayed_preferred_different_shape."""

    def ask(number: int) -> bool:
        images = noise(2, number)
        wrong = number % 3 == 0
        with module.InferenceServerClient(module.address(server)) as client:
            try:
                sent = np.ascontiguousarray(images[:, :, :15]) if wrong else images
                found = client.infer("tiny", [input_of(module, sent)]).as_numpy("scores")
            except InferenceServerException as error:
                assert wrong
                assert "shape" in str(error)  # noqa: PT017 - whether it is raised depends on the shape
                return False
        np.testing.assert_allclose(found, scores_of(images), rtol=1e-4, atol=1e-5)
        return True

    assert sum(_together(30, ask)) == 20


def test_outputs_that_differ(server, module, scores_of, labels):
    """L0_batcher: test_multi_same_output*, test_multi_different_outputs, test_multi_different_output_order."""

    def ask(number: int) -> None:
        images = noise(1, number)
        classes = number % 3
        with module.InferenceServerClient(module.address(server)) as client:
            asked = [module.InferRequestedOutput("scores", class_count=classes)] if number % 2 else None
            found = client.infer("tiny", [input_of(module, images)], outputs=asked).as_numpy("scores")
        if asked and classes:
            best = np.argsort(-scores_of(images)[0])[:classes]
            assert [value.decode().partition(":")[2] for value in found.ravel()] == [
                f"{index}:{labels[index]}" for index in best
            ]
        else:
            np.testing.assert_allclose(found, scores_of(images), rtol=1e-4, atol=1e-5)

    _together(30, ask)


def test_a_full_queue(start, slow_models, module):
    """L0_model_queue: test_max_queue_size; L0_http: test_descriptive_status_code."""
    server = start(slow_models, max_queue=8)
    refused = []

    def ask(number: int) -> bool:
        with module.InferenceServerClient(
            module.address(server), **({} if module is triton_grpc else {"network_timeout": 120})
        ) as client:
            try:
                return client.infer("slow", [input_of(module, noise(8, number))]).as_numpy("scores").shape == (8, 7)
            except InferenceServerException as error:
                refused.append((error.status(), str(error)))
                return False

    answered = sum(_together(40, ask))
    assert answered >= 8
    assert answered + len(refused) == 40
    assert refused
    assert all(status in ("503", "StatusCode.UNAVAILABLE") and "full" in text for status, text in refused), refused[:3]
    assert ask(0)


def test_time_outs(start, slow_models, module):
    """L0_model_queue: test_policy_reject, test_timeout_override; L0_batcher:
    test_default_queue_policy_timeout_prompt_response."""
    server = start(slow_models, default_timeout_seconds=60.0)
    with module.InferenceServerClient(module.address(server)) as client:
        with pytest.raises(InferenceServerException, match="within|deadline"):
            client.infer("slow", [input_of(module, noise(8))], timeout=1000)  # microseconds
        assert client.infer("slow", [input_of(module, noise(8))], timeout=60_000_000).as_numpy("scores").shape == (8, 7)

    # One that gives up does not hold back those behind it.
    def ask(number: int) -> str:
        with module.InferenceServerClient(module.address(server)) as own:
            try:
                own.infer("slow", [input_of(module, noise(1, number))], timeout=5_000 if number % 4 == 0 else 0)
            except InferenceServerException as error:
                return str(error)
        return ""

    for number, error in enumerate(_together(16, ask)):
        assert not error or (number % 4 == 0 and ("within" in error or "deadline" in error)), (number, error)


def test_priorities(start, slow_models):
    """L0_model_queue: test_priority_levels, test_max_priority_levels: the urgent ones are answered before those that came
    first."""
    server = start(slow_models)
    order: list[int] = []
    lock = threading.Lock()
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.infer("slow", [input_of(triton_grpc, noise(1))])
        done = threading.Event()

        def collect(priority: int, error) -> None:
            assert error is None, error
            with lock:
                order.append(priority)
                if len(order) == 40:
                    done.set()

        for number in range(40):
            priority = 2 if number < 30 else 1
            client.async_infer(
                "slow",
                [input_of(triton_grpc, noise(8, number))],
                callback=lambda result, error, p=priority: collect(p, error),
                priority=priority,
            )
        assert done.wait(120)
    # Some of the first run already when the urgent ones come; of those that wait, none of the others is before them.
    urgent = [place for place, priority in enumerate(order) if priority == 1]
    assert len(urgent) == 10
    assert sum(urgent) < sum(range(30, 40)), order
