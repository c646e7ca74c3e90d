"""grpc.health.v1 with its own client: the server's health and each model's, asked and watched, in one process and several."""

import contextlib
import os
import queue
import signal
import socket
import threading
import time

import grpc
import pytest
import tritonclient.grpc as triton_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

SERVICE = "inference.GRPCInferenceService"
UNKNOWN, SERVING, NOT_SERVING, SERVICE_UNKNOWN = 0, 1, 2, 3
TOKENS = {name: f"{name}-0123456789abcdef" for name in ("infer", "admin", "metrics")}


class Watch:
    """A running `Watch`: what it has said, and how it ended."""

    def __init__(self, address: str, service: str, metadata=()):
        self.said: queue.Queue = queue.Queue()
        self._channel = grpc.insecure_channel(address)
        self._call = health_pb2_grpc.HealthStub(self._channel).Watch(
            health_pb2.HealthCheckRequest(service=service), metadata=metadata, timeout=120
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            for answer in self._call:
                self.said.put(answer.status)
            self.said.put("end")
        except grpc.RpcError as error:
            self.said.put(error.code().name)

    def next(self, timeout: float = 60):
        return self.said.get(timeout=timeout)

    def close(self) -> None:
        self._call.cancel()
        self._thread.join()
        self._channel.close()


@pytest.fixture
def watch():
    with contextlib.ExitStack() as stack:

        def begin(server, service="", metadata=()) -> Watch:
            begun = Watch(server.grpc, service, metadata)
            stack.callback(begun.close)
            return begun

        yield begin


def _check(server, service: str, metadata=()):
    with grpc.insecure_channel(server.grpc) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            return stub.Check(health_pb2.HealthCheckRequest(service=service), metadata=metadata, timeout=30).status
        except grpc.RpcError as error:
            return error.code().name


def test_check(server):
    for service, status in {
        "": SERVING, SERVICE: SERVING, "tiny": SERVING, "tiny_classify": SERVING, "damaged": NOT_SERVING,
        "nope": "NOT_FOUND", "../tiny": "NOT_FOUND", "tiny/1": "NOT_FOUND", "\0": "NOT_FOUND", "x" * 10_000: "NOT_FOUND",
    }.items():  # fmt: skip
        assert _check(server, service) == status, service


@pytest.mark.parametrize("frontends", [0, 2])
def test_watch_sees_models_go_and_come_and_the_drain(repository, start, watch, frontends):
    repository.package("tiny")
    # Ten minutes for the drain: far longer than a machine with other work needs, and than a test may take.
    config = {"model_control_mode": "explicit", "load_models": ("tiny",), "drain_seconds": 600.0}
    server = start(repository.path, frontends=frontends, **config)
    watches = {service: watch(server, service) for service in ("", SERVICE, "tiny", "tiny_classify", "later")}
    assert {service: one.next() for service, one in watches.items()} == {
        "": SERVING, SERVICE: SERVING, "tiny": SERVING, "tiny_classify": SERVING, "later": SERVICE_UNKNOWN,
    }  # fmt: skip
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        repository.add("tiny", 2, scale=2.0)
        client.load_model("tiny")  # a version is exchanged while the model serves: nothing to tell
        client.unload_model("tiny")
        assert (watches["tiny"].next(), watches["tiny_classify"].next()) == (NOT_SERVING, NOT_SERVING)
        client.load_model("tiny")
        assert (watches["tiny"].next(), watches["tiny_classify"].next()) == (SERVING, SERVING)
        repository.package("later")
        client.load_model("later")
        told = [watches["later"].next()]
        while told[-1] != SERVING:  # it may be seen while it loads
            told.append(watches["later"].next())
        assert told in ([SERVING], [NOT_SERVING, SERVING])
    assert all(one.said.empty() for one in watches.values())
    server.process.send_signal(signal.SIGTERM)
    for service, one in watches.items():
        assert (one.next(), one.next()) == (NOT_SERVING, "end"), service
    assert server.process.wait(120) == 0, "open watches do not hold up the drain"


def test_watch_of_a_poll_server(repository, start, watch):
    """It becomes ready once something serves, and ceases to be when nothing does."""
    server = start(repository.path, model_control_mode="poll", repository_poll_seconds=0.2)
    whole = watch(server)
    assert whole.next() == NOT_SERVING
    repository.package("tiny")
    assert whole.next() == SERVING
    for folder in list(repository.path.iterdir()):
        folder.rename(repository.tmp / f"away-{folder.name}")
    assert whole.next() == NOT_SERVING


def test_watch_sees_the_engine_end_and_come_back(models, start, watch):
    server = start(models, frontends=1)
    whole, tiny = watch(server), watch(server, "tiny")
    assert (whole.next(), tiny.next()) == (SERVING, SERVING)
    (engine,) = server.children("engine")
    os.kill(engine.pid, signal.SIGKILL)
    assert (whole.next(), tiny.next()) == (NOT_SERVING, NOT_SERVING)
    assert (whole.next(), tiny.next()) == (SERVING, SERVING)
    assert server.stop() == 0, server.output


def test_a_models_health_needs_what_the_model_needs(models, launch, watch, tmp_path):
    path = tmp_path / "tokens.toml"
    path.write_text("".join(f'{name} = ["{token}"]\n' for name, token in TOKENS.items()))
    with launch(models, token_file=path) as server:
        assert watch(server).next() == SERVING
        for service in ("tiny", "nope"):
            assert _check(server, service) == watch(server, service).next() == "UNAUTHENTICATED"
            refused = (("authorization", f"Bearer {TOKENS['metrics']}"),)
            assert _check(server, service, refused) == watch(server, service, refused).next() == "PERMISSION_DENIED"
        allowed = (("authorization", f"Bearer {TOKENS['infer']}"),)
        assert _check(server, "tiny", allowed) == watch(server, "tiny", allowed).next() == SERVING
        assert (_check(server, "nope", allowed), watch(server, "nope", allowed).next()) == ("NOT_FOUND", SERVICE_UNKNOWN)


@contextlib.contextmanager
def _another_client(address: str, source: str):
    """The address of a relay whose connections come from `source`, an address of this machine as well."""

    def pump(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                near = listening.accept()[0]
                far = socket.create_connection(address.split(":"), source_address=(source, 0))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def test_watchers_are_bounded_and_leave(server):
    """Those of one client, and those of all. Those who have left make room again."""
    from headrace.serving.grpc.health import _MAX_OF_ONE, _MAX_WATCHERS

    request = health_pb2.HealthCheckRequest()
    calls = []
    with contextlib.ExitStack() as stack:

        def stub(source: str):
            address = stack.enter_context(_another_client(server.grpc, source))
            return health_pb2_grpc.HealthStub(stack.enter_context(grpc.insecure_channel(address)))

        stubs = [stub(f"127.0.0.{number}") for number in range(2, 3 + _MAX_WATCHERS // _MAX_OF_ONE)]
        stack.callback(lambda: [call.cancel() for call in calls])
        for one in stubs[:-1]:
            for _ in range(_MAX_OF_ONE):
                calls.append(one.Watch(request))
                assert next(calls[-1]).status == SERVING
            with pytest.raises(grpc.RpcError, match=f"{_MAX_OF_ONE} calls of this client") as caught:
                next(one.Watch(request, timeout=30))
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.RpcError, match=f"and {_MAX_WATCHERS} in all") as caught:
            next(stubs[-1].Watch(request, timeout=30))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for call in calls[:10]:
            call.cancel()
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                assert next(stubs[-1].Watch(request, timeout=30)).status == SERVING
                break
            except grpc.RpcError:
                time.sleep(0.05)
        else:
            raise AssertionError("nobody was let in again")
