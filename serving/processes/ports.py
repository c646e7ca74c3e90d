"""The ports of a server, all taken before anything is loaded or any process starts."""

from __future__ import annotations

import socket

from ...errors import HeadraceError
from ..config import ServeConfig
from .endpoints import listen


class Ports:
    """The ports, those in `listening` as sockets that listen, the others reserved. Raises HeadraceError when one is taken.

    Front ends share their ports by SO_REUSEPORT: the kernel then divides connections evenly, where processes that accept from
    one socket leave most of a burst to whichever wakes first, and gRPC's library takes no socket from outside anyway. That
    option alone would also let a second server of the same user take a part of the requests silently. So a port is first bound
    without it, which fails if anybody has the port, and the option is set on that socket afterwards: from then on only sockets
    of the same user that ask for the option themselves can join. The reserving sockets never listen and get no connections.
    """

    def __init__(self, config: ServeConfig, *listening: str) -> None:
        self._bound: dict[str, socket.socket] = {}
        self._listening = listening
        try:
            for name in ("http", "metrics", "grpc"):
                if (port := getattr(config.addresses, f"{name}_port")) is not None:
                    take = listen if name in listening else _reserve
                    self._bound[name] = take(config.addresses.host, port, name)
        except BaseException:
            self.close()
            raise

    @property
    def numbers(self) -> dict[str, int]:
        """The ports by name, "http" first."""
        return {name: int(one.getsockname()[1]) for name, one in self._bound.items()}

    @property
    def listening(self) -> dict[str, socket.socket]:
        """The sockets that listen already; they stay open here, so that clients wait while what serves them is restarted."""
        return {name: self._bound[name] for name in self._listening if name in self._bound}

    def close(self) -> None:
        """Close the sockets here; what processes have open stays open."""
        for bound in self._bound.values():
            bound.close()


def _reserve(host: str, port: int, name: str) -> socket.socket:
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
        raise HeadraceError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another with --{name}-port, or 0 for any free one"
        ) from error
    return bound
