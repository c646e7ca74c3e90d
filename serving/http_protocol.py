"""uvicorn's HTTP/1.1 connection with a bound on the size of a request's head, which its parser would buffer without end."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["limited_protocol"]

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: 41\r\nconnection: close\r\n\r\n"
    b'{"error": "the request head is too long"}'
)


def limited_protocol(max_header_bytes: int) -> type[HttpToolsProtocol]:
    """A protocol class for uvicorn's `http` option that closes connections whose request head exceeds that many bytes."""

    class LimitedProtocol(HttpToolsProtocol):
        _head_bytes = 0
        _in_head = True

        def data_received(self, data: bytes) -> None:
            # Only data that lies wholly within one head counts; what shares a packet with another part of a request is short.
            self._head_bytes += len(data)
            super().data_received(data)
            if self._in_head and self._head_bytes > max_header_bytes and not self.transport.is_closing():
                self.transport.write(_TOO_LARGE)
                self.transport.close()

        def on_headers_complete(self) -> None:
            self._in_head = False
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self._in_head = True
            self._head_bytes = 0
            super().on_message_complete()

    return LimitedProtocol


def options(max_header_bytes: int) -> dict[str, Any]:
    """uvicorn's settings that both of the server's HTTP ports share."""
    return {
        "http": limited_protocol(max_header_bytes),
        "ws": "none",
        "lifespan": "off",
        "log_config": None,
        "log_level": "error",
        "access_log": False,
        "server_header": False,
        "timeout_keep_alive": 75,
    }
