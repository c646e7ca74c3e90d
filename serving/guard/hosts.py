"""Which names a server may be called by, and what web pages may send it.

A page that points its own name at this machine (DNS rebinding) is turned away. A browser takes it for one of this server's own,
so nothing but the Host header tells the two apart. What listens on a loopback address and asks for no token is therefore known
by addresses, by localhost, and by the names it was given.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable, Sequence

from ...errors import ForbiddenError

_MOST_SHOWN = 100


class Hosts:
    """The names besides localhost, its subdomains and addresses, which no page can make its own."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = frozenset(name.lower().rstrip(".") for name in names)
        self._known = functools.lru_cache(maxsize=64)(self._look_up)

    def check(self, given: Sequence[bytes]) -> None:
        """Reject a request by all values of its Host header. Raises ForbiddenError. One without the header, or with an empty
        one, comes from no browser."""
        for value in given:
            if not self._known(value):
                shown = _name(value)[:_MOST_SHOWN]
                raise ForbiddenError(
                    f"this server does not answer to the host name {shown!r}; use its address or localhost, or start it "
                    "with --allowed-host and that name, or with --token-file"
                )

    def _look_up(self, value: bytes) -> bool:
        name = _name(value)
        return name in ("", "localhost") or name.endswith(".localhost") or name in self._names or _is_address(name)


def check_page(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Reject what a page of another origin has a browser send.

    The rule of Go's net/http.CrossOriginProtection, for requests that do more than read: browsers say where a request comes
    from (W3C Fetch Metadata), or where they do not, as to plain HTTP on an address that is not local, they send its Origin,
    which is the Host then. Other clients send neither and are nobody's page. Raises ForbiddenError.
    """
    given = {name: [value for key, value in headers if key == name] for name in (b"sec-fetch-site", b"origin", b"host")}
    sites, origins, hosts = given.values()
    own = all(site in (b"same-origin", b"none") for site in sites)
    if not sites:
        own = all(origin.partition(b"://")[2].lower() == host.lower() for origin in origins for host in hosts or [b""])
    if not own:
        raise ForbiddenError(
            "a web page of another site may not send this; call from a page of this server or from another program"
        )


def known_hosts(host: str, names: Sequence[str], *, tokens: bool) -> Hosts | None:
    """The guard of a server that listens on `host`; None where it needs none. Where calls need a token a page has none; and a
    server that other machines reach is called by names that it cannot know."""
    return Hosts(names) if names or (is_loopback(host) and not tokens) else None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what is bound to this host."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _name(value: bytes) -> str:
    """A Host header without its port (RFC 9110, 7.2)."""
    text = value.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    """Whether it is an address of some machine, which 0.0.0.0 and :: are not: pages of other sites reach this one by them."""
    try:
        address = ipaddress.ip_address(name)
        return not (getattr(address, "ipv4_mapped", None) or address).is_unspecified
    except ValueError:
        return False
