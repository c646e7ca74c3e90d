"""The console's page and its files, which are open to all and hold nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from ...errors import NotFoundError

_FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Whatever a label or a name may say, the page runs and loads nothing but its own files, talks to nobody else, and makes no HTML
# of text (trusted types). Chosen images are shown from memory (blob:).
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",  # ask every time, and hear 304 when nothing has changed
}


class _File(NamedTuple):
    content: bytes
    headers: dict[str, str]


class ConsolePages:
    """The page and its files, read once."""

    def __init__(self) -> None:
        self._files = {path.name: _read(path) for path in _FOLDER.iterdir()}

    def answer(self, request: Request, name: str) -> Response:
        """One file, or that the browser has it already. Raises NotFoundError."""
        file = self._files.get(name)
        if file is None:
            raise NotFoundError("the console has no such file")
        if file.headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=file.headers)
        return Response(file.content, headers=file.headers)


def _read(path: Path) -> _File:
    content = path.read_bytes()
    about: dict[str, Any] = {"Content-Type": _TYPES[path.suffix], "ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"'}
    return _File(content, _HEADERS | about)
