"""An image by its address. Only http and https, also after a redirect, and never more bytes, seconds or hops than allowed.

Any host may be named, one of this network too: who names it is the user of this machine.
"""

from __future__ import annotations

import http.client
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import Future
from typing import IO, Any
from urllib.parse import quote, urlsplit

from ...errors import InputError

SCHEMES = ("http", "https")
_MOST_REDIRECTS = 5
_CHUNK = 1 << 16
_MOST_SAID = 200
_KEPT = "!#$%&'()*+,/:;=?@[]~"  # of an address, as RFC 3986 has it; what else there is, such as a space, is quoted


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = max_repeats = _MOST_REDIRECTS

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        _check(newurl)  # the library would also follow to ftp
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(address: str, *, limit: int, seconds: float) -> bytes:
    """The bytes behind an address. Raises InputError that says why there are none: also for more than `limit` bytes, and when
    they are not all there after so many seconds."""
    _check(address)
    found: Future[bytes] = Future()

    def work() -> None:
        try:
            found.set_result(_fetched(address, limit, seconds))
        except BaseException as error:  # noqa: BLE001 - handed to who waits
            found.set_exception(error)

    # A name that does not resolve, or a server that sends a byte a second, holds this thread and nobody else.
    threading.Thread(target=work, name="headrace-download", daemon=True).start()
    try:
        return found.result(seconds)
    except TimeoutError:
        raise InputError(f"it did not arrive within {seconds:g} s; allow more with --download-secs") from None
    except urllib.error.HTTPError as error:
        raise InputError(f"the server answers {error.code} {_begin(error.reason)}".strip()) from None
    except urllib.error.URLError as error:
        reason = error.reason
        raise InputError(f"it cannot be reached: {getattr(reason, 'strerror', None) or reason}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise InputError(f"it cannot be fetched: {type(error).__name__}: {_begin(error)}") from None


def _fetched(address: str, limit: int, seconds: float) -> bytes:
    end = time.monotonic() + seconds
    opener = urllib.request.build_opener(_Redirects)
    headers = {"Accept": "image/*", "User-Agent": "headrace"}
    request = urllib.request.Request(quote(address, safe=_KEPT), headers=headers)  # noqa: S310  its scheme was looked at
    data = bytearray()
    with opener.open(request, timeout=seconds) as answer:
        while chunk := answer.read1(_CHUNK):
            data += chunk
            if len(data) > limit:
                raise InputError(f"the image has more than {limit} bytes")
            if time.monotonic() > end:
                raise TimeoutError
        if (told := answer.length) is not None and told > 0:
            raise InputError(f"the server ended {told} bytes too early")
    return bytes(data)


def _begin(said: object) -> str:
    """What a server said, as far as a line takes it."""
    return str(said)[:_MOST_SAID]


def _check(address: str) -> None:
    try:
        parts = urlsplit(address)
        if parts.scheme not in SCHEMES:
            raise InputError(f"addresses begin with http:// or https://, and this one with {parts.scheme}:")
        if not parts.hostname:
            raise InputError("the address names no host")
        _ = parts.port
    except ValueError as error:
        raise InputError(f"it is no address: {error}") from None
