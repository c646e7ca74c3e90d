"""Images by address, from servers that behave and that do not."""

import http.server
import threading
import time

import pytest

from headrace.errors import InputError
from headrace.serving.predict.download import download


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path
        if path.startswith("/hop"):
            left = int(path[4:])
            self.send_response(302)
            self.send_header("Location", f"/hop{left - 1}" if left else "/good%20name.png")
        elif path.startswith("/to-"):
            self.send_response(301)
            self.send_header("Location", {"/to-file": "file:///etc/passwd", "/to-ftp": "ftp://127.0.0.1/a"}[path])
        elif path == "/good%20name.png":
            self.send_response(200)
        elif path == "/short":
            self.send_response(200)
            self.send_header("Content-Length", "10")
        elif path in ("/endless", "/slow", "/silent"):
            self.send_response(200)
        elif path == "/talkative":
            self.wfile.write(b"y" * 60_000 + b"\r\n")
            return
        elif path == "/reason":
            self.send_response(500, "y" * 60_000)
        else:
            self.send_response(404)
        self.end_headers()
        if path in ("/good%20name.png", "/short"):
            self.wfile.write(b"image")
        try:
            while path == "/endless":
                self.wfile.write(b"x" * 4096)
            while path in ("/slow", "/silent") and not self.server.over.wait(0.05):
                self.wfile.write(b"x" if path == "/slow" else b"")
        except OSError:
            pass

    def log_message(self, *_):
        pass


@pytest.fixture
def address(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.over = True, threading.Event()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.over.set()
    server.shutdown()
    server.server_close()
    thread.join()


def fetch(address, seconds=20.0):
    return download(address, limit=100_000, seconds=seconds)


def test_an_image_and_a_few_redirects(address):
    assert fetch(f"{address}/good name.png") == b"image"
    assert fetch(f"{address}/hop4") == b"image"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/hop40", "30"),
        ("/to-file", "file:///etc/passwd' is not allowed"),
        ("/to-ftp", "begin with http"),
        ("/none", "404"),
        ("/short", "5 bytes too early"),
        ("/endless", "more than 100000 bytes"),
    ],
)
def test_what_is_not_taken(address, path, says):
    with pytest.raises(InputError, match=says):
        fetch(address + path)


@pytest.mark.parametrize("path", ["/slow", "/silent"])
def test_time_is_bounded(address, path):
    begin = time.monotonic()
    with pytest.raises(InputError, match="did not arrive within 0.5 s"):
        fetch(address + path, seconds=0.5)
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("path", ["/talkative", "/reason"])
def test_what_a_server_says_fits_into_a_line(address, path):
    with pytest.raises(InputError) as caught:
        fetch(f"{address}{path}")
    assert "yyy" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_nobody_there():
    with pytest.raises(InputError, match="cannot be reached"):
        fetch("http://127.0.0.1:1/a.png")


@pytest.mark.parametrize("given", ["http://[::1/a", "http://host:port/a", "http://host:99999/", "http://"])
def test_what_is_no_address(given):
    with pytest.raises(InputError):
        fetch(given)
