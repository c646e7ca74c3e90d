"""Request bodies from strangers: read within limits, unpacked within limits, and given up when their sender goes away."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from ...errors import InputError, TooLargeError, UnsupportedError
from ..guard.byte_budget import ByteBudget
from ..guard.rate_limit import client_of_address

T = TypeVar("T")

# How long an answer may take before the server looks whether anybody still waits for it: watching takes a task of its own.
_QUICK_SECONDS = 0.02
_PIECE_BYTES = 1 << 20
_LONG_JOIN = 4 << 20


class BodyReader:
    """Reads bodies of at most `limit` bytes each, held on `budget`. How long one may take is the connection's business. Of each
    that has ended `give_back` is told the bytes: what it took may stay with the process otherwise."""

    def __init__(self, *, limit: int, budget: ByteBudget, give_back: Callable[[int], None] = lambda size: None) -> None:
        self._limit = limit
        self._budget = budget
        self._give_back = give_back

    def read(self, request: Request) -> AbstractAsyncContextManager[bytes]:
        """The body as it was sent; its bytes count as held until the block ends. Raises TooLargeError before it reads beyond
        the limit, OverloadedError when too much is in memory, and ClientDisconnect."""
        return _Reading(request, self._limit, self._budget, self._give_back)


class _Reading(AbstractAsyncContextManager[bytes]):
    """One body. A class, and not a generator, since every request passes here."""

    def __init__(self, request: Request, limit: int, budget: ByteBudget, give_back: Callable[[int], None]) -> None:
        self._request = request
        self._limit = limit
        self._budget = budget
        self._give_back = give_back
        self._held = 0
        self._client = client_of(request)

    async def __aenter__(self) -> bytes:
        declared = header(self._request, b"content-length")
        if declared.isdigit() and int(declared) > self._limit:
            raise TooLargeError(f"the body has {int(declared):,} bytes; this server takes at most {self._limit:,}")
        try:
            return await self._whole()
        except BaseException:
            await self.__aexit__()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._budget.give(self._held, self._client)
        self._give_back(self._held)

    async def _whole(self) -> bytes:
        chunks: list[bytes] = []
        more = True
        while more:
            message = await self._request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk = message.get("body", b"")
            if self._held + len(chunk) > self._limit:
                raise TooLargeError(f"the body has more than {self._limit:,} bytes, the most that this server takes")
            self._budget.take(len(chunk), self._client)
            self._held += len(chunk)
            chunks.append(chunk)
            more = message.get("more_body", False)
        return await _joined(chunks)


async def _joined(pieces: Sequence[bytes]) -> bytes:
    """The pieces as one; many bytes beside the event loop, which joining lets go on meanwhile."""
    if len(pieces) == 1:
        return pieces[0]
    if sum(map(len, pieces)) < _LONG_JOIN:
        return b"".join(pieces)
    return await asyncio.to_thread(b"".join, pieces)


def client_of(request: Request) -> str:
    """Whom a request is counted against."""
    client = request.scope.get("client")
    return client_of_address(client[0]) if client else ""


def header(request: Request, name: bytes) -> bytes:
    """The first value of a header, named in lower case; empty when it is absent. `request.headers` would copy all of them."""
    return next((value for key, value in request.scope["headers"] if key == name), b"")


class Unpacker:
    """Takes a body's Content-Encoding away, gzip or deflate (zlib), piece by piece, up to `limit` bytes together."""

    def __init__(self, body: bytes, encoding: str, limit: int) -> None:
        if encoding not in ("gzip", "deflate"):
            raise UnsupportedError(f"Content-Encoding {encoding[:40]!r} is not supported; send gzip, deflate or none")
        self._packed, self._encoding, self._limit, self._total = body, encoding, limit, 0
        self._unpacker = zlib.decompressobj(wbits=31 if encoding == "gzip" else 15)

    def next(self) -> bytes:
        """The next piece; empty at the end. Raises InputError or TooLargeError."""
        if self._unpacker.eof:
            if self._unpacker.unused_data:
                raise InputError(f"the {self._encoding} body has more data after its end")
            return b""
        try:
            piece = self._unpacker.decompress(self._packed, _PIECE_BYTES)
        except zlib.error:
            raise InputError(f"the body is not valid {self._encoding} data") from None
        self._packed = self._unpacker.unconsumed_tail
        self._total += len(piece)
        if self._total > self._limit:
            raise TooLargeError(f"the body unpacks to more than {self._limit:,} bytes, the most that this server takes")
        if not piece and not self._unpacker.eof:
            raise InputError(f"the {self._encoding} body is cut short")
        return piece or self.next()


def header_length(request: Request) -> int | None:
    """Inference-Header-Content-Length, None when absent."""
    value = request.headers.get("inference-header-content-length")
    if value is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", value):
        raise InputError(f"Inference-Header-Content-Length must be a non-negative integer, got {value[:40]!r}")
    return int(value)


class _InMemoryParser(MultiPartParser):
    """The body is in memory already and bounded, so a file part need not go through the disk."""

    spool_max_size = 1 << 40


@dataclass(frozen=True)
class FormFile:
    """A file of a form: the field that holds it, its name, and what it holds. `others` are the form's other fields."""

    field: str
    name: str
    data: bytes
    others: tuple[str, ...] = ()


async def image_of_form(request: Request, body: bytes) -> bytes:
    """The one file of a multipart form."""
    return (await file_of_form(request, body)).data


async def file_of_form(request: Request, body: bytes) -> FormFile:
    """The one file of a multipart form, with its names."""

    async def stream() -> AsyncIterator[bytes]:
        yield body

    parser = _InMemoryParser(request.headers, stream(), max_files=1, max_fields=8, max_part_size=64 * 1024)  # type: ignore[arg-type]
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError) as error:
        raise InputError(
            f"the form cannot be read: {getattr(error, 'message', 'the body is not valid multipart/form-data')}"
        ) from None
    try:
        items = form.multi_items()
        files = [(field, value) for field, value in items if isinstance(value, UploadFile)]
        if len(files) != 1:
            raise InputError("the form must hold one image file, as in curl -F file=@photo.jpg")
        ((field, file),) = files
        others = tuple(name for name, value in items if value is not file)
        return FormFile(field, file.filename or "", await file.read(), others)
    finally:
        await form.close()


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`; when the client disconnects meanwhile, cancel it and raise ClientDisconnect. The body was read before. The
    connection is only watched once `work` takes longer than a quick answer, which needs no watching."""
    loop, waiting = asyncio.get_running_loop(), asyncio.current_task()
    assert waiting is not None, "a coroutine runs in a task"
    watch: asyncio.Future[Any] | None = None
    done = False

    def begin() -> None:
        nonlocal watch
        watch = asyncio.ensure_future(request.receive())
        watch.add_done_callback(lambda _: None if done else waiting.cancel())

    timer = loop.call_later(_QUICK_SECONDS, begin)
    try:
        return await work
    except asyncio.CancelledError:
        gone = watch is not None and watch.done() and not watch.cancelled()
        if gone and waiting.uncancel() == 0:  # else somebody cancelled this task as well
            raise ClientDisconnect from None
        raise
    finally:
        done = True
        timer.cancel()
        if watch is not None:
            watch.cancel()
