"""`headrace serve --ray` on a Ray cluster of this machine. `make test-ray` runs it."""

import contextlib
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import psutil
import pytest

pytestmark = pytest.mark.skipif(
    not os.environ.get("HEADRACE_TEST_RAY"), reason="needs Ray Serve and minutes; `make test-ray` runs it"
)
TOKEN = "a-token-of-the-tests"


@pytest.fixture(scope="module")
def cluster():
    """A head with four cores, which only processes with the same token can join."""
    before = dict(os.environ)
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16), "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ |= {"RAY_raylet_start_wait_time_s": "120"}  # small machines need more than the 30 that are given
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    try:
        yield made
    finally:
        made.shutdown()
        os.environ.clear()
        os.environ |= before


def workers(cluster, kind: str) -> list[psutil.Process]:
    """Processes of Ray Serve on the node: "ServeReplica:headrace-engines:Engine", "ServeController", "ProxyActor"."""
    found = []
    for info in cluster.head_node.all_processes["raylet"]:
        for process in psutil.Process(info.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if f"ray::{kind}" in " ".join(process.cmdline()):
                    found.append(process)
    return found


class Deployed:
    """A `headrace serve --ray` process."""

    def __init__(self, cluster, models, folder, *options):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log, self.ready = folder / "log.txt", folder / "ready.json"
        line = [
            "serve", models, "--ray", "--ray-address", cluster.address, "--http-port", self.port, "--ready-file", self.ready,
            "--instances", 1, *options,
        ]  # fmt: skip
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", *map(str, line)], stdout=log, stderr=subprocess.STDOUT
            )
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait(self, condition, seconds: float = 100):
        end = time.monotonic() + seconds
        while not (found := condition()):
            assert self.process.poll() is None, self.output
            assert time.monotonic() < end, self.output
            time.sleep(0.1)
        return found

    def client(self, **options) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False, **options)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


@pytest.fixture
def deploy(cluster, tmp_path_factory):
    started = []

    def begin(models, *options, ready: bool = True) -> Deployed:
        deployed = Deployed(cluster, models, tmp_path_factory.mktemp("deployed"), *options)
        started.append(deployed)
        if ready:
            deployed.wait(deployed.ready.exists)
        return deployed

    yield begin
    for deployed in started:
        if deployed.process.poll() is None:
            deployed.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                deployed.process.wait(90)
        deployed.process.kill()
        deployed.process.wait()


class Load:
    """Clients that send one request after another until the block ends. `outcomes` are statuses, or names of errors; each of
    `sequences` are those of one client."""

    def __init__(self, deployed, path: str, body: dict, clients: int):
        self._deployed, self._path, self._body = deployed, path, body
        self._end = threading.Event()
        self._pool = ThreadPoolExecutor(clients)
        self._clients = clients
        self.sequences: list[list] = []
        self.replicas: set[str] = set()

    @property
    def outcomes(self) -> list:
        return [outcome for sequence in self.sequences for outcome in list(sequence)]

    def __enter__(self):
        self._done = [self._pool.submit(self._work) for _ in range(self._clients)]
        return self

    def __exit__(self, *_):
        self._end.set()
        self._pool.shutdown()
        for done in self._done:
            done.result()

    def _work(self):
        outcomes = []
        self.sequences.append(outcomes)
        with self._deployed.client() as client:
            while not self._end.is_set():
                try:
                    answer = client.post(self._path, json=self._body)
                except httpx.TransportError as error:
                    outcomes.append(type(error).__name__)
                    time.sleep(0.1)
                    continue
                outcomes.append(answer.status_code)
                self.replicas.add(answer.headers.get("headrace-replica", ""))
                if answer.status_code == 503:
                    assert answer.json()["error"]
                    time.sleep(0.05)


