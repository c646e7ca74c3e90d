"""Versions come, fail and go while clients call without a pause: no request fails, and the answers change."""

import contextlib
import http.client
import json
import threading
import time

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

IMAGES = np.random.default_rng(5).normal(size=(3, 3, 16, 16)).astype(np.float32)
MANY = 64  # requests to a slow model, most of which still wait when all have come


class Load:
    """Clients in closed loops, of several kinds, which pause for a moment each time. `failures` has what went wrong; `scales`
    what each client was answered, in order and without repeats."""

    def __init__(self, server, scores_of, photo, right):
        self.failures: list = []
        kinds = (self._http, self._http, self._grpc, self._images, self._classify)
        self.scales: list[list[float]] = [[] for _ in kinds]
        self.counts = [0] * len(kinds)
        self._server, self._expected, self._photo, self._right = server, scores_of(IMAGES), photo, right
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number, kind)) for number, kind in enumerate(kinds)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join()

    def wait(self, more: int = 8) -> None:
        """Until every client had so many more answers."""
        until, end = [count + more for count in self.counts], time.monotonic() + 120
        while any(count < least for count, least in zip(self.counts, until, strict=True)) and not self.failures:
            assert time.monotonic() < end
            time.sleep(0.01)

    def _run(self, number, kind) -> None:
        try:
            with contextlib.ExitStack() as stack:
                call = kind(stack)
                while not self._over.wait(0.01):
                    scale = call()
                    if scale not in self.scales[number][-1:]:
                        self.scales[number].append(scale)
                    self.counts[number] += 1
        except Exception as error:  # noqa: BLE001  the test says what it was
            self.failures.append(error)

    def _scale(self, scores, expected) -> float:
        ratio = scores / expected
        np.testing.assert_allclose(ratio, ratio.flat[0], rtol=1e-3)
        return round(float(ratio.flat[0]), 2)

    def _triton(self, module, client):
        tensor = module.InferInput("images", list(IMAGES.shape), "FP32")
        tensor.set_data_from_numpy(IMAGES)
        return lambda: self._scale(client.infer("tiny", [tensor]).as_numpy("scores"), self._expected)

    def _http(self, stack):
        return self._triton(triton_http, stack.enter_context(triton_http.InferenceServerClient(self._server.http)))

    def _grpc(self, stack):
        return self._triton(triton_grpc, stack.enter_context(triton_grpc.InferenceServerClient(self._server.grpc)))

    def _images(self, stack):
        """The ensemble, which follows its target."""
        client = stack.enter_context(triton_grpc.InferenceServerClient(self._server.grpc))
        tensor = triton_grpc.InferInput("IMAGE", [1, 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[self._photo]], dtype=object))
        return lambda: self._scale(client.infer("tiny_classify", [tensor]).as_numpy("scores"), self._right[None])

    def _classify(self, stack):
        """The route for people, whose probabilities are those of one of the versions."""
        connection = http.client.HTTPConnection(self._server.http)
        stack.callback(connection.close)

        def call() -> float:
            connection.request("POST", "/v1/classify/tiny?k=7", self._photo)
            answer = connection.getresponse()
            body = json.loads(answer.read())
            assert answer.status == 200, body
            logs = {entry["index"]: np.log(entry["probability"]) for entry in body["predictions"]}
            first, last = int(np.argmax(self._right)), int(np.argmin(self._right))
            return round((logs[first] - logs[last]) / float(self._right[first] - self._right[last]), 2)

        return call


@pytest.fixture
def under_load(start, repository, scores_of, make_photo, reference):
    """Start a server of `repository` and clients that call `tiny` all the time."""

    def begin(**config):
        server = start(repository.path, **config)
        photo = make_photo(11)
        return server, Load(server, scores_of, photo, reference(photo)[1])

    return begin


def test_new_versions_and_a_broken_one_arrive_during_load(under_load, repository):
    repository.package("tiny")
    server, load = under_load(model_control_mode="explicit", load_models=["tiny"], instances=2)
    with load, triton_http.InferenceServerClient(server.http) as control:
        load.wait()
        for version, scale in ((2, 2), (3, 0.5), (4, np.nan), (5, 3)):
            repository.add("tiny", version, scale=scale)
            if version == 4:
                with pytest.raises(InferenceServerException, match="not finite"):
                    control.load_model("tiny")
            else:
                control.load_model("tiny")
            load.wait()
        (repository.path / "tiny" / "5").rename(repository.tmp / "withdrawn")
        with pytest.raises(InferenceServerException, match="version 4"):  # it is back to 3, and says why it is not 4
            control.load_model("tiny")
        load.wait()
    assert not load.failures, load.failures
    assert load.scales == [[1, 2, 0.5, 3, 0.5]] * 5
    index = httpx.post(f"{server.url}/v2/repository/index").json()
    states = {row["version"]: row["state"] for row in index if row["name"] == "tiny"}
    assert states == {"4": "UNAVAILABLE", "3": "READY", "2": "UNAVAILABLE", "1": "UNAVAILABLE"}
    assert server.stop() == 0, server.output


def test_the_decode_model_goes_on_counting_when_its_target_is_exchanged(start, repository, make_photo):
    repository.package("tiny")
    server = start(repository.path, model_control_mode="explicit", load_models=["*"])

    def classify_and_count() -> int:
        assert httpx.post(f"{server.url}/v1/classify/tiny", content=make_photo(5)).status_code == 200
        return httpx.get(f"{server.url}/v2/models/tiny_decode/stats").json()["model_stats"][0]["inference_count"]

    assert classify_and_count() == 1
    repository.add("tiny", 2, scale=2)
    assert httpx.post(f"{server.url}/v2/repository/models/tiny/load").status_code == 200
    assert [classify_and_count() for _ in range(2)] == [2, 3]
    assert server.stop() == 0, server.output


