"""The console's routes: the page and its files, which are open to all and hold nothing, and the figures they draw."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from ...errors import NotFoundError
from ..plane.data_plane import DataPlane

__all__ = ["add_console"]

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
    "Cache-Control": "no-cache",  # ask every time, and be told that nothing has changed
}


class _File(NamedTuple):
    content: bytes
    headers: dict[str, str]


def add_console(app: FastAPI, plane: DataPlane) -> None:
    """The page at /, its files under /console/, and its figures at /v1/figures."""
    files = {path.name: _read(path) for path in _FOLDER.iterdir()}

    def send(request: Request, file: _File) -> Response:
        if file.headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=file.headers)
        return Response(file.content, headers=file.headers)

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page(request: Request) -> Response:
        return send(request, files["index.html"])

    @app.api_route("/console/{name}", methods=["GET", "HEAD"], include_in_schema=False)
    async def part(request: Request, name: str) -> Response:
        if name not in files:
            raise NotFoundError("the console has no such file")
        return send(request, files[name])

    @app.get("/v1/figures", tags=["server"])
    async def figures() -> Response:
        """Counters, latency histograms and queues of all models, as the console draws them: rates are their changes."""
        return JSONResponse(await plane.live_stats())


def _read(path: Path) -> _File:
    content = path.read_bytes()
    about: dict[str, Any] = {"Content-Type": _TYPES[path.suffix], "ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"'}
    return _File(content, _HEADERS | about)
