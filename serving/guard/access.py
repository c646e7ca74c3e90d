"""Who may call what: bearer tokens by category, decided here for HTTP, gRPC and the metrics port alike.

Without tokens everything is open. With them, everything is refused that is not listed below: a new route or method opens to
nobody until it has a line here, and so does another spelling of a path: whole paths are compared, as the router sees them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import ForbiddenError, HeadraceError, UnauthorizedError

__all__ = ["CATEGORIES", "Access", "load_access"]

CATEGORIES = ("infer", "admin", "metrics")

_OPEN: frozenset[str] = frozenset()
_INFER, _ADMIN, _METRICS = (frozenset({category}) for category in CATEGORIES)
_READ = _INFER | _ADMIN

_MODEL = r"/v2/models/[^/]+(?:/versions/[^/]+)?"
# Paths, after percent-decoding, with the categories that open them; the first that matches counts.
_PATHS = [
    (re.compile(pattern), categories)
    for pattern, categories in (
        (r"/v2/health/(?:live|ready)", _OPEN),
        # The console is a page without figures; what it draws is read as whoever looks at it.
        (r"/|/console/[^/]+", _OPEN),
        (r"/v1/figures", _READ | _METRICS),
        (r"/metrics", _METRICS),
        (rf"{_MODEL}/infer|/v1/classify/[^/]+", _INFER),
        (rf"/v2|/v2/models/stats|{_MODEL}(?:/ready|/config|/stats)?|/v2/repository/index", _READ),
        (r"/docs|/docs/oauth2-redirect|/redoc|/openapi\.json", _READ),
        (r"/v2/repository/models/[^/]+/(?:load|unload)", _ADMIN),
        (r"/v2/(?:system|cuda)sharedmemory(?:/region/[^/]+)?/(?:status|register|unregister)", _ADMIN),
        (rf"/v2/logging|/v2/trace/setting|{_MODEL}/trace/setting", _ADMIN),
    )
]
_SERVICE = "/inference.GRPCInferenceService/"
_METHODS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"), _OPEN),
    "/grpc.health.v1.Health/List": _OPEN,
    **dict.fromkeys((f"{_SERVICE}ServerLive", f"{_SERVICE}ServerReady"), _OPEN),
    **dict.fromkeys((f"{_SERVICE}ModelInfer", f"{_SERVICE}ModelStreamInfer"), _INFER),
    **dict.fromkeys(
        (
            f"{_SERVICE}{name}"
            for name in (
                "ServerMetadata", "ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics", "RepositoryIndex",
            )
        ),
        _READ,
    ),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _READ,
    **dict.fromkeys(
        (
            f"{_SERVICE}{name}"
            for name in (
                "RepositoryModelLoad", "RepositoryModelUnload", "TraceSetting", "LogSettings",
                "SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister",
                "CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister",
            )
        ),
        _ADMIN,
    ),
}  # fmt: skip

# Tokens that a person chose are guessed; 16 characters are what is left to catch the shortest.
_TOKEN = re.compile(r"[\x21-\x7e]{16,1024}")
_HASHED = re.compile(r"sha256:([0-9a-f]{64})")
_BEARER = re.compile(r"(?i:bearer) +([\x21-\x7e]{1,1024})")


class Access:
    """The tokens of each category, as SHA-256 digests; the tokens themselves are not kept."""

    def __init__(self, digests: Mapping[str, Sequence[bytes]]) -> None:
        self._digests = [(digest, category) for category in CATEGORIES for digest in digests.get(category, ())]

    def check_path(self, path: str, authorization: Sequence[str]) -> None:
        """Refuse a request for an HTTP path unless one of its categories has the token.

        `path` is percent-decoded, as the router sees it; `authorization` are all values of that header. Raises
        UnauthorizedError or ForbiddenError.
        """
        self._check(next((categories for pattern, categories in _PATHS if pattern.fullmatch(path)), None), authorization)

    def check_method(self, method: str, authorization: Sequence[str]) -> None:
        """The same for a gRPC method by its full name, "/package.Service/Method"."""
        self._check(_METHODS.get(method), authorization)

    def _check(self, needed: frozenset[str] | None, authorization: Sequence[str]) -> None:
        if needed is not None and not needed:
            return
        given = _BEARER.fullmatch(authorization[0]) if len(authorization) == 1 else None
        if given is None:
            raise UnauthorizedError("this server takes calls with a token only; send it as 'Authorization: Bearer TOKEN'")
        digest = hashlib.sha256(given[1].encode()).digest()
        # All are compared, whether one was found or not, so that time tells nothing.
        held = {category for known, category in self._digests if hmac.compare_digest(known, digest)}
        if not held:
            raise UnauthorizedError("the token is not known to this server")
        if needed is None:
            raise ForbiddenError("no token opens this; it is none of this server's paths or methods")
        if not held & needed:
            raise ForbiddenError(f"this needs a token of category {' or '.join(sorted(needed))}")


def load_access(path: Path) -> Access:
    """Read a token file: TOML (or JSON where the name ends in .json) with lists of tokens under infer, admin and metrics.

    An entry is a token, or "sha256:" and its digest in hexadecimal. A category without tokens is closed. Raises HeadraceError.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HeadraceError(f"cannot read the token file {path}: {getattr(error, 'strerror', error)} (--token-file)") from None
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
