"""Who may call what: bearer tokens by category, decided here for HTTP, gRPC and the metrics port alike.

Without tokens everything is open. With them, everything is rejected that has no row in protocol/routes.py: a new route or
method opens to nobody until it has one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...errors import ForbiddenError, HeadraceError, UnauthorizedError
from ..config import ServeConfig
from ..protocol.routes import ADMIN, INFER, METHODS, METRICS, Cost, Method, Route, find_route
from .hosts import is_loopback

CATEGORIES = (INFER, ADMIN, METRICS)

# Tokens that a person chose are guessed; 16 characters are what is left to catch the shortest.
_TOKEN = re.compile(r"[\x21-\x7e]{16,1024}")
_HASHED = re.compile(r"sha256:([0-9a-f]{64})")
_BEARER = re.compile(r"(?i:bearer) +([\x21-\x7e]{1,1024})")


class Guard(Protocol):
    """Who lets calls through, or raises UnauthorizedError or ForbiddenError. `authorization` are all values of that header."""

    def check_path(self, path: str, authorization: Sequence[str]) -> None: ...
    def check_method(self, method: str, authorization: Sequence[str]) -> None: ...


class NoControl:
    """Without tokens, on an address that other machines reach: what serves is open to all, and its setup to nobody."""

    def check_path(self, path: str, _: Sequence[str]) -> None:
        self._check(find_route(path))

    def check_method(self, method: str, _: Sequence[str]) -> None:
        self._check(METHODS.get(method))

    def _check(self, called: Route | Method | None) -> None:
        if called is not None and called.cost is Cost.CONTROL:
            raise ForbiddenError(
                "this server takes no control from other machines without a token; start it with --token-file, or on 127.0.0.1"
            )


def guard_of(config: ServeConfig) -> Guard | None:
    """The guard of a server: by tokens, where there are any; none on an address of this machine alone. Raises HeadraceError."""
    if config.security.token_file is not None:
        return load_access(config.security.token_file)
    return None if is_loopback(config.addresses.host) else NoControl()


class Access:
    """The tokens of each category, as SHA-256 digests; the tokens themselves are not kept."""

    def __init__(self, digests: Mapping[str, Sequence[bytes]]) -> None:
        self._digests = [(digest, category) for category in CATEGORIES for digest in digests.get(category, ())]

    def check_path(self, path: str, authorization: Sequence[str]) -> None:
        """Reject a request for an HTTP path unless one of its categories has the token. `path` is percent-decoded, as the
        router sees it; `authorization` are all values of that header. Raises UnauthorizedError or ForbiddenError."""
        self._check(find_route(path), authorization)

    def check_method(self, method: str, authorization: Sequence[str]) -> None:
        """The same for a gRPC method by its full name, "/package.Service/Method"."""
        self._check(METHODS.get(method), authorization)

    def _check(self, called: Route | Method | None, authorization: Sequence[str]) -> None:
        if called is not None and not called.rights:
            return
        given = _BEARER.fullmatch(authorization[0]) if len(authorization) == 1 else None
        if given is None:
            raise UnauthorizedError("this server answers calls with a token only; send it as 'Authorization: Bearer TOKEN'")
        digest = hashlib.sha256(given[1].encode()).digest()
        # All are compared, whether one was found or not, so that time shows nothing.
        held = {category for known, category in self._digests if hmac.compare_digest(known, digest)}
        if not held:
            raise UnauthorizedError("the token is not known to this server; send one of its token file (--token-file)")
        if called is None:
            raise ForbiddenError("no token opens this path or method, which this server does not have")
        if not held & called.rights:
            raise ForbiddenError(f"this needs a token of category {' or '.join(sorted(called.rights))}")


def load_access(path: Path) -> Access:
    """Read a token file: TOML (or JSON where the name ends in .json) with lists of tokens under infer, admin and metrics. An
    entry is a token, or "sha256:" and its digest in hexadecimal. A category without tokens is closed. Raises HeadraceError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HeadraceError(f"cannot read the token file {path} (--token-file): {getattr(error, 'strerror', error)}") from None
    try:
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise HeadraceError(
            f"the token file {path} is not valid {'JSON' if path.suffix == '.json' else 'TOML'}: {error}"
        ) from None
    if not isinstance(content, dict) or not content:
        raise HeadraceError(f"the token file {path} must hold lists of tokens under {', '.join(CATEGORIES)}")
    if unknown := sorted(set(content) - set(CATEGORIES)):
        raise HeadraceError(f"the token file {path} names '{unknown[0]}'; the categories are {', '.join(CATEGORIES)}")
    return Access(
        {
            category: [_digest(path, category, entry) for entry in _list(path, category, entries)]
            for category, entries in content.items()
        }
    )


def _list(path: Path, category: str, entries: Any) -> list[Any]:
    if not isinstance(entries, list):
        raise HeadraceError(f"the token file {path}: '{category}' must be a list of strings")
    return entries


def _digest(path: Path, category: str, entry: Any) -> bytes:
    if isinstance(entry, str):
        if hashed := _HASHED.fullmatch(entry):
            return bytes.fromhex(hashed[1])
        if _TOKEN.fullmatch(entry) and not entry.startswith("sha256:"):
            return hashlib.sha256(entry.encode()).digest()
    raise HeadraceError(
        f"the token file {path}: every token of '{category}' must be a string of 16 to 1024 visible ASCII characters, as "
        "`openssl rand -hex 32` makes, or sha256: and its digest"
    )
