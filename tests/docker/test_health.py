"""docker/health.py against a server that is ready, one that is not, and none."""

import http.server
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docker" / "health.py"


def check(url):
    environment = {"HEALTH_URL": url, "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    return subprocess.run([sys.executable, "-I", SCRIPT], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def unready():
    """An address that answers what a server answers while it loads, and one path more."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(503 if self.path == "/v2/health/ready" else 204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


def test_a_ready_server_is_healthy(server):
    ended = check(f"http://{server.http}/v2/health/ready")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_503_is_not(unready):
    ended = check(f"{unready}/v2/health/ready")
    assert (ended.returncode, "503" in ended.stderr) == (1, True)


def test_neither_is_anything_but_200(unready):
    assert check(f"{unready}/elsewhere").returncode == 1


def test_nor_is_a_port_where_nobody_listens():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        ended = check(f"http://127.0.0.1:{bound.getsockname()[1]}/v2/health/ready")
    assert (ended.returncode, "refused" in ended.stderr) == (1, True)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "127.0.0.1:8000", "http://[x"])
def test_nor_is_what_is_no_address_of_a_server(url):
    ended = check(url)
    assert (ended.returncode, "Traceback" not in ended.stderr, url in ended.stderr) == (1, True, True)
