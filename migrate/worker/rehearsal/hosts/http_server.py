"""Python's own HTTP servers (`http.server`, `wsgiref`, and what is built on them): instead of serving for ever, requests with a
made image go through the server's handler, as if they had come over a socket."""

from __future__ import annotations

import ast
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ..places import is_users, user_frame
from ..requests import REFUSED, Body, bodies, every_source, told_back
from ..stage import Stage
from . import answered, module_file, source_of

LIBRARIES = ("http.server",)
_PATH = re.compile(r"^/[\w./-]*$")


def stand_in(stage: Stage) -> None:
    def serve(original: Any, self: Any, *args: Any, **named: Any) -> None:
        if _is_application(stage, self):
            call(stage, self)
        else:
            original(self, *args, **named)

    def listen(original: Any, self: Any) -> None:
        if not _is_application(stage, self):
            original(self)

    def install(_: Any) -> None:
        library = sys.modules["socketserver"]
        stage.wrap(library.BaseServer, "serve_forever", serve)
        stage.wrap(library.TCPServer, "server_activate", listen)

    stage.when_imported("http.server", install)


def _is_application(stage: Stage, server: Any) -> bool:
    """Whether a server is one of HTTP that the user's code starts; what a library serves in a thread of its own, such as
    figures for Prometheus, is nobody's application."""
    kind = getattr(server, "RequestHandlerClass", None)
    return hasattr(kind, "parse_request") and (_is_own(stage, kind) or user_frame(stage.root) is not None)


def hosted(stage: Stage) -> list[Any]:
    """None: a handler that no server has is called by nobody."""
    return []


def call(stage: Stage, server: Any) -> None:
    stage.served = True
    kind = server.RequestHandlerClass
    own = _is_own(stage, kind)
    sources = [source_of(stage, kind)] if own else every_source(stage)  # another's handler calls an application of the user's
    answered(stage, f"{kind.__name__} of http.server", _requests(stage, server, sources, not own or hasattr(kind, "do_POST")))


def _is_own(stage: Stage, kind: Any) -> bool:
    return is_users(module_file(kind), stage.root)


def _requests(stage: Stage, server: Any, handling: list[str], posts: bool) -> Iterator[tuple[str, Callable[[], str]]]:
    """Each form of a request, at each path of which what handles it speaks."""
    for body in bodies(stage) if posts else [Body("nothing", "", b"")]:
        for path in _paths(handling):
            yield f"{body.name} at {path}", partial(_ask, server, body.request(path, "POST" if posts else "GET"))


def _paths(texts: list[str]) -> list[str]:
    nodes = [node for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    found = [node.value for node in nodes if isinstance(node.value, str) and _PATH.match(node.value)]
    return list(dict.fromkeys([*sorted(found, key=lambda path: path == "/"), "/"]))


def _ask(server: Any, request: bytes) -> str:
    """What the handler answers; an error of its own is raised, and one that it tells is one, too."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        ours.sendall(request)
        ours.shutdown(socket.SHUT_WR)

    sent = threading.Thread(target=send, daemon=True)
    parts: list[bytes] = []
    read = threading.Thread(target=lambda: parts.extend(iter(partial(ours.recv, 1 << 16), b"")), daemon=True)
    sent.start()
    read.start()
    try:
        server.RequestHandlerClass(theirs, ("127.0.0.1", 0), server)
    finally:
        theirs.close()
        read.join()
        ours.close()
    status, text = told_back(b"".join(parts))
    if status >= REFUSED:
        raise OSError(f"{status} {text[:300]}")
    return f"{status} {text[:2000]}"
