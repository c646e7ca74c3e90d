"""What happens to requests when processes stop or are killed while they are busy: real servers, real clients, real signals."""

import http.client
import json
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections import Counter

import numpy as np
import onnx
import psutil
import pytest
import tritonclient.grpc as grpcclient
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

from headrace.runtime.artifact.package import write_package
from headrace.specs import Signature, TensorSpec

SIDE = 16


class Load:
    """Clients in threads that call `_run` until it has been left; it begins when some requests have been answered.

    Each waits a moment between its requests.
    """

    _PAUSE = 0.02

    answered: object  # the outcome that counts as an answer

    def __init__(self, threads: list[threading.Thread]):
        self.outcomes: Counter = Counter()
        self._stop = threading.Event()
        self._threads = threads

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        end = time.monotonic() + 120
        while self.outcomes[self.answered] < 10:
            assert time.monotonic() < end, self.outcomes
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()


class HttpLoad(Load):
    """Clients that send one image after another; each outcome is counted as what a caller sees.

    A status, "refused" when no connection could be made, or "broken" when a connection ended without an answer.
    """

    answered = 200

    def __init__(self, server, image: bytes, *, clients: int = 6, keep_alive: bool = True, path: str = "/v1/classify/tiny"):
        self._address = server.http.split(":")
        self._image = image
        self._keep_alive = keep_alive
        self._path = path
        self.without_retry_after = 0
        self.last = ""
        super().__init__([threading.Thread(target=self._run) for _ in range(clients)])

    def _run(self):
        connection = None
        while not self._stop.is_set():
            if connection is None:
                connection = http.client.HTTPConnection(*self._address, timeout=30)
                try:
                    connection.connect()
                except (ConnectionRefusedError, ConnectionAbortedError):
                    self.outcomes["refused"] += 1
                    connection = None
                    time.sleep(0.05)
                    continue
            try:
                headers = {} if self._keep_alive else {"Connection": "close"}
                connection.request("POST", self._path, self._image, headers)
                answer = connection.getresponse()
                answer.read()
            except (http.client.HTTPException, OSError) as error:
                self.outcomes["broken"] += 1
                self.last = repr(error)
                connection.close()
                connection = None
                self._stop.wait(self._PAUSE)
                continue
            self.outcomes[answer.status] += 1
            if answer.status == 503 and not int(answer.headers.get("Retry-After", 0)):
                self.without_retry_after += 1
            if answer.will_close:
                connection.close()
                connection = None
            self._stop.wait(self._PAUSE)
        if connection is not None:
            connection.close()


class GrpcLoad(Load):
    """The same over gRPC, each client with a connection of its own: "ok", or the status code of the error."""

    answered = "ok"

    def __init__(self, server, *, clients: int = 4):
        self._address = server.grpc
        super().__init__([threading.Thread(target=self._run, args=(number,)) for number in range(clients)])

    def _run(self, number):
        # Channels with equal arguments share a connection.
        options = [("headrace.client", number), ("grpc.max_reconnect_backoff_ms", 200)]
        with grpcclient.InferenceServerClient(self._address, channel_args=options) as client:
            images = np.zeros((1, 3, SIDE, SIDE), np.float32)
            tensor = grpcclient.InferInput("images", images.shape, "FP32")
            tensor.set_data_from_numpy(images)
            while not self._stop.is_set():
                try:
                    client.infer("tiny", [tensor], client_timeout=30)
                except InferenceServerException as error:
                    self.outcomes[error.status()] += 1
                    time.sleep(0.05)
                else:
                    self.outcomes["ok"] += 1
                    self._stop.wait(self._PAUSE)


def _is_ready(server) -> bool:
    try:
        with urllib.request.urlopen(f"{server.url}/v2/health/ready", timeout=30) as response:
            return response.status == 200
    except OSError:  # a connection to a process that is being killed may break
        return False


