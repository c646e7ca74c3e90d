"""TLS for both front ends from one set of PEM files, checked before anything listens and read again when they change."""

from __future__ import annotations

import logging
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import HeadraceError
from ..config import ServeConfig

log = logging.getLogger("headrace.serving")


@dataclass(frozen=True)
class _Loaded:
    context: ssl.SSLContext
    pair: tuple[bytes, bytes]  # key and certificate
    authority: bytes | None


class Tls:
    """A certificate chain with its key, and the authority of clients' certificates where those are asked for (None: not).

    Whether the files have changed is looked up when a connection begins, so that a renewed certificate needs no restart. Files
    that cannot be used then, such as a certificate whose key is still to come, leave what was read before in place. Raises
    HeadraceError when they cannot be used at first.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        self._lock = threading.Lock()  # gRPC asks from threads of its own
        self._looks = self._look()
        self._loaded = self._load()

    def context(self) -> ssl.SSLContext:
        """For HTTP: Python's own choice of versions (1.2 on) and ciphers."""

        def renew(connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
            connection.context = self._current().context

        context = self._load().context
        context.sni_callback = renew  # type: ignore[assignment]
        return context

    def grpc_credentials(self) -> Any:
        """The same for gRPC."""
        import grpc

        def configuration(loaded: _Loaded) -> Any:
            return grpc.ssl_server_certificate_configuration([loaded.pair], root_certificates=loaded.authority)

        given = self._loaded

        def renewed() -> Any:
            nonlocal given
            if (now := self._current()) is given:
                return None
            given = now
            return configuration(now)

        return grpc.dynamic_ssl_server_credentials(
            configuration(given), renewed, require_client_authentication=self._client_ca is not None
        )

    def _current(self) -> _Loaded:
        """What the files hold now, or held when they could be used last."""
        with self._lock:
            if (looks := self._look()) != self._looks:
                self._looks = looks
                try:
                    self._loaded = self._load()
                except HeadraceError as error:
                    log.warning("%s; connections go on with the certificate read before", error)
                else:
                    log.info("the certificate %s was read again", self._certificate)
            return self._loaded

    def _look(self) -> list[tuple[int, int, int] | None]:
        looks: list[tuple[int, int, int] | None] = []
        for path in (self._certificate, self._key, self._client_ca):
            try:
                found = path.stat() if path else None
            except OSError:
                found = None
            looks.append(found and (found.st_ino, found.st_size, found.st_mtime_ns))
        return looks

    def _load(self) -> _Loaded:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(["http/1.1"])
        try:
            # An encrypted key would ask for its password on the terminal.
            context.load_cert_chain(self._certificate, self._key, password=lambda: "")
            pair = (self._key.read_bytes(), self._certificate.read_bytes())
        except (OSError, ValueError) as error:  # SSLError is an OSError
            raise HeadraceError(
                f"cannot use the certificate {self._certificate} (--tls-cert) with the key {self._key} (--tls-key): "
                f"{_reason(error)}; both must be PEM, the key unencrypted and the certificate's own"
            ) from None
        authority = None
        if self._client_ca is not None:
            try:
                context.load_verify_locations(self._client_ca)
                authority = self._client_ca.read_bytes()
            except (OSError, ValueError) as error:
                raise HeadraceError(
                    f"cannot use the clients' authority {self._client_ca} (--tls-client-ca): {_reason(error)}; it must be PEM"
                ) from None
            context.verify_mode = ssl.CERT_REQUIRED
        return _Loaded(context, pair, authority)


def load_tls(config: ServeConfig) -> Tls | None:
    """What the configuration asks for, None for plain text. Raises HeadraceError when a file cannot be used."""
    security = config.security
    if security.tls_cert is None or security.tls_key is None:
        return None
    return Tls(security.tls_cert, security.tls_key, security.tls_client_ca)


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
