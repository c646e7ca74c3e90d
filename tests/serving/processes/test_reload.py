"""Models that come and go while several processes serve them: no request fails, and no front end stays behind."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

SIDE = 16
ONES = np.ones((1, 3, SIDE, SIDE), np.float32)


def _infer(client, module, name: str = "tiny") -> tuple[str, float]:
    """Which version answered, and by what factor its answers differ from the first one's."""
    tensor = module.InferInput("images", ONES.shape, "FP32")
    tensor.set_data_from_numpy(ONES)
    answer = client.infer(name, [tensor])
    said = answer.get_response()
    version = said["model_version"] if module is httpclient else said.model_version
    return version, float(answer.as_numpy("scores")[0, 0])


class Load:
    """Clients of both protocols, each of which begins a new connection for some of its requests, and waits between them."""

    def __init__(self, server):
        self.answers: list[tuple[float, str, float]] = []
        self.errors: Counter = Counter()
        self._stop = threading.Event()
        targets = [(httpclient, server.http)] * 3 + [(grpcclient, server.grpc)] * 3
        self._threads = [threading.Thread(target=self._run, args=target) for target in targets]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, version: str) -> None:
        """Until that version has answered."""
        end = time.monotonic() + 120
        while not any(seen == version for _, seen, _ in list(self.answers)):
            assert time.monotonic() < end, self.errors
            time.sleep(0.05)

    def _run(self, module, address):
        while not self._stop.is_set():
            with module.InferenceServerClient(address) as client:
                for _ in range(20):
                    try:
                        version, score = _infer(client, module)
                    except InferenceServerException as error:
                        self.errors[str(error)] += 1
                    else:
                        self.answers.append((time.monotonic(), version, score))
                    if self._stop.wait(0.01):
                        break


def _everywhere(server, count: int = 40) -> set[tuple[str, float]]:
    """What new connections are answered: with so many of them, some reach each front end."""
    seen = set()
    for _ in range(count):
        with httpclient.InferenceServerClient(server.http) as client:
            version, score = _infer(client, httpclient)
            seen.add((version, round(score, 3)))
    return seen


def test_hot_reload_under_load_fails_no_request(start, repository):
    repository.package("tiny", scale=1.0)
    server = start(repository.path, frontends=2, model_control_mode="explicit", load_models=["tiny"])
    ((_, one),) = _everywhere(server)
    with httpclient.InferenceServerClient(server.http, network_timeout=60) as client, Load(server) as load:
        for version, scale in ((2, 2.0), (3, 3.0), (4, 4.0)):
            load.wait_for(str(version - 1))
            repository.add("tiny", version, scale=scale)
            client.load_model("tiny")
            # Once the call has returned, no front end answers by the old version any more.
            assert {seen for seen, _ in _everywhere(server)} == {str(version)}
        broken = repository.add("tiny", 5, scale=5.0) / "model.onnx"
        broken.write_bytes(broken.read_bytes()[:-1] + b"x")
        with pytest.raises(InferenceServerException, match="failed to load 'tiny'"):
            client.load_model("tiny")
        assert {seen for seen, _ in _everywhere(server)} == {"4"}
        load.wait_for("4")
    assert not load.errors, load.errors
    assert {version for _, version, _ in load.answers} == {"1", "2", "3", "4"}
    for _, version, score in load.answers:
        assert score == pytest.approx(int(version) * one, rel=1e-3)
    _closed = "the former version {} has answered its last request and is closed"
    end = time.monotonic() + 60
    while any(_closed.format(version) not in server.output for version in (1, 2, 3)):
        assert time.monotonic() < end, server.output
        time.sleep(0.05)
    assert server.stop() == 0, server.output


def test_load_and_unload_as_seen_by_every_front_end(start, repository):
    repository.package("tiny")
    repository.package("other")
    server = start(repository.path, frontends=2, model_control_mode="explicit")

    def status(path: str, data: bytes | None = None) -> int:
        try:
            with urllib.request.urlopen(urllib.request.Request(server.url + path, data=data), timeout=30) as response:
                return response.status
        except urllib.error.HTTPError as error:
            return error.code

    assert status("/v2/health/ready") == 200
    assert {status("/v2/models/tiny/ready") for _ in range(20)} == {404}
    with grpcclient.InferenceServerClient(server.grpc) as client:
        client.load_model("tiny")
        assert {status("/v2/models/tiny/ready") for _ in range(20)} == {200}
        assert {status("/v2/models/tiny_classify/ready") for _ in range(20)} == {200}
        assert {status("/v2/models/other/ready") for _ in range(20)} == {404}
        client.unload_model("tiny")
        assert {status("/v2/models/tiny/ready") for _ in range(20)} == {404}
    assert status("/v2/repository/models/nope/load", b"{}") == 404
    assert status("/v2/repository/models/other/load", json.dumps({"parameters": {"config": "{"}}).encode()) == 400


def test_what_clients_loaded_and_unloaded_outlives_the_engine(start, repository):
    """Twice, since an engine that was told by another tells the next one. One model's folder is gone by then, though the server
    was started with it."""
    for name in ("kept", "given", "asked", "gone"):
        repository.package(name)
    server = start(repository.path, frontends=1, model_control_mode="explicit", load_models=["kept", "given", "gone"])
    with httpclient.InferenceServerClient(server.http, network_timeout=60) as client:
        client.load_model("asked", config=json.dumps({"max_batch_size": 3}))
        client.unload_model("asked_classify")
        client.unload_model("given")
        client.unload_model("gone")
        (repository.path / "gone").rename(repository.tmp / "gone")
        wanted = {"kept", "kept_classify", "kept_decode", "asked", "asked_decode"}
        for _ in range(2):
            (engine,) = server.children("engine")
            engine.kill()
            engine.wait(60)
            end = time.monotonic() + 60
            while not client.is_server_ready():
                assert time.monotonic() < end, server.output
                time.sleep(0.05)
            assert {row["name"] for row in client.get_model_repository_index() if row.get("state") == "READY"} == wanted
            assert client.get_model_config("asked")["max_batch_size"] == 3
            client.load_model("asked_decode")  # without a configuration, so that the one given before stays
            assert client.get_model_config("asked")["max_batch_size"] == 3
        repository.configure("asked", "")  # written anew, so that it counts again
        client.load_model("asked")
        assert client.get_model_config("asked")["max_batch_size"] == 8


def test_control_is_refused_alike_unless_it_is_enabled(start, models):
    server = start(models, frontends=1)
    request = urllib.request.Request(f"{server.url}/v2/repository/models/tiny/unload", data=b"{}")
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request)
    assert error.value.code == 501
    assert "--model-control-mode explicit" in json.loads(error.value.read())["error"]


def test_the_response_cache_is_counted_in_one_place(start, models, make_photo):
    server = start(models, frontends=1, response_cache_bytes=1 << 20)
    for seed in (1, 2, 1, 1):
        request = urllib.request.Request(f"{server.url}/v1/classify/tiny", data=make_photo(seed))
        urllib.request.urlopen(request).close()
    with grpcclient.InferenceServerClient(server.grpc) as client:
        kinds = client.get_inference_statistics("tiny").model_stats[0].inference_stats
    assert (kinds.cache_hit.count, kinds.cache_miss.count, kinds.success.count) == (2, 2, 4)
