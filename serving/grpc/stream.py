"""Many requests of one stream at a time, answered as they are done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")


async def in_completion_order(
    requests: AsyncIterator[Request], answer: Callable[[Request], Awaitable[Answer]], *, window: int
) -> AsyncIterator[Answer]:
    """The answers in the order in which they are done. At most `window` requests run at a time, and no more are read meanwhile;
    ending early cancels them. An exception of `answer` or of `requests` ends the whole."""
    done: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue()
    free = asyncio.Semaphore(window)
    running: set[asyncio.Future[Answer]] = set()

    async def read() -> None:
        async for request in requests:
            await free.acquire()
            task = asyncio.ensure_future(answer(request))
            running.add(task)
            task.add_done_callback(done.put_nowait)

    reader = asyncio.ensure_future(read())
    reader.add_done_callback(done.put_nowait)
    reading = True
    try:
        while reading or running:
            finished = await done.get()
            if finished is reader:
                reading = False
                reader.result()
                continue
            running.discard(finished)
            free.release()
            yield finished.result()
    finally:
        reader.cancel()
        for task in running:
            task.cancel()
