"""HTTP to servers that nobody vouches for."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time

import pytest
import trustme

from headrace.errors import VerifyError
from headrace.serving.verify.client import Client, Unreachable
from tests.serving.verify.upload_server import reply, serving


def raw_server(behave):
    """A listener whose every connection is given to `behave`; its address and what closes it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=attended, args=(connection,), daemon=True).start()

    def attended(connection):
        with connection, contextlib.suppress(OSError):
            behave(connection)

    threading.Thread(target=accept, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}", listener


def drip(beginning):
    def behave(connection):
        connection.recv(1000)
        connection.sendall(beginning)
        while True:  # until the other side hangs up
            time.sleep(0.02)
            connection.sendall(b"x")

    return behave


SLOW = {
    "says nothing": lambda connection: [connection.recv(1000) for _ in range(2)],  # the second is its end
    "drips a head": drip(b"HTTP/1.1 200 OK\r\nX-Slow: "),
    "drips a body": drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"),
    "drips to the end": drip(b"HTTP/1.1 200 OK\r\n\r\n"),
}


@pytest.mark.parametrize("name", SLOW)
def test_the_deadline_is_over_the_whole_exchange(name):
    url, listener = raw_server(SLOW[name])
    with listener, pytest.raises(Unreachable, match="no whole answer within 0.3 s; --timeout-secs"):
        Client(url, timeout_seconds=0.3).call("GET", "/")  # or it would go on for ever


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", "broke off 95 bytes before its end"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "does not answer as HTTP has it"),
        (b"HTTP/1.1 302 Found\r\nLocation: /predict/\r\nContent-Length: 0\r\n\r\n", "redirects to /predict/"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 3000, "more than 2,000 bytes"),
        (b"", "not HTTP|closed|does not answer"),
    ],
)
def test_what_is_no_whole_answer_says_why(answer, says):
    def behave(connection):
        connection.recv(1000)
        connection.sendall(answer)

    url, listener = raw_server(behave)
    with listener, pytest.raises(VerifyError, match=says):
        Client(url, timeout_seconds=60, most_bytes=2000).call("GET", "/")


def test_nothing_listens_and_no_such_host():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(Unreachable, match="nothing listens there"):
        Client(f"http://127.0.0.1:{port}").call("GET", "/")
    with pytest.raises(Unreachable, match="no such host|failed"):
        Client("http://nowhere.invalid").call("GET", "/")


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://host/x", "http://", "http://host:port/x", "http://user:secret@host/x"]
)
def test_what_is_no_address(url):
    with pytest.raises(VerifyError):
        Client(url)


def test_headers_go_with_every_request():
    seen = []
    with serving(lambda handler, body: (seen.append(dict(handler.headers)), reply(handler, {}))) as url:
        Client(url, headers={"Host": "model.example", "Authorization": "Bearer secret"}).call("POST", "/x", b"{}", {"A": "b"})
    assert (seen[0]["Host"], seen[0]["Authorization"], seen[0]["A"]) == ("model.example", "Bearer secret", "b")


def test_a_certificate_is_checked(tmp_path):
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        for _ in range(2):
            connection, _ = listener.accept()
            try:
                with context.wrap_socket(connection, server_side=True) as secured:
                    secured.recv(1000)
                    secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            except OSError:
                connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    url = f"https://localhost:{listener.getsockname()[1]}"
    with listener:
        with pytest.raises(Unreachable, match="not trusted .*--tls-ca"):
            Client(url).call("GET", "/")
        assert Client(url, authority=tmp_path / "ca.pem").call("GET", "/")[2] == b"{}"
        thread.join(60)
    (tmp_path / "none.pem").write_text("no certificate")
    with pytest.raises(VerifyError, match="--tls-ca"):
        Client(url, authority=tmp_path / "none.pem")
