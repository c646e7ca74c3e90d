"""aiohttp: instead of serving for ever, an application's routes that take POST are asked once, with a made image."""

from __future__ import annotations

import asyncio
import functools
import inspect
import socket
import sys
from collections.abc import Iterator
from typing import Any

from ..requests import REFUSED, Asked, Body, bodies, speaks_of_images, told_back
from ..stage import Stage

LIBRARIES = ("aiohttp",)


def stand_in(stage: Stage) -> None:
    stage.when_imported(
        "aiohttp.web", lambda library: stage.wrap(library, "run_app", lambda original, app, *_, **__: call(stage, app))
    )


def hosted(stage: Stage) -> list[Any]:
    """An application of the script's that another program would serve, such as gunicorn."""
    library = sys.modules.get("aiohttp.web")
    if library is None:
        return []
    return [value for value in list(vars(sys.modules["__main__"]).values()) if isinstance(value, library.Application)][:1]


def call(stage: Stage, app: Any) -> None:
    from aiohttp import web

    stage.served = True
    failed: list[Exception] = []

    @web.middleware
    async def keep(request: Any, handler: Any) -> Any:
        try:
            return await handler(request)
        except web.HTTPException:
            raise
        except Exception as error:
            failed.append(error)  # aiohttp answers with 500 and goes on
            raise

    async def opened() -> Any:
        served = await app if inspect.isawaitable(app) else app
        served.middlewares.insert(0, keep)
        made = web.AppRunner(served)
        await made.setup()
        return made

    async def post(path: str, body: Body) -> tuple[int, str]:
        """By a pair of sockets: nothing listens."""
        ours, theirs = socket.socketpair()
        await asyncio.get_running_loop().connect_accepted_socket(served.server, theirs)
        reader, writer = await asyncio.open_connection(sock=ours)
        writer.write(body.request(path))
        answer = await reader.read()
        writer.close()
        return told_back(answer)

    def ask(path: str) -> str:
        failed.clear()
        for body in bodies(stage):
            before = stage.count()
            status, text = runner.run(post(path, body))
            if status < REFUSED and stage.came(before):
                break
        else:
            if failed:
                raise failed[0]
        stage.note("servers", f"POST {path} was called with a made image ({body.name}) instead of serving")
        return f"{status} {text[:2000]}"

    asked = Asked(stage)
    with asyncio.Runner() as runner:
        served = runner.run(opened())
        for path, _ in sorted(_posts(served.app), key=lambda route: not speaks_of_images(*route)):
            asked.ask(path, functools.partial(ask, path))
        runner.run(served.cleanup())
    asked.end()


def _posts(app: Any) -> Iterator[tuple[str, Any]]:
    """The routes that take POST at a path without parameters, those of applications within it among them."""
    for route in app.router.routes():
        path = route.resource.canonical if route.resource is not None else "{"
        if route.method in ("POST", "*") and "{" not in path:
            yield path, route.handler
