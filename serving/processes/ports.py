"""The ports of a server of several processes, all taken before any of the processes starts."""

from __future__ import annotations

import socket

from ...errors import PenstockError
from ..config import ServeConfig
from ..endpoints import listen

__all__ = ["Ports"]


class Ports:
    """The listening sockets that processes inherit, and the reserved port of gRPC. Raises PenstockError when one is taken.

    HTTP connections are accepted by all front ends from one socket, so none is lost with a front end that ends before it has
    accepted it. gRPC's library takes no socket from outside; its servers share a port by SO_REUSEPORT. That option alone would
    also let a second server of the same user take a part of the requests silently, so the port is first bound without it, which
    fails if anybody has it, and the option is set on that socket afterwards: from then on only sockets of the same user that
    ask for the option themselves can join. The reserving socket never listens, so it gets no connections.
    """

    def __init__(self, config: ServeConfig) -> None:
        self.http = listen(config.host, config.http_port, "http")
        self.metrics: socket.socket | None = None
        self._grpc: socket.socket | None = None
        try:
            if config.metrics_port is not None:
                self.metrics = listen(config.host, config.metrics_port, "metrics")
            if config.grpc_port is not None:
                self._grpc = _reserve(config.host, config.grpc_port)
        except BaseException:
            self.close()
            raise

    @property
    def numbers(self) -> dict[str, int]:
        """The ports by name, "http" first."""
        bound = {"http": self.http, "metrics": self.metrics, "grpc": self._grpc}
        return {name: int(one.getsockname()[1]) for name, one in bound.items() if one is not None}

    def close(self) -> None:
        """Close the sockets here; those that processes have inherited stay open."""
        for bound in (self.http, self.metrics, self._grpc):
            if bound is not None:
                bound.close()


def _reserve(host: str, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if bound.family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Connections of an earlier server that are still winding down do not count; a server that listens does.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError as error:
        bound.close()
        raise PenstockError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another with --grpc-port, or 0 for any free one"
        ) from error
    return bound
