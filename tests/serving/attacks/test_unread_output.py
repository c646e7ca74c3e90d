"""Output that nobody takes: its reader is gone or stands still, or the disk is full. The server serves on, and ends."""

import fcntl
import http.client
import json
import os
import signal
import time

import pytest

REQUESTS = 150  # a pipe of a page holds some 25 lines of them


class _Server:
    def __init__(self, headrace, models, folder, output, *options):
        ready = folder / "ready.json"
        self.process = headrace.popen(
            *("serve", models, "--access-log", "--ready-file", ready, "--threads", 1, "--instances", 1),
            *("--http-port", 0, "--grpc-port", 0, "--metrics-port", 0, *options),
            stdout=output,
            stderr=output,
        )
        end = time.monotonic() + 120
        while not ready.exists():
            assert self.process.poll() is None, "the server did not start"
            assert time.monotonic() < end, "the server did not become ready"
            time.sleep(0.05)
        self.port = json.loads(ready.read_text())["http"]

    def ask(self, count: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        for _ in range(count):
            connection.request("GET", "/v2/health/ready")
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b'{"ready":true}')
        connection.close()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


ONE, FRONT = pytest.param((), id="one process"), pytest.param(("--frontends", "1"), id="front ends")


@pytest.mark.parametrize(
    ("what", "options"),
    [
        *(pytest.param(what, *one.values, id=f"{what}, {one.id}") for what in ("gone", "still") for one in (ONE, FRONT)),
        pytest.param("full", *ONE.values, id=f"full, {ONE.id}"),
        # Writing fails as where the reader is gone.
        pytest.param("full", *FRONT.values, id=f"full, {FRONT.id}", marks=pytest.mark.slow),
    ],
)
def test_the_server_serves_on_and_ends_when_told(warm_command, models, tmp_path, what, options):
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    output = os.open("/dev/full", os.O_WRONLY) if what == "full" else writer
    server = _Server(warm_command, models, tmp_path, output, *options)
    try:
        os.close(writer)
        if what != "still":
            os.close(reader)
        server.ask(REQUESTS)
        assert server.end() == 0
    finally:
        server.process.kill()
        server.process.wait()
