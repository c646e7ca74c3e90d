"""One request that would keep everybody else waiting: long or packed JSON. Others are answered meanwhile, and it is bounded."""

import http.client
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import psutil
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.serving.attacks.bodies import BODIES, MESSAGES, blanks

# On idle cores the worst is some tens of milliseconds (docs/reliability.md); machines that run tests are not idle.
LONGEST = 2.0


class Waiting:
    """For how long a server kept someone waiting: seconds, but no more than those of the processor that it took meanwhile. The
    rest of the time other programs had the processor, and whoever waits for them says nothing about the server."""

    def __init__(self, server):
        self._process = psutil.Process(server.process.pid)
        self._begin, self._used = time.monotonic(), sum(self._process.cpu_times()[:2])

    @property
    def seconds(self):
        return min(time.monotonic() - self._begin, sum(self._process.cpu_times()[:2]) - self._used)


class Prober:
    """Asks whether the server lives, again and again, and remembers the longest wait."""

    def __init__(self, server):
        self.longest = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(server,))

    def _work(self, server):
        connection = http.client.HTTPConnection(server.http, timeout=200)
        while not self._stop.wait(0.005):
            waiting = Waiting(server)
            connection.request("GET", "/v2/health/live")
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
            self.longest = max(self.longest, waiting.seconds)
        connection.close()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


@pytest.fixture(scope="module")
def patient(models, launch):
    """A server that waits for messages of tens of megabytes as long as a busy machine takes to send them."""
    with launch(models) as server:
        yield server


# Packed blanks are sent again and again below; a control call reads its body as the index does.
ALSO = (
    "packed blanks",
    "packed lists",
    "blanks before a head that is cut",
    "a string with no end",
    "empty lists for a control call",
)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in ALSO else name for name in BODIES])
def test_others_hear_that_the_server_lives(name, target, request_to):
    path, make, headers = BODIES[name]
    body = make()
    with Prober(target) as prober:
        status, text = request_to(target.http, "POST", path, body, headers)
    assert status in (400, 413, 501, 503), text
    assert prober.longest < LONGEST


@pytest.mark.parametrize("name", MESSAGES)
def test_others_hear_that_the_server_lives_over_grpc(name, patient):
    """The library reads a message in one go: a second for numbers of a byte each, hundreds of megabytes for empty inputs."""
    message = MESSAGES[name]()
    with grpc.insecure_channel(patient.grpc, options=[("grpc.max_send_message_length", -1)]) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with Prober(patient) as prober, pytest.raises(grpc.RpcError) as caught:
            call(message, timeout=200)
    assert caught.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT), caught.value
    assert prober.longest < LONGEST


def test_the_document_of_all_routes_again_and_again(target):
    """It was written out for each request, milliseconds of the event loop, and a connection may ask for many at once."""
    process = psutil.Process(target.process.pid)
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n"
    asked = (asked + b"\r\n") * 59 + asked + b"Connection: close\r\n\r\n"
    before = sum(process.cpu_times()[:2])
    with Prober(target) as prober, ThreadPoolExecutor(8) as pool:

        def ask(_):
            with socket.create_connection(target.http.split(":"), timeout=200) as connection:
                connection.sendall(asked)
                return sum(len(part) for part in iter(lambda: connection.recv(1 << 20), b""))

        assert len(set(pool.map(ask, range(16)))) == 1
    assert prober.longest < LONGEST
    assert (sum(process.cpu_times()[:2]) - before) / (16 * 60) < 0.003, "seconds for each"


@pytest.mark.parametrize(("attackers", "images"), [(3, 5), pytest.param(6, 20, marks=pytest.mark.slow)])
def test_packed_bodies_do_not_stop_images(target, request_to, make_photo, attackers, images):
    """Several that unpack to 127 MiB each, and again as soon as they are answered; images are answered beside them."""
    stop, packed = threading.Event(), blanks()

    def attack() -> list[int]:
        statuses = []
        while not stop.is_set():
            statuses.append(request_to(target.http, "POST", "/v2/models/tiny/infer", packed, {"Content-Encoding": "gzip"})[0])
        return statuses

    with ThreadPoolExecutor(attackers) as pool, Prober(target) as prober:
        attacks = [pool.submit(attack) for _ in range(attackers)]
        try:
            for seed in range(images):
                waiting = Waiting(target)
                assert request_to(target.http, "POST", "/v1/classify/tiny", make_photo(seed))[0] == 200
                assert waiting.seconds < 5
        finally:
            stop.set()
        assert {status for one in attacks for status in one.result()} <= {400, 413, 503}
    assert prober.longest < LONGEST


def test_numbers_one_by_one_over_grpc(patient):
    """As fields of a message: decoding them took the event loop a second."""
    request = service_pb2.ModelInferRequest(model_name="tiny")
    values = np.zeros(7 << 20, np.float32)
    tensor = request.inputs.add(name="images", datatype="FP32", shape=[len(values)])
    tensor.contents.fp32_contents.extend(values.tolist())
    with grpc.insecure_channel(patient.grpc, options=[("grpc.max_send_message_length", -1)]) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with Prober(patient) as prober, pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(request, timeout=200)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert prober.longest < LONGEST
        with pytest.raises(grpc.RpcError) as caught:
            stub.RepositoryIndex(service_pb2.RepositoryIndexRequest(repository_name="x" * 100_000), timeout=200)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
