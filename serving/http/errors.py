"""Errors as HTTP answers, from all ports alike: the error's status and {"error": "..."}."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from ...errors import OverloadedError, RequestError, UnauthorizedError


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """An error of whatever kind."""
    # What is quoted may hold halves of surrogate pairs, which JSON can spell and UTF-8 cannot.
    text = message.encode("utf-8", "replace").decode()
    return JSONResponse({"error": text}, status_code=status, headers=headers)


def response_of(error: RequestError) -> Response:
    """One of ours, with the header that goes with its status."""
    headers = {}
    if isinstance(error, OverloadedError):
        headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, UnauthorizedError):
        headers["WWW-Authenticate"] = "Bearer"
    return error_response(error.status, str(error), headers)
