"""gRPC load against our real server."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from headrace.errors import BenchError
from headrace.serving.bench.load import grpc_load
from headrace.serving.bench.load.grpc_load import top1
from headrace.serving.bench.load.loadgen import LoadRequest, run


@pytest.fixture
def photos(tmp_path, make_photo):
    paths = [tmp_path / f"{seed}.png" for seed in range(5)]
    for seed, path in enumerate(paths):
        path.write_bytes(make_photo(seed))
    return tuple(map(str, paths))


def test_it_gets_the_answers_that_are_right(server, photos, reference):
    right = tuple(int(np.argmax(reference(Path(path).read_bytes())[1])) for path in photos)
    over_grpc = run(LoadRequest(url=f"grpc://{server.grpc}/tiny_classify?k=2", images=photos, kind="once", connections=2))
    over_http = run(LoadRequest(url=f"{server.url}/v1/classify/tiny?k=2", images=photos, kind="once"))
    assert over_grpc.errors == over_grpc.rejected == {}
    assert over_grpc.answers == over_http.answers == right


# Of several processes: test_loadgen.
@pytest.mark.parametrize(
    "kind",
    [
        {"kind": "closed"},
        {"kind": "poisson", "rate": 80.0},
        pytest.param({"kind": "closed", "processes": 2}, marks=pytest.mark.slow),
    ],
)
def test_it_measures(server, photos, kind):
    request = LoadRequest(
        url=f"grpc://{server.grpc}/tiny_classify", images=photos, connections=4, warm_up_seconds=0.1, seconds=0.2, **kind
    )
    result = run(request)
    assert result.errors == result.rejected == {}
    assert result.completed > 0
    assert 0 < result.latency_ms["p50"] <= result.latency_ms["p99"]
    assert result.sent >= result.completed
    assert None not in result.answers or result.sent < len(photos)
    assert result.client_cpu_us_per_request > 0


def test_rejections_errors_and_models_without_images_are_told_apart(start, slow_models, server, photos, tmp_path):
    slow = start(slow_models, max_queue=1)
    loaded = run(
        LoadRequest(url=f"grpc://{slow.grpc}/slow_classify", images=photos, connections=12, warm_up_seconds=0.0, seconds=0.5)
    )
    assert loaded.rejected["UNAVAILABLE"] > 0
    assert loaded.errors == {}
    assert "full" in loaded.error_examples["UNAVAILABLE"]
    assert loaded.completed > 0
    text = tmp_path / "text.png"
    text.write_bytes(b"no image")
    broken = run(LoadRequest(url=f"grpc://{server.grpc}/tiny_classify", images=(str(text),), kind="once"))
    assert broken.errors == {"INVALID_ARGUMENT": 1}
    with pytest.raises(BenchError, match="does not take images"):
        run(LoadRequest(url=f"grpc://{server.grpc}/tiny", images=photos))
    with pytest.raises(BenchError, match="nope"):
        run(LoadRequest(url=f"grpc://{server.grpc}/nope", images=photos))


def test_a_server_that_dies_is_a_broken_connection_not_a_rejection(start, models, photos, monkeypatch):
    monkeypatch.setattr(grpc_load, "RECONNECT_SECONDS", 0.01)
    server = start(models)
    send = grpc_load.prepare(LoadRequest(url=f"grpc://{server.grpc}/tiny_classify", images=photos, kind="once"))
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    result = send(0.0)
    assert result.errors == {"connection": 5}
    assert result.rejected == {}
    assert result.answers == (None,) * 5


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xff", pb.ModelInferResponse(raw_output_contents=[b"\x01\x00\x00\x00x"]).SerializeToString()]
)
def test_answers_that_hold_no_class_raise_value_error(body):
    with pytest.raises(ValueError, match="no classes"):
        top1(body)
