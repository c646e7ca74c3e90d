"""HTTP to a server that nobody vouches for: a deadline over the whole exchange, answers of a bounded size, no redirects."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from ...errors import VerifyError

_REDIRECTS = range(300, 400)


class Unreachable(VerifyError):  # noqa: N818 - what a caller catches is VerifyError
    """No answer came: no connection, none in time, or one that broke off."""


class Client:
    """Sends requests to one host, each over a connection of its own. Safe to share between threads.

    An exchange may take `timeout_seconds` from connecting to the answer's last byte; an answer may have `most_bytes`.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 10.0,
        most_bytes: int = 16 << 20,
        authority: Path | None = None,
    ) -> None:
        parts = urlsplit(url)
        try:
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise VerifyError(f"{url}: {error}; an address is like http://localhost:8000/predict") from None
        if parts.scheme not in ("http", "https") or not self._host or parts.username is not None:
            raise VerifyError(
                f"{url} is no address of an endpoint; give http://HOST[:PORT]/PATH, https://... or grpc://HOST:PORT/MODEL, and "
                "what authenticates with --token or --header"
            )
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self._tls = tls_context(authority) if parts.scheme == "https" else None
        self._headers, self._timeout, self._most = dict(headers or {}), timeout_seconds, most_bytes

    def call(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """The status, the headers (names in lower case) and the body. Raises VerifyError for whatever is no whole answer."""
        where = f"{method} {self.origin}{path}"
        connection = self._connection()
        late, held = threading.Event(), None  # a body that ends with its connection takes the socket away from that

        def expire() -> None:
            late.set()
            if (found := held or connection.sock) is not None:
                with contextlib.suppress(OSError):
                    found.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(self._timeout, expire)
        timer.daemon = True
        timer.start()
        try:
            connection.connect()
            held = connection.sock
            connection.request(method, path, body or None, {**self._headers, **(headers or {})})
            response = connection.getresponse()
            data = response.read(self._most + 1)
            cut = response.length or 0
        except TimeoutError:
            raise self._late(where) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            if late.is_set():
                raise self._late(where) from None
            raise Unreachable(f"{where}: {_reason(error)}") from None
        finally:
            timer.cancel()
            connection.close()
        if len(data) > self._most:
            raise VerifyError(f"{where} answers with more than {self._most:,} bytes, which no classification takes")
        if late.is_set():
            raise self._late(where)
        if cut:
            raise Unreachable(f"{where}: the answer broke off {cut:,} bytes before its end")
        if response.status in _REDIRECTS:
            target = response.getheader("location") or "nowhere"
            raise VerifyError(f"{where} redirects to {target[:200]}; give the address that answers itself")
        return response.status, {name.lower(): value for name, value in response.getheaders()}, data

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)

    def _late(self, where: str) -> Unreachable:
        return Unreachable(f"{where}: no whole answer within {self._timeout:g} s; --timeout-secs gives it longer")


def tls_context(authority: Path | None) -> ssl.SSLContext:
    """What checks a server's certificate: by the system's authorities, or by one that is given."""
    try:
        return ssl.create_default_context(cafile=None if authority is None else str(authority))
    except (OSError, ValueError) as error:
        raise VerifyError(f"cannot read the certificates in {authority} (--tls-ca): {error}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there; start the server, or correct the address"
    if isinstance(error, socket.gaierror):
        return "there is no such host; correct the address"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); --tls-ca names the authority that signed it"
    if isinstance(error, ssl.SSLError):
        return f"it does not speak TLS ({error.reason or error}); is it http:// instead of https://?"
    if isinstance(error, http.client.BadStatusLine):
        return "what answers there is not HTTP; is it https://, grpc:// or another port?"
    if isinstance(error, http.client.HTTPException):
        return f"it does not answer as HTTP has it ({type(error).__name__} {str(error)[:80]})"
    return f"the connection failed ({error})"