def _until(condition, what: str) -> None:
    """That it happens is what is tested; how soon, is not: a machine with other work takes long for anything."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def _metric(server, name: str) -> float:
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))


def _come(server) -> int:
    """Requests for `slow` that have come: those that were answered, and those that still wait or run."""
    with urllib.request.urlopen(f"{server.url}/v1/figures", timeout=60) as response:
        (slow,) = (one for one in json.load(response)["models"] if one["name"] == "slow")
    return slow["answered"] + sum(slow["queue"].values())


# 0: tests/serving/test_lifecycle.py
@pytest.mark.parametrize("frontends", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_sigterm_under_load_breaks_no_request(start, models, make_photo, frontends):
    server = start(models, frontends=frontends)
    children = [*server.children("engine"), *server.children("frontend")]
    image = make_photo(0)
    with (
        HttpLoad(server, image, clients=4) as kept,
        HttpLoad(server, image, clients=4, keep_alive=False) as new,
        GrpcLoad(server) as calls,
    ):
        time.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) == 0, server.output
    assert set(kept.outcomes) <= {200, "refused"}, (kept.outcomes, kept.last)
    assert set(new.outcomes) <= {200, "refused"}, (new.outcomes, new.last)
    assert set(calls.outcomes) <= {"ok", "StatusCode.UNAVAILABLE"}, calls.outcomes
    assert not any(process.is_running() for process in children)


def test_sigterm_answers_what_waits(start, slow_models, make_photo):
    server = start(slow_models, frontends=2)
    connections = []
    for number in range(80):  # most still wait when all have come
        image = make_photo(number)
        connection = socket.create_connection(server.http.split(":"), timeout=60)
        connection.sendall(
            b"POST /v1/classify/slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(image) + image
        )
        connections.append(connection)
    _until(lambda: _come(server) == 80, "some do not come")
    server.process.send_signal(signal.SIGTERM)
    answers = [connection.recv(4096) for connection in connections]
    assert all(b" 200 " in answer for answer in answers), answers
    assert server.process.wait(120) == 0, server.output


def test_a_killed_front_end_takes_only_its_own_connections_along(start, models, make_photo):
    server = start(models, frontends=2)
    victim, other = server.children("frontend")
    with HttpLoad(server, make_photo(0)) as load, GrpcLoad(server) as calls:
        time.sleep(0.3)
        victim.kill()
        _until(lambda: len(server.children("frontend")) == 2, "no new front end")
        time.sleep(2)
        before = load.outcomes[200]
        _until(lambda: load.outcomes[200] > before, "nobody is answered any more")
    assert set(load.outcomes) <= {200, "broken"}, load.outcomes
    assert load.outcomes["broken"] <= 12  # once per client, and once more where one was let in while the process died
    assert set(calls.outcomes) <= {"ok", "StatusCode.UNAVAILABLE"}, calls.outcomes
    assert other.is_running()
    assert _is_ready(server)
    _until(lambda: _metric(server, "nv_inference_pending_request_count") == 0, "a request is left")
    _until(lambda: all(process.num_fds() for process in server.children("frontend")), "a front end is gone again")
    assert "SIGKILL" in server.output


def test_the_replacement_of_a_front_end_takes_no_connection_before_it_can_answer(start, models):
    server = start(models, frontends=2)
    server.children("frontend")[0].kill()
    codes: Counter[int] = Counter()
    begin = time.monotonic()
    # A connection each, so that the kernel chooses among those that listen; many of them on a machine with other work, too.
    while time.monotonic() < begin + 8 or codes[200] < 300 or len(server.children("frontend")) < 2:
        assert time.monotonic() < begin + 240, codes
        try:
            with urllib.request.urlopen(f"{server.url}/v2/health/ready", timeout=30) as response:
                codes[response.status] += 1
        except urllib.error.HTTPError as error:
            codes[error.code] += 1
        except OSError:
            codes[0] += 1  # it was the killed one's
        time.sleep(0.02)
    assert len(server.children("frontend")) == 2
    assert set(codes) <= {0, 200}, codes
    assert codes[0] <= 6, "one after the other, few could meet the killed one before it was gone"


def test_a_killed_engine_is_a_clean_error_and_comes_back(start, models, make_photo):
    server = start(models, frontends=2)
    (engine,) = server.children("engine")
    with (
        grpcclient.InferenceServerClient(server.grpc) as client,
        HttpLoad(server, make_photo(0)) as load,
        GrpcLoad(server) as calls,
    ):
        time.sleep(0.3)
        assert client.is_server_ready()
        engine.kill()
        _until(lambda: not _is_ready(server), "it went on saying that it is ready")
        assert not client.is_server_ready()
        assert client.is_server_live()
        _until(lambda: _is_ready(server) and client.is_server_ready(), "it did not come back")
        before = load.outcomes[200]
        _until(lambda: load.outcomes[200] > before + 10, "it says that it is ready, and does not answer")
    assert set(load.outcomes) == {200, 503}, load.outcomes
    assert load.without_retry_after == 0
    assert set(calls.outcomes) == {"ok", "StatusCode.UNAVAILABLE"}, calls.outcomes
    _until(lambda: _metric(server, "nv_inference_pending_request_count") == 0, "a request is left")
    again = HttpLoad(server, make_photo(1))
    with again:
        time.sleep(0.3)
    assert set(again.outcomes) == {200}, again.outcomes


def _ask_together(server, make_photo, count: int, meanwhile=lambda answers: None) -> list[tuple[int, str, str]]:
    """Status, Retry-After and error of so many requests at once; `meanwhile` sees those that are there so far."""
    answers = []

    def ask(number: int) -> None:
        request = urllib.request.Request(f"{server.url}/v1/classify/slow", data=make_photo(number))
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                answers.append((response.status, "", ""))
        except urllib.error.HTTPError as error:
            answers.append((error.code, error.headers.get("Retry-After"), json.loads(error.read())["error"]))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    meanwhile(answers)
    for thread in threads:
        thread.join()
    return answers


def test_requests_in_flight_when_the_engine_dies_are_answered_503(start, slow_models, make_photo):
    server = start(slow_models, frontends=1)

    def kill(_) -> None:
        _until(lambda: _metric(server, "nv_inference_pending_request_count") >= 4, "nothing waits")
        server.children("engine")[0].kill()

    answers = _ask_together(server, make_photo, 64, kill)
    lost = [answer for answer in answers if answer[0] != 200]
    assert lost
    assert all(status == 503 and int(retry_after) >= 1 and "engine" in text for status, retry_after, text in lost), answers


def test_nothing_outlives_a_killed_supervisor(start, models, make_photo):
    before = set(os.listdir("/dev/shm"))
    server = start(models, frontends=2)
    children = [*server.children("engine"), *server.children("frontend")]
    assert len(children) == 3
    with HttpLoad(server, make_photo(0)):
        server.process.kill()
        server.process.wait()
        _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
    left = set(os.listdir("/dev/shm")) - before  # what other tests put there comes and goes
    _until(lambda: left.isdisjoint(os.listdir("/dev/shm")), "shared memory is left")
    for address in (server.http, server.grpc, server.metrics):
        host, port = address.split(":")
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind((host, int(port)))


def test_memory_for_requests_is_bounded(start, slow_models, make_photo):
    """A block for one row of `slow` takes 3,136 bytes, so that five requests fit; the others are refused at once."""
    server = start(slow_models, frontends=1, ring_bytes=16_384 + 12_288)
    (engine,) = server.children("engine")

    def resume(answers) -> None:
        end = time.monotonic() + 1.5  # sooner than an engine counts as hung
        while not answers and time.monotonic() < end:
            time.sleep(0.005)
        engine.send_signal(signal.SIGCONT)

    engine.send_signal(signal.SIGSTOP)  # so that none is answered before the others come
    answers = _ask_together(server, make_photo, 40, resume)
    refused = [answer for answer in answers if answer[0] != 200]
    assert 0 < len(refused) < 40
    assert all(status == 503 and int(retry_after) >= 1 and "memory" in text for status, retry_after, text in refused)
    assert _ask_together(server, make_photo, 1)[0][0] == 200


def test_a_second_signal_ends_everything_at_once(start, models):
    server = start(models, frontends=2, drain_seconds=600.0, body_timeout_seconds=600.0)
    children = [*server.children("engine"), *server.children("frontend")]
    holding = socket.create_connection(server.http.split(":"), timeout=60)
    head = b"POST /v1/classify/tiny HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"
    holding.sendall(head + b"half")
    assert b" 100 " in holding.recv(4096)  # it is there, and waited for
    server.process.send_signal(signal.SIGTERM)
    _until(lambda: "draining" in server.output, "the first signal was not heard")
    time.sleep(1)
    assert server.process.poll() is None  # it waits for the half request
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 128 + signal.SIGTERM
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
    holding.close()


def test_signals_to_the_whole_group_drain_once(models, server_class, tmp_path, make_photo):
    """As a terminal's Ctrl-C or a service manager sends them."""
    server = server_class(models, tmp_path, frontends=2, new_session=True)
    try:
        with HttpLoad(server, make_photo(0)) as load:
            time.sleep(0.3)
            os.killpg(server.process.pid, signal.SIGINT)
            assert server.process.wait(120) == 0, server.output
        assert set(load.outcomes) <= {200, "refused"}, load.outcomes
    finally:
        server.process.kill()
        server.process.wait()


