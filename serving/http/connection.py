"""uvicorn's HTTP/1.1 connection with the bounds it lacks: on heads, on chunking and trailers, and on slow clients.

All of uvicorn's private parts that this server leans on are here; tests/serving/http/test_connection.py holds them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections import deque
from collections.abc import Iterator
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from ..config import ServeConfig
from ..guard.tls import Tls

# What a body may need besides its bytes: sizes of chunks, their extensions, trailers. A chunk takes 5 bytes at least, so that
# this also bounds their number; chunks of a kilobyte still carry far more than any body may have.
_MAX_FRAMING_BYTES = 1 << 20
# A body that comes slower than this many bytes a second, at one of six looks within its time, is given up: it would hold memory
# that others need. Between looks is time enough for a network that stutters.
_SLOWEST, _LOOKS, _BETWEEN_LOOKS = 16 * 1024, 6, 5.0
# Requests that a client may send on one connection before the answer to its first. uvicorn reads on after each answer.
_MAX_PIPELINED = 64
# While stopping, every answer closes its connection for this long before idle connections are closed: a client that sends one
# request after another has then left by itself, and no request crosses the closing on its way.
_LAST_CALL_SECONDS = 0.3


class _RejectedError(Exception):
    """Ends the parsing of a message with an error for its sender."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def limited_protocol(config: ServeConfig) -> type[HttpToolsProtocol]:
    """A protocol class for uvicorn's `http` option that closes connections which cost more than the configuration allows."""

    body_seconds = config.limits.body_timeout_seconds
    looks_at_body = max(1, min(_LOOKS, int(body_seconds / _BETWEEN_LOOKS)))
    between_looks = body_seconds / looks_at_body

    class LimitedProtocol(HttpToolsProtocol):
        # Bytes of the message that is arriving: all of them, those of its body, and those of complete header fields. What
        # shares a packet with the end of the message before does not count among the first.
        _bytes = 0
        _body_bytes = 0
        _field_bytes = 0
        _in_head = True
        _begun = False
        _rejection: _RejectedError | None = None
        # The error that ends the connection, once it is known; what comes after it is not read.
        _refusal: tuple[int, str] | None = None
        _head_timer: asyncio.TimerHandle | None = None
        _body_timer: asyncio.TimerHandle | None = None
        _write_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            # Requests that are not answered yet, in their order; the last is the one whose body arrives, if any does.
            self._open: deque[RequestResponseCycle] = deque()
            super().connection_made(transport)
            self._expect_head()

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._head_timer, self._body_timer, self._write_timer):
                if timer is not None:
                    timer.cancel()
            self._head_timer = self._body_timer = self._write_timer = None
            for cycle in self._open:  # uvicorn knows the last one only
                cycle.disconnected = True
                cycle.message_event.set()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._bytes += len(data)
            if self._refusal is not None:
                # Some of it is still taken: closing before all was read may take away answers that are on their way.
                if self._bytes > _MAX_FRAMING_BYTES and not self.transport.is_closing():
                    self.transport.pause_reading()
                return
            if self._in_head:
                self._expect_head()
            self._unset_keepalive_if_required()
            self._parse(data)
            if not self._in_head and self._body_timer is None:
                self._expect_body(looks_at_body)
            if self._in_head and self._bytes > config.limits.max_header_bytes:
                self._reject(431, "the request head is too long")
            elif self._bytes - self._body_bytes > config.limits.max_header_bytes + _MAX_FRAMING_BYTES:
                self._reject(413, "the body comes in too many chunks, or with too long trailers")

        def _parse(self, data: bytes) -> None:
            while True:
                try:
                    return self.parser.feed_data(data)
                except httptools.HttpParserUpgrade as wish:
                    data = self._plain_head() + data[wish.args[0] :]
                except httptools.HttpParserError:
                    rejection = self._rejection or _RejectedError(400, "the request cannot be read as HTTP")
                    return self._reject(rejection.status, str(rejection))

        def _plain_head(self) -> bytes:
            """The head again without its wish for another protocol, which a server may pass over (RFC 9110, 7.8). httptools
            ends the message there; a body, as Java's HttpClient sends one with it, would be read as the next request."""
            self._field_bytes = 0
            line = b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
            fields = (b"%b: %b" % (name, value) for name, value in self.headers if name != b"upgrade")
            return b"\r\n".join((line, *fields, b"", b""))

        def on_message_begin(self) -> None:
            self._begun = True
            self._expect_head()
            super().on_message_begin()

        def on_url(self, url: bytes) -> None:
            self._count_field(len(url))
            super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            self._count_field(len(name) + len(value) + 4)
            if self._in_head:  # a trailer is no header (RFC 9110, 6.5.1): it would pass by whoever checks heads before us
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            if self.parser.should_upgrade():
                if self.parser.get_method() == b"CONNECT":
                    self._fail(400, "this server is no proxy; it does not take CONNECT")
                return  # comes again
            if len(self._open) >= _MAX_PIPELINED:
                self._fail(400, f"more than {_MAX_PIPELINED} requests wait on this connection")
            self._check_framing()
            super().on_headers_complete()  # what it cannot take, such as a malformed URL, is still a head that is rejected
            self._open.append(self.cycle)
            self._in_head = False
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _check_framing(self) -> None:
            """What a proxy in front may read otherwise than this server (RFC 9112, 3.2 and 6.1)."""
            hosts = sum(name == b"host" for name, _ in self.headers)
            if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
                self._fail(400, "a request needs one Host header")
            for name, value in self.headers:
                if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                    self._fail(400, "the only Transfer-Encoding that this server takes is chunked")

        def on_body(self, body: bytes) -> None:
            self._body_bytes += len(body)
            super().on_body(body)

        def on_message_complete(self) -> None:
            if self.parser.should_upgrade():
                return
            self._in_head, self._begun = True, False
            self._bytes = self._body_bytes = self._field_bytes = 0
            if self._body_timer is not None:
                self._body_timer.cancel()
                self._body_timer = None
            super().on_message_complete()

        def on_response_complete(self) -> None:
            self._open.popleft()
            super().on_response_complete()
            self._refuse()

        def pause_writing(self) -> None:
            # The client reads slower than its answer is written; it need not read for ever.
            self._write_timer = self.loop.call_later(config.limits.body_timeout_seconds, self._give_up)
            super().pause_writing()

        def resume_writing(self) -> None:
            if self._write_timer is not None:
                self._write_timer.cancel()
                self._write_timer = None
            super().resume_writing()

        def _count_field(self, size: int) -> None:
            """Also those of trailers."""
            self._field_bytes += size
            if self._field_bytes > config.limits.max_header_bytes:
                self._fail(431, "the request head is too long")

        def _fail(self, status: int, message: str) -> None:
            """From within the parser, which reports the error as any other."""
            self._rejection = _RejectedError(status, message)
            raise self._rejection

        def _expect_head(self) -> None:
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(config.limits.head_timeout_seconds, self._give_up_head)

        def _give_up_head(self) -> None:
            self._head_timer = None
            if self._open:
                self._expect_head()  # the answer to the request before comes first
            elif self._begun:
                self._reject(408, "the request head did not arrive in time")
            else:
                self.transport.close()

        def _expect_body(self, looks: int) -> None:
            self._body_timer = self.loop.call_later(between_looks, self._look_at_body, looks - 1, self._body_bytes)

        def _look_at_body(self, looks: int, before: int) -> None:
            # Behind requests that are not answered yet nothing is read, so that nobody can be slow there.
            if looks and (self._body_bytes - before >= _SLOWEST * between_looks or len(self._open) > 1):
                self._expect_body(looks)
                return
            # What was answered before its body was there, as with an error, gets no other answer. Until now the rest could
            # come, or the sender would not have read that answer.
            allowed = f"within {body_seconds:g} s, at {_SLOWEST >> 10} KiB a second or more"
            self._reject(408, f"the body did not arrive {allowed}")

        def _give_up(self) -> None:
            self.transport.abort()

        def _reject(self, status: int, message: str) -> None:
            """Answer with an error and close, once the whole requests before it are answered."""
            if self._refusal is None:
                self._refusal = (status, message)
                self._refuse()

        def _refuse(self) -> None:
            if self._refusal is None or self.transport.is_closing():
                return
            if self._open and (self._in_head or len(self._open) > 1 or self._open[0].response_started):
                return  # their answers come first
            if self._in_head or self._open:  # else what is refused was answered, and closing is all that is left
                status, message = self._refusal
                body = json.dumps({"error": message}).encode()
                head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
                self.transport.write(STATUS_LINE[status] + head + body)
            for cycle in self._open:  # the request that is refused has no second answer
                cycle.disconnected = True
                cycle.message_event.set()
            self.transport.close()

    return LimitedProtocol


def options(config: ServeConfig, tls: Tls | None) -> dict[str, Any]:
    """uvicorn's settings that both of the server's HTTP ports share."""
    return {
        "http": limited_protocol(config),
        "interface": "asgi3",
        "ws": "none",
        "lifespan": "off",
        "log_config": None,
        "log_level": "error",
        "access_log": False,
        "server_header": False,
        "timeout_keep_alive": 75,
        # Anybody could make up the address that a proxy's header claims.
        "proxy_headers": bool(config.security.trusted_proxies),
        "forwarded_allow_ips": [*config.security.trusted_proxies],
        "ssl_context_factory": (lambda *_: tls.context()) if tls is not None else None,
    }


class HttpServer(uvicorn.Server):
    """uvicorn without its own signal handling, which would race with ours, and with a last call before it closes."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.server_state.default_headers.append((b"connection", b"close"))
        await asyncio.sleep(_LAST_CALL_SECONDS)
        await super().shutdown(sockets)
