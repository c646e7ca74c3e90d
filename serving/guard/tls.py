"""TLS for both front ends from one set of PEM files, checked before anything listens."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import HeadraceError
from ..config import ServeConfig


@dataclass(frozen=True, kw_only=True)
class Tls:
    """A certificate chain with its key, and the authority of clients' certificates where those are asked for."""

    certificate: Path
    key: Path
    client_ca: Path | None

    def context(self) -> ssl.SSLContext:
        """For HTTP: Python's own choice of versions (1.2 on) and ciphers. Raises HeadraceError naming the file at fault."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(["http/1.1"])
        try:
            # An encrypted key would ask for its password on the terminal.
            context.load_cert_chain(self.certificate, self.key, password=lambda: "")
        except (OSError, ValueError) as error:  # SSLError is an OSError
            raise HeadraceError(
                f"cannot use the certificate {self.certificate} (--tls-cert) with the key {self.key} (--tls-key): "
                f"{_reason(error)}; both must be PEM, the key unencrypted and the certificate's own"
            ) from None
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ValueError) as error:
                raise HeadraceError(
                    f"cannot use the clients' authority {self.client_ca} (--tls-client-ca): {_reason(error)}; it must be PEM"
                ) from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def grpc_credentials(self) -> Any:
        """The same for gRPC; `context` checked the files."""
        import grpc

        pair = (self.key.read_bytes(), self.certificate.read_bytes())
        if self.client_ca is None:
            return grpc.ssl_server_credentials([pair])
        return grpc.ssl_server_credentials([pair], root_certificates=self.client_ca.read_bytes(), require_client_auth=True)


def load_tls(config: ServeConfig) -> Tls | None:
    """What the configuration asks for, None for plain text. Raises HeadraceError when a file cannot be used."""
    if config.security.tls_cert is None or config.security.tls_key is None:
        return None
    tls = Tls(certificate=config.security.tls_cert, key=config.security.tls_key, client_ca=config.security.tls_client_ca)
    tls.context()
    return tls


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
