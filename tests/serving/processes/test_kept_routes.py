"""Kept routes behind front ends, while processes are killed, packages change, and clients send what nobody should."""

import os
import random
import signal
import socket
import threading
import time
from collections import Counter

import pytest

from headrace.runtime.artifact.manifest import read_content, write_manifest
from tests.serving.http.test_kept_handlers import FORMS, ask, sent, with_routes


@pytest.fixture
def folder(models, tmp_path):
    return with_routes(models, tmp_path / "models")


def until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def asked(url, path, photo):
    """The status of an answer, or None where the connection ended."""
    try:
        return ask(url + path, *sent(path, photo))[0]
    except OSError:
        return None


def test_a_front_end_that_comes_back_keeps_what_the_server_was_started_with(folder, launch, make_photo):
    """A path does not go while a server serves, whatever became of the package since."""
    photo = make_photo(0)
    with launch(folder, keep_routes=True, frontends=1) as server:
        assert asked(server.url, "/api/raw", photo) == 200
        place = folder / "tiny" / "1"
        write_manifest(place, {**read_content(place), "routes": []})
        (one,) = server.children("frontend")
        one.kill()
        one.wait()
        until(lambda: asked(server.url, "/api/raw", photo) == 200)


def junk(generator, photo):
    """A request that no application's client sends, as it goes over the socket."""
    path = generator.choice([*FORMS, "/v1/kept/tiny/0", "/v1/kept/tiny/99999999999", "/v1/kept/../0"])
    body, kind = sent("/predict" if generator.random() < 0.5 else generator.choice([*FORMS]), photo)
    length = generator.choice([len(body), len(body) - 7, len(body) + 7, 0, "-1", "1e3", str(1 << 40), "", "9" * 300])
    kind = generator.choice(
        [kind, "", "multipart/form-data", "multipart/form-data; boundary=", "application/json", "\xff" * 40]
    )
    body = generator.choice([body, body[: len(body) // 2], b"", b"{" * 5000, b'{"image": 1}', b"--edge\r\n" * 2000])
    encoding = generator.choice(
        ["", "Transfer-Encoding: chunked\r\n", "Content-Encoding: gzip\r\n", "Expect: 100-continue\r\n"]
    )
    head = f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{encoding}\r\n"
    return head.encode("latin-1") + body


def statuses_of(server, data):
    """The statuses of what is answered to some bytes, after which nothing more comes."""
    host, port = server.http.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answered = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        except ConnectionError:  # closed on a body that is too large
            return []
    return [int(line.split()[1]) for line in answered.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


def test_an_engine_that_is_killed_under_load_and_junk(folder, launch, make_photo):
    photo, seen, junked, over = make_photo(0), Counter(), Counter(), threading.Event()

    def clients(number):
        path = [*FORMS][number]
        while not over.wait(0.01):
            seen[asked(server.url, path, photo)] += 1

    def vandal(seed):
        generator = random.Random(seed)
        while not over.wait(0.01):
            junked.update(statuses_of(server, junk(generator, photo)))

    with launch(folder, keep_routes=True, frontends=2, max_body_bytes=1 << 20) as server:
        threads = [threading.Thread(target=clients, args=(number,)) for number in range(3)]
        threads += [threading.Thread(target=vandal, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(2):
                before = seen[200]
                until(lambda before=before: seen[200] > before + 20)
                (engine,) = server.children("engine")
                os.kill(engine.pid, signal.SIGKILL)
                engine.wait()
                before = seen[200]
                until(lambda before=before: seen[200] > before + 20)
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert set(seen) <= {200, 503, None}, seen
        assert junked[400] > 0
        assert not {status for status in junked if status >= 500 and status != 503}, junked
        assert len(server.children("frontend")) == 2
