"""Paths of migrated applications become paths of the server's own before anything looks at them.

So access control, tracing, limits and the router know of one table alone, `protocol/routes.py`, in which they have a row.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send


class KeptPaths:
    """An ASGI application around another that gets requests for `paths` under the paths that those stand for. The raw path
    stays as it was sent: it is what the access log writes."""

    def __init__(self, app: ASGIApp, paths: Mapping[str, str]) -> None:
        self._app = app
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and (own := self._paths.get(scope["path"])) is not None:
            scope["path"] = own
        await self._app(scope, receive, send)
