"""uvicorn's HTTP/1.1 connection with the bounds it lacks: on heads, on chunking and trailers, and on slow clients."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .config import ServeConfig
from .tls import Tls

__all__ = ["limited_protocol", "options"]

# What a body may need besides its bytes: sizes of chunks, their extensions, trailers. A chunk takes 5 bytes at least, so that
# this also bounds their number; chunks of a kilobyte still carry far more than any body may have.
_MAX_FRAMING_BYTES = 1 << 20


def limited_protocol(config: ServeConfig) -> type[HttpToolsProtocol]:
    """A protocol class for uvicorn's `http` option that closes connections which cost more than the configuration allows."""

    class LimitedProtocol(HttpToolsProtocol):
        # Bytes of the message that is arriving: all of them, and those that are its body. What shares a packet with the end of
        # the message before is not counted, and less than a packet.
        _bytes = 0
        _body_bytes = 0
        _in_head = True
        _head_timer: asyncio.TimerHandle | None = None
        _write_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._expect_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._end_head_timer()
            self._end_write_timer()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._in_head:
                self._expect_head()
            self._bytes += len(data)
            super().data_received(data)
            if self._in_head and self._bytes > config.max_header_bytes:
                self._refuse(431, "the request head is too long")
            elif self._bytes - self._body_bytes > config.max_header_bytes + _MAX_FRAMING_BYTES:
                self._refuse(413, "the body comes in too many chunks, or with too long trailers")

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._end_head_timer()
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._body_bytes += len(body)
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._in_head = True
            self._bytes = self._body_bytes = 0
            super().on_message_complete()

        def send_400_response(self, msg: str) -> None:
            self._refuse(400, msg)

        def pause_writing(self) -> None:
            # The client reads slower than its answer is written; it need not read for ever.
            self._write_timer = self.loop.call_later(config.body_timeout_seconds, self._give_up_writing)
            super().pause_writing()

        def resume_writing(self) -> None:
            self._end_write_timer()
            super().resume_writing()

        def _expect_head(self) -> None:
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(config.head_timeout_seconds, self._give_up_head)

        def _end_head_timer(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _end_write_timer(self) -> None:
            if self._write_timer is not None:
                self._write_timer.cancel()
                self._write_timer = None

        def _give_up_head(self) -> None:
            self._head_timer = None
            if self._bytes:
                self._refuse(408, "the request head did not arrive in time")
            else:
                self.transport.close()

        def _give_up_writing(self) -> None:
            self.transport.abort()

        def _refuse(self, status: int, message: str) -> None:
            """Answer with an error, unless an answer is under way, and close."""
            if self.transport.is_closing():
                return
            if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
                body = json.dumps({"error": message}).encode()
                head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
                self.transport.write(STATUS_LINE[status] + head + body)
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
        # The address that a proxy's header claims is nobody's business here, and could be made up.
        "proxy_headers": False,
        "ssl_context_factory": (lambda *_: tls.context()) if tls is not None else None,
    }