def test_a_second_server_cannot_share_a_port(start, models):
    from headrace.errors import HeadraceError
    from headrace.serving.config import ServeConfig
    from headrace.serving.processes.supervisor import Supervisor

    server = start(models, frontends=1)
    for taken in ("http", "grpc", "metrics"):
        port = int(getattr(server, taken).split(":")[1])
        ports = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, f"{taken}_port": port}
        with pytest.raises(HeadraceError, match=f"{port}.*--{taken}-port"):
            Supervisor(ServeConfig.of(models=models, frontends=1, **ports))


def _serve_in_vain(headrace, models, *options: str) -> str:
    """What the command says about models of which it can serve none."""
    ports = ("--http-port", 0, "--grpc-port", 0, "--metrics-port", 0)
    done = headrace("serve", models, "--frontends", 1, *options, *ports, timeout=60)
    assert done.returncode == 2
    assert "none of the models" in done.stderr
    return done.stderr


def test_models_that_cannot_be_served_are_said_at_once(warm_command, tmp_path, models):
    (tmp_path / "damaged").symlink_to(models / "damaged")
    assert "damaged/1/model.onnx is not the file" in _serve_in_vain(warm_command, tmp_path)


def test_a_model_whose_requests_do_not_fit_the_memory_says_so(warm_command, tmp_path):
    files, folder = tmp_path / "files", tmp_path / "models"
    files.mkdir()
    folder.mkdir()
    side, rows = 400, 2
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", side, side])
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])],
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", side, side])],
        [output],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), files / "model.onnx")
    specs = [TensorSpec(name=name, dtype="float32", shape=("batch", side, side)) for name in "xy"]
    write_package(
        folder / "large",
        name="large",
        files_from=files,
        signature=Signature(inputs=(specs[0],), outputs=(specs[1],)),
        preprocessing=None,
        labels=None,
        parity={},
        plans=[],
        provenance={},
        max_batch_size=rows,
    )
    said = _serve_in_vain(warm_command, folder, "--ring-mib", "1")
    assert "a request of 2 rows takes 2,560,000 bytes of shared memory" in said
    assert "--ring-mib" in said