def test_a_folder_that_is_followed(under_load, repository):
    repository.package("tiny")
    server, load = under_load(model_control_mode="poll", repository_poll_seconds=0.1)

    def until(condition) -> None:
        end = time.monotonic() + 120
        while not condition():
            assert not load.failures, load.failures
            assert time.monotonic() < end, (load.scales, server.output)
            time.sleep(0.02)

    with load:
        load.wait()
        repository.package("tiny", scale=2)  # the whole folder is exchanged, with its companions
        until(lambda: all(scales[-1] == 2 for scales in load.scales))
        repository.add("tiny", 2, scale=np.nan)
        until(lambda: "not finite" in httpx.post(f"{server.url}/v2/repository/index").text)
        load.wait()
        repository.add("tiny", 7, scale=3)
        until(lambda: all(scales[-1] == 3 for scales in load.scales))
        repository.package("fresh")
        until(lambda: httpx.get(f"{server.url}/v2/models/fresh_classify/ready").status_code == 200)
        for name in ("fresh", "fresh_classify", "fresh_decode"):
            (repository.path / name).rename(repository.tmp / name)
        until(lambda: httpx.get(f"{server.url}/v2/models/fresh/ready").status_code == 404)
        assert "fresh" not in httpx.post(f"{server.url}/v2/repository/index").text
        load.wait()
    assert not load.failures, load.failures
    assert load.scales == [[1, 2, 3]] * 5
    assert server.stop() == 0, server.output


def test_what_is_copied_slowly_is_loaded_when_it_is_whole(start, repository):
    repository.package("tiny")
    server = start(repository.path, model_control_mode="poll", repository_poll_seconds=0.1)
    whole = repository.add("tiny", 2, scale=2).rename(repository.tmp / "whole")
    target = repository.path / "tiny" / "2"
    target.mkdir()
    for file in sorted(whole.iterdir()):
        data = file.read_bytes()
        with (target / file.name).open("wb") as copy:
            for at in range(0, len(data), 1 + len(data) // 4):
                copy.write(data[at : at + 1 + len(data) // 4])
                copy.flush()
                time.sleep(0.15)
    end = time.monotonic() + 120
    while httpx.get(f"{server.url}/v2/models/tiny").json()["versions"] != ["2"]:
        assert time.monotonic() < end, server.output
        time.sleep(0.02)
    assert server.stop() == 0, server.output


def test_a_folder_that_is_away_is_said_once(start, repository):
    repository.package("tiny")
    server = start(repository.path, model_control_mode="poll", repository_poll_seconds=0.1)
    away = repository.path.rename(repository.tmp / "away")
    end = time.monotonic() + 120
    while "cannot be followed" not in server.output:
        assert time.monotonic() < end, server.output
        time.sleep(0.02)
    time.sleep(1.5)  # in which it looks again, ten times where nothing else takes the processor
    assert httpx.get(f"{server.url}/v2/models/tiny/ready").status_code == 200
    away.rename(repository.path)
    end = time.monotonic() + 120
    while "can be followed again" not in server.output:
        assert time.monotonic() < end, server.output
        time.sleep(0.02)
    assert server.output.count("cannot be followed") == 1
    assert "Traceback" not in server.output
    assert httpx.get(f"{server.url}/v2/models/tiny/ready").status_code == 200


def test_an_empty_folder_is_not_ready_until_a_model_arrives(start, repository):
    server = start(repository.path, model_control_mode="poll", repository_poll_seconds=0.1)
    assert httpx.get(f"{server.url}/v2/health/ready").status_code == 503
    repository.package("tiny")
    end = time.monotonic() + 120
    while httpx.get(f"{server.url}/v2/health/ready").status_code != 200:
        assert time.monotonic() < end, server.output
        time.sleep(0.02)


def test_unloading_answers_what_was_accepted(start, slow_models):
    server = start(slow_models, model_control_mode="explicit", load_models=["slow"])
    tensor = triton_grpc.InferInput("images", [1, 3, 16, 16], "FP32")
    tensor.set_data_from_numpy(IMAGES[:1])
    results, done = [], threading.Event()

    def accepted() -> int:
        (slow,) = (one for one in httpx.get(f"{server.url}/v1/figures").json()["models"] if one["name"] == "slow")
        return slow["answered"] + sum(slow["queue"].values())

    def collect(result, error) -> None:
        results.append(error or result)
        if len(results) == MANY:
            done.set()

    with triton_grpc.InferenceServerClient(server.grpc) as client:
        for _ in range(MANY):
            client.async_infer("slow", [tensor], callback=collect)
        while accepted() < MANY:
            time.sleep(0.005)
        client.unload_model("slow")
        waiting = MANY - len(results)
        with pytest.raises(InferenceServerException, match="not served"):
            client.infer("slow", [tensor])
        assert done.wait(120)
        failed = [result for result in results if isinstance(result, Exception)]
        assert not failed
        assert waiting > 0  # or nothing was shown
        while [row.state for row in client.get_model_repository_index().models if row.name == "slow"] != ["UNAVAILABLE"]:
            time.sleep(0.005)
    assert server.stop() == 0, server.output
