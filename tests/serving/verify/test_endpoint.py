"""Tensor endpoints: what is judged of them, and servers that garble, lie, hang or answer for somebody else."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest
import torch

from headrace.errors import VerifyError
from headrace.serving.verify.config import VerifyConfig
from headrace.serving.verify.verify import verify
from headrace.specs import Preprocessing
from tests.serving.verify.network import MEAN, SIDE, STD, network, package, scores
from tests.serving.verify.oip_server import METADATA, oip_server
from tests.serving.verify.upload_server import Service, reply, serving, softmax, upload_server


def findings(models, infer=scores, **options):
    with oip_server(infer, **options) as url:
        (judgement,) = verify(VerifyConfig(url=f"{url}/v2/models/fish", models=models, timeout_seconds=30)).judgements
    return judgement.findings


def statistics():
    return (np.array(values, np.float32)[:, None, None] for values in (MEAN, STD))


def again(rows):
    mean, std = statistics()
    return scores((rows - mean) / std)


FAULTS = {
    "a softmax": ("softmax", lambda rows: np.stack([softmax(row) for row in scores(rows)])),
    "outputs in another order": ("label-order", lambda rows: scores(rows)[:, [1, 2, 0, 3, 4, 5, 6]]),
    "rows of a batch reversed": ("exchanged-rows", lambda rows: scores(rows)[::-1]),
    "rows depend on the batch": ("batch", lambda rows: scores(rows) - (scores(rows).mean(0) if len(rows) > 1 else 0)),
    "the last row of a batch is zero": ("batch", lambda rows: scores(rows) * (np.arange(len(rows)) < 2)[:, None]),
    "normalizes again": ("normalization", again),
    "expects BGR": ("channel-order", lambda rows: scores(rows[:, ::-1])),
    "other weights": ("model", lambda rows: scores(rows, network(9))),
    "random": ("nondeterministic", lambda rows: scores(rows) + np.random.default_rng().normal(size=(len(rows), 7))),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_behind_tensors_is_named(fish, name):
    fault, infer = FAULTS[name]
    assert [found.fault for found in findings(fish, infer)] == [fault]


def test_a_lower_precision_behind_tensors(tmp_path):
    models = package(tmp_path / "models", tmp_path)
    low = network.__wrapped__().to(torch.bfloat16)

    def infer(rows):
        with torch.no_grad():
            return low(torch.from_numpy(rows).to(torch.bfloat16)).float().numpy()

    (found,) = findings(models, infer)
    assert found.fault == "precision"
    assert "bf16" in found.text


def test_inputs_of_another_shape_are_another_model(fish):
    shape = [-1, SIDE, SIDE, 3]
    (found,) = findings(fish, metadata={**METADATA, "inputs": [{"name": "x", "datatype": "FP32", "shape": shape}]})
    assert (found.fault, "[16, 16, 3]" in found.text) == ("interface", True)


def test_a_model_that_takes_one_row_at_a_time(fish):
    tensors = [{"name": "x", "datatype": "FP32", "shape": [1, 3, SIDE, SIDE]}]

    def infer(rows):
        assert len(rows) == 1
        return scores(rows)

    assert findings(fish, infer, metadata={**METADATA, "inputs": tensors}) == ()


def answered(output, **more):
    return {"model_name": "fish", "model_version": "1", "outputs": [{"name": "y", "datatype": "FP32", **output}], **more}


GARBLED = {
    "a page": (lambda made: b"<html>Welcome</html>", "it is no JSON"),
    "a list": (lambda made: [1, 2], "none of the Open Inference Protocol"),
    "deep": (lambda made: b"[" * 100_000, "none of the Open Inference Protocol"),
    "too large a shape": (lambda made: answered({"shape": [1, 10**15], "data": [1.0]}), "cannot reshape"),
    "too few numbers": (lambda made: answered({"shape": [1, 7], "data": [1.0] * 6}), "cannot reshape"),
    "another size": (lambda made: answered({"shape": [1, 6], "data": [1.0] * 6}), "has the shape [1, 6]"),
    "too many rows": (lambda made: answered({"shape": [2, 7], "data": [1.0] * 14}), "2 rows came back for 1"),
    "text": (lambda made: answered({"shape": [1, 7], "data": ["a"] * 7}), "could not convert"),
    "NaN": (lambda made: answered({"shape": [1, 7], "data": [float("nan")] * 7}), "NaN or infinity"),
    "an unknown type": (lambda made: {"outputs": [{"name": "y", "datatype": "FP7", "shape": [1, 7], "data": []}]}, "FP7"),
    "another output": (lambda made: answered({"shape": [1, 7], "data": [1.0] * 7, "name": "z"}), "'y'"),
}


@pytest.mark.parametrize("name", GARBLED)
def test_what_cannot_be_read_is_an_error_that_says_what_came(fish, name):
    answer, says = GARBLED[name]
    with oip_server(answer=answer) as url, pytest.raises(VerifyError, match="none of 24 requests is answered") as raised:
        verify(VerifyConfig(url=f"{url}/v2/models/fish", models=fish))
    assert says in str(raised.value)


@pytest.mark.parametrize("metadata", [b"<html>", {"inputs": 3}, {"inputs": [], "outputs": []}, {"inputs": [{}]}, b"\xff"])
def test_metadata_that_are_none(fish, metadata):
    with oip_server(metadata=metadata) as url, pytest.raises(VerifyError, match="metadata of fish"):
        verify(VerifyConfig(url=f"{url}/v2/models/fish", models=fish))


def test_a_model_that_is_not_there(fish):
    with oip_server() as url, pytest.raises(VerifyError, match="404 .*no such path.*--served-as"):
        verify(VerifyConfig(url=url, models=fish, served_as="cat"))


def test_an_address_that_speaks_no_protocol_asks_for_the_path(fish):
    with serving(lambda handler, body: reply(handler, b"<html>", 404)) as url:
        with pytest.raises(VerifyError, match="give the whole address"):
            verify(VerifyConfig(url=url, models=fish))
        with pytest.raises(VerifyError, match="as the field 'file': HTTP 404"):
            verify(VerifyConfig(url=f"{url}/predict", models=fish))


def test_grpc_without_a_server_and_without_a_port(fish):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(VerifyError, match="UNAVAILABLE"):
        verify(VerifyConfig(url=f"grpc://127.0.0.1:{port}/fish", models=fish, timeout_seconds=1))
    with pytest.raises(VerifyError, match="no host and port"):
        verify(VerifyConfig(url="grpc://localhost", models=fish))


def test_an_endpoint_that_falls_silent_is_given_up(fish):
    """After five answers it hangs: three requests later nothing more is asked."""
    asked, end = [], threading.Event()

    def handle(handler, body):
        asked.append(handler.path)
        if len(asked) > 5:
            end.wait(120)
        reply(handler, {"label": "cock", "probability": 0.5})

    try:
        with serving(handle) as url, pytest.raises(VerifyError, match="no whole answer within 2 s.*given up after 3"):
            verify(VerifyConfig(url=f"{url}/predict", models=fish, timeout_seconds=2))
    finally:
        end.set()
    assert len(asked) == 8


def test_never_more_than_four_requests_at_once(fish):
    lock, running, most = threading.Lock(), [0], [0]

    def infer(rows):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        threading.Event().wait(0.005)
        with lock:
            running[0] -= 1
        return scores(rows)

    assert findings(fish, infer) == ()
    assert 1 < most[0] <= 4


def test_a_preprocessing_that_resizes_nothing_leaves_too_few_images(tmp_path):
    models = package(tmp_path / "models", tmp_path, preprocessing=Preprocessing())
    with upload_server(Service()) as url, pytest.raises(VerifyError, match="images of one size only"):
        verify(VerifyConfig(url=url, models=models))
