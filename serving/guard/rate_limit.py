"""How many requests a second one client may send: a token bucket for each, all of them together bounded in memory."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from urllib.parse import unquote

from ...errors import RateLimitError

_MAX_CLIENTS = 65536


class RateLimiter:
    """`rate` requests a second for each client in the long run, and up to `burst` (by default one second's) at once.

    The buckets of the `clients` seen last are remembered; who comes back after so many others begins with a full one, which is
    what a client has that did not call for a while. Any thread may call `admit`.
    """

    def __init__(
        self,
        rate: float,
        *,
        burst: float | None = None,
        clients: int = _MAX_CLIENTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate
        self._burst = max(1.0, rate if burst is None else burst)
        self._clients = clients
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens left, and when that was

    def admit(self, client: str) -> None:
        """Count one request. Raises RateLimitError, which says when the next one is due."""
        with self._lock:
            now = self._clock()
            tokens, since = self._buckets.pop(client, (self._burst, now))
            tokens = min(self._burst, tokens + (now - since) * self._rate)
            admitted = tokens >= 1
            self._buckets[client] = (tokens - admitted, now)
            if len(self._buckets) > self._clients:
                self._buckets.popitem(last=False)
        if not admitted:
            wait = (1 - tokens) / self._rate
            raise RateLimitError(
                f"this client sends more than {self._rate:g} requests a second; send the next one in {wait:.2g} s",
                retry_after=max(1, round(wait + 0.5)),
            )


@lru_cache(maxsize=4096)  # parsing an address costs as much as routing its request
def client_of_address(address: str) -> str:
    """The client behind an address: of IPv6 its /64, which one subscriber has to himself."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, 64), strict=False))


@lru_cache(maxsize=4096)  # a connection's peer has one name
def client_of_peer(peer: str) -> str:
    """The client behind gRPC's name of a peer, such as "ipv4:192.0.2.1:4711" or "ipv6:%5B2001:db8::1%5D:4711"."""
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return peer
    return client_of_address(rest.rpartition(":")[0].strip("[]"))
