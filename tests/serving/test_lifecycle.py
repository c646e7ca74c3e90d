"""Overload, deadlines, disconnects, draining and ports, through real processes."""

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest


def _classify(server, image: bytes, query: str = "") -> tuple[int, dict, dict]:
    request = urllib.request.Request(f"{server.url}/v1/classify/slow{query}", data=image)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read()), response.headers
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read()), error.headers


def _pending(server) -> float:
    with urllib.request.urlopen(f"http://{server.metrics}/metrics") as response:
        lines = response.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith("nv_inference_pending")).rsplit(" ", 1)[1])


def _until(condition, what: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def _connected(server) -> int:
    """Connections that the server has or will yet accept; the kernel keeps those that have ended in a list of their own."""
    port = int(server.http.split(":")[1])
    gone = (psutil.CONN_LISTEN, psutil.CONN_TIME_WAIT, psutil.CONN_FIN_WAIT1, psutil.CONN_FIN_WAIT2)
    return sum(one.laddr.port == port and one.status not in gone for one in psutil.net_connections("tcp4"))


def _come(server) -> int:
    """Requests for `slow` that have come: those that were answered, and those that still wait or run."""
    with urllib.request.urlopen(f"{server.url}/v1/figures", timeout=60) as response:
        (slow,) = (one for one in json.load(response)["models"] if one["name"] == "slow")
    return slow["answered"] + sum(slow["queue"].values())


def _statistics(server) -> dict:
    with urllib.request.urlopen(f"{server.url}/v2/models/slow/stats") as response:
        return json.loads(response.read())["model_stats"][0]


def _together(count: int, work) -> list:
    results = [None] * count

    def run(number: int) -> None:
        results[number] = work(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_a_full_queue_is_refused_at_once_with_retry_after(start, slow_models, make_photo):
    server = start(slow_models, max_queue=4)
    answers = _together(60, lambda number: _classify(server, make_photo(number)))
    statuses = [status for status, _, _ in answers]
    assert set(statuses) == {200, 503}
    refused = next(answer for answer in answers if answer[0] == 503)
    assert "full" in refused[1]["error"] or "deadline" in refused[1]["error"]
    assert int(refused[2]["Retry-After"]) >= 1
    assert _pending(server) == 0
    assert _classify(server, make_photo(0))[0] == 200


def test_a_deadline_that_cannot_be_met_is_refused_on_arrival(start, slow_models, make_photo):
    server = start(slow_models)
    status, answer, headers = _classify(server, make_photo(0), "?timeout_ms=1")
    assert status == 503
    assert "within" in answer["error"]
    assert "Retry-After" in headers
    assert _classify(server, make_photo(0), "?timeout_ms=20000")[0] == 200


def test_disconnected_clients_leave_the_queue(start, slow_models, make_photo):
    server = start(slow_models)
    image = make_photo(0)
    head = b"POST /v1/classify/slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(image)
    connections = []
    for _ in range(40):
        connection = socket.create_connection(server.http.split(":"))
        connection.sendall(head + image)
        connections.append(connection)
    for connection in connections:
        connection.close()
    # Each was answered to nobody, given up, or gone before its body was read; what counts is that none is left.
    _until(lambda: not _connected(server) and not _pending(server), "some are left")
    assert _classify(server, image)[0] == 200  # behind a batch that may still run for those who left
    statistics = _statistics(server)
    assert statistics["inference_count"] + statistics["inference_stats"]["fail"]["count"] <= 41
    assert _classify(server, image)[0] == 200
    assert _statistics(server)["inference_count"] == statistics["inference_count"] + 1


def test_a_client_that_leaves_is_taken_out_of_the_queue(start, slow_models, make_photo):
    server = start(slow_models)
    image = make_photo(0)
    head = b"POST /v1/classify/slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(image)
    connections = [socket.create_connection(server.http.split(":")) for _ in range(160)]  # many still wait at the first look
    for connection in connections:
        connection.sendall(head + image)
    _until(lambda: _pending(server) >= 20, "nothing waits")
    for connection in connections:
        connection.close()
    _until(lambda: not _connected(server) and not _pending(server), "some are left")
    statistics = _statistics(server)
    assert statistics["inference_stats"]["fail"]["count"] > 0
    assert statistics["inference_count"] < 160


def test_sigterm_answers_what_was_accepted(start, slow_models, make_photo):
    server = start(slow_models)
    images = [make_photo(number) for number in range(80)]  # most still wait when all have come
    connections = []
    for image in images:
        connection = socket.create_connection(server.http.split(":"), timeout=60)
        connection.sendall(
            b"POST /v1/classify/slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(image) + image
        )
        connections.append(connection)
    _until(lambda: _come(server) == 80, "some do not come")
    server.process.send_signal(signal.SIGTERM)
    answers = [connection.recv(4096) for connection in connections]
    assert all(b" 200 " in answer for answer in answers), answers
    assert server.process.wait(60) == 0, server.output
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(server.http.split(":"))


def test_a_second_signal_ends_at_once(start, slow_models, make_photo):
    server = start(slow_models, drain_seconds=600.0, body_timeout_seconds=600.0)
    threading.Thread(target=lambda: _quietly(server, make_photo(0)), daemon=True).start()
    holding = socket.create_connection(server.http.split(":"), timeout=60)
    head = b"POST /v1/classify/slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"
    holding.sendall(head + b"half")
    assert b" 100 " in holding.recv(4096)  # it is there, and waited for
    server.process.send_signal(signal.SIGTERM)
    _until(lambda: "draining" in server.output, "the first signal was not heard")
    time.sleep(0.3)
    assert server.process.poll() is None  # it waits for the half request
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 128 + signal.SIGTERM
    holding.close()


def _quietly(server, image: bytes) -> None:
    with contextlib.suppress(OSError):
        _classify(server, image)


@pytest.mark.parametrize("which", ["http_port", "grpc_port", "metrics_port"])
def test_a_port_in_use_fails_at_once_and_says_which(warm_command, models, which):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, which: port}
        code = (
            "import sys, json, pathlib\nfrom headrace.serving.server import serve\n"
            "from headrace.serving.config import ServeConfig\n"
            "from headrace.errors import HeadraceError\n"
            "try: serve(ServeConfig.of(models=pathlib.Path(sys.argv[1]), **json.loads(sys.argv[2])))\n"
            "except HeadraceError as error: sys.exit(str(error))"
        )
        done = warm_command.run(["-c", code, models, json.dumps(ports)])
    assert done.returncode == 1
    assert str(port) in done.stderr
    assert f"--{which.replace('_', '-')}" in done.stderr
    assert "loading" not in done.stdout


def test_folders_that_cannot_be_served(tmp_path, models):
    from headrace.errors import ArtifactError
    from headrace.serving.config import ServeConfig
    from headrace.serving.models.repository import ModelRepository
    from headrace.serving.server import serve

    with pytest.raises(ArtifactError, match="not a folder"):
        ModelRepository(ServeConfig(models=tmp_path / "nope"))
    with pytest.raises(ArtifactError, match="no models"):
        ModelRepository(ServeConfig(models=tmp_path))
    (tmp_path / "damaged").symlink_to(models / "damaged")
    with pytest.raises(ArtifactError, match=r"none of the models(.|\n)*damaged"):
        serve(ServeConfig.of(models=tmp_path, http_port=0, grpc_port=0, metrics_port=0))


def test_a_body_that_does_not_arrive_is_given_up(start, models):
    server = start(models, body_timeout_seconds=0.3)
    with socket.create_connection(server.http.split(":"), timeout=60) as connection:
        connection.sendall(b"POST /v1/classify/tiny HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf")
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 408
        assert b"did not arrive" in answer.read()


def test_torch_is_never_imported_and_warm_up_chooses_the_instances(start, models, make_photo):
    server = start(models, instances=None)
    request = urllib.request.Request(f"{server.url}/v1/classify/tiny", data=make_photo(0))
    with urllib.request.urlopen(request) as response:
        assert response.status == 200
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "libtorch" not in maps
    assert "onnxruntime" in maps


def test_sigterm_while_loading_ends_cleanly(tmp_path, models):
    code = (
        "import sys, pathlib\nfrom headrace.serving.server import serve\nfrom headrace.serving.config import ServeConfig\n"
        "serve(ServeConfig.of(models=pathlib.Path(sys.argv[1]), http_port=0, grpc_port=0, metrics_port=0))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(models)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "serving" not in process.stdout.read().replace("not served", "")
    finally:
        process.kill()
        process.wait()