def test_answers_are_those_of_one_server(cluster, deploy, start, models, small_requests, said_of, tmp_path):
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'infer = ["{TOKEN}"]\nadmin = ["{TOKEN}"]\n')
    deployed = deploy(models, "--token-file", tokens)
    assert re.search(rf"serving fragile, .*tiny_classify.* at http://127.0.0.1:{deployed.port}", deployed.output)
    assert "damaged: not served:" in deployed.output
    server, token = start(models, token_file=tokens), {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=server.url, headers=token) as one, deployed.client(headers=token) as client:
        for name, request in small_requests.items():
            answer = client.request(**request)
            assert said_of(answer) == said_of(one.request(**request)), name
            assert len(answer.headers.get_list("x-request-id")) == 1, name
        assert client.get("/v2", headers={"X-Request-Id": "mine"}).headers.get_list("x-request-id") == ["mine"]
    with deployed.client() as client:
        assert client.get("/v2/health/ready").status_code == 200
        assert client.post("/v2/models/tiny/infer", json={}).status_code == 401
    assert workers(cluster, "ServeController")
    assert deployed.stop() == 0, deployed.output
    assert "draining" in deployed.output
    end = time.monotonic() + 30
    while left := [process for kind in ("Serve", "ProxyActor") for process in workers(cluster, kind)]:
        assert time.monotonic() < end, left
        time.sleep(0.2)


def test_a_replica_drops_a_model_for_another(deploy, repository, infer_body, scores_of):
    """Two models and room for one, asked for at the same time: every answer is that of the model it was asked of."""
    scales = {"one": 1.0, "two": 2.0}
    for name, scale in scales.items():
        repository.package(name, scale=scale)
    deployed = deploy(repository.path, "--models-per-replica", 1, "--max-replicas", 1)
    body, images = infer_body(1)

    def ask(name: str) -> None:
        with deployed.client() as client:
            for _ in range(5):
                answer = client.post(f"/v2/models/{name}/infer", json=body)
                assert answer.status_code == 200, answer.text
                found = np.array(answer.json()["outputs"][0]["data"], np.float32)
                np.testing.assert_allclose(found, scales[name] * scores_of(images)[0], rtol=1e-4, atol=1e-5)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(ask, name) for name in ("one", "two", "one", "two")]:
            done.result()
    with deployed.client() as client:
        client.post("/v2/models/two/infer", json=body)
        states = {row["name"]: row["state"] for row in client.post("/v2/repository/index").json()}
        assert (states["two"], states["two_classify"], states["one"]) == ("READY", "READY", "UNAVAILABLE")
        assert client.post("/v2/models/one/infer", json=body).status_code == 200
        states = {row["name"]: row["state"] for row in client.post("/v2/repository/index").json()}
        assert (states["one"], states["two"]) == ("READY", "UNAVAILABLE")
    assert deployed.stop() == 0, deployed.output


def test_load_adds_a_replica_and_one_that_is_killed_comes_back(cluster, deploy, busy_models, infer_body):
    deployed = deploy(busy_models, "--max-replicas", 2, "--target-requests", 2, "--upscale-secs", 2, "--downscale-secs", 600)
    body, _ = infer_body(2)
    path = "/v2/models/slow/infer"
    assert len(workers(cluster, "ServeReplica:headrace-engines")) == 1
    with Load(deployed, path, body, clients=8) as load:
        deployed.wait(lambda: len(load.replicas - {""}) == 2)
        deployed.wait(lambda: "replicas: 2" in deployed.output)
        assert set(load.outcomes) <= {200, 503}
        victims = workers(cluster, "ServeReplica:headrace-engines")
        assert len(victims) == 2
        before = set(load.replicas)
        victims[0].kill()
        deployed.wait(lambda: len(load.replicas - before - {""}) == 1)
        answered = load.outcomes.count(200)
        deployed.wait(lambda: load.outcomes.count(200) > answered + 20)
        assert set(load.outcomes) <= {200, 503}
        # And the end, while requests are under way: what was accepted is answered.
        assert deployed.stop() == 0, deployed.output
    for sequence in load.sequences:
        first = next(outcome for outcome in sequence if outcome not in (200, 503))
        assert first == 404, sequence[-50:]  # Ray Serve's, once there is nothing at the path any more


def test_a_node_that_cannot_read_the_models_says_so(deploy, repository):
    repository.package("one")
    deployed = deploy(repository.path, ready=False)
    deployed.wait(lambda: "starting 1 to 4 replicas" in deployed.output)
    repository.path.rename(repository.path.with_name("elsewhere"))
    assert deployed.process.wait(240) == 2, deployed.output
    assert re.search(r"node [\d.]+ of the cluster cannot serve", deployed.output), deployed.output
    assert "Every node needs the models folder under the same path" in deployed.output
    assert "Traceback" not in deployed.output


def test_more_cores_than_any_node_has(deploy, models):
    deployed = deploy(models, "--cpus-per-replica", 64, ready=False)
    assert deployed.process.wait(120) == 2
    assert "no node has 64 cores and 0 GPUs for a replica" in deployed.output
