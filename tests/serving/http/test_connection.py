"""What this server leans on in uvicorn beyond its documents; pyproject.toml bounds the versions by these tests.

What is built on it, bounds on heads, bodies and slow clients, is tested in tests/serving/attacks, against a running server.
"""

import inspect

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from headrace.serving.config import ServeConfig
from headrace.serving.http.connection import HttpServer, limited_protocol


def test_what_is_overridden_is_there_and_called_alike(tmp_path):
    protocol = limited_protocol(ServeConfig(models=tmp_path))
    overridden = {name for name, value in vars(protocol).items() if inspect.isfunction(value) and not name.startswith("_")}
    assert {"connection_made", "data_received", "on_headers_complete"} <= overridden
    for ours, theirs, names in (
        (protocol, HttpToolsProtocol, overridden),
        (HttpServer, uvicorn.Server, ("capture_signals", "shutdown")),
    ):
        for name in names:
            parameters = [list(inspect.signature(getattr(kind, name)).parameters) for kind in (ours, theirs)]
            assert parameters[0] == parameters[1], name


@pytest.mark.parametrize("name", ["disconnected", "message_event", "response_started"])
def test_what_is_read_of_a_request_that_runs(name):
    assert f"self.{name} = " in inspect.getsource(RequestResponseCycle.__init__)


@pytest.mark.parametrize("name", ["cycle", "headers", "loop", "parser", "transport"])
def test_what_is_read_of_a_connection(name):
    assert f"self.{name}" in inspect.getsource(HttpToolsProtocol.__init__)


def test_what_data_that_arrive_are_given_to():
    """`data_received` is not called but written again: what uvicorn's does besides is a matter of WebSockets."""
    source = inspect.getsource(HttpToolsProtocol.data_received)
    assert "self._unset_keepalive_if_required()" in source
    assert "self.parser.feed_data(data)" in source


def test_what_is_written_at_the_end():
    assert ServerState().default_headers == []
    assert STATUS_LINE[400] == b"HTTP/1.1 400 Bad Request\r\n"
