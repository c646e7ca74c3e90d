"""The console's page and its files, which are open to all and hold nothing, and those of Swagger UI."""

from __future__ import annotations

import mimetypes
from importlib.util import find_spec
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from ...errors import NotFoundError

mimetypes.add_type("text/javascript", ".js")  # as RFC 9239 has it, whatever this machine's table says
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


class ConsolePages(StaticFiles):
    """The page and its files."""

    def __init__(self) -> None:
        # Without this package, /docs takes them from the internet.
        self.has_swagger = find_spec("fastapi_offline") is not None
        packages: list[str | tuple[str, str]] = [("fastapi_offline", "static")] if self.has_swagger else []
        super().__init__(directory=Path(__file__).parent / "static", packages=packages)

    async def answer(self, request: Request, name: str) -> Response:
        """One file, or that the browser has it already. Raises NotFoundError."""
        try:
            response = await self.get_response(name, request.scope)
        except HTTPException:
            raise NotFoundError("the console has no such file") from None
        response.headers.update(_HEADERS)
        return response
