"""What calls a class of the user's where a model server would, one file each, found by its place here.

    LIBRARY, or LIBRARIES      what the user's code imports of that server
    stand_in(stage)            optional: what is to hold while the script runs, such as a server that does not serve
    hosted(stage)              the objects of the script that such a server would call
    call(stage, thing)         make one of them as the server does, and have it answer a request with a made image

Nothing is swallowed: where no form of a request is taken, the error of the first one stops the rehearsal.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..places import is_users
from ..requests import said
from ..stage import Stage


def own_values(stage: Stage) -> list[Any]:
    """What the script itself defines, not what it imports."""
    return [value for value in list(vars(sys.modules["__main__"]).values()) if getattr(value, "__module__", "") == "__main__"]


def module_file(kind: Any) -> str:
    """The file of the module in which a class or a function is defined; empty where that has none."""
    return str(getattr(sys.modules.get(getattr(kind, "__module__", "")), "__file__", None) or "")


def file_of(stage: Stage, kind: Any) -> str:
    """The file of the user's in which a class or a function is defined, else the script."""
    for item in (kind, *getattr(kind, "__mro__", ())):
        path = module_file(item)
        if path and is_users(path, stage.root):
            return path
    return str(Path(stage.root, stage.request.script))


def definition(stage: Stage, kind: Any) -> ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Its definition in the sources."""
    tree = ast.parse(Path(file_of(stage, kind)).read_bytes()) if file_of(stage, kind).endswith(".py") else ast.Module([], [])
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return next((node for node in ast.walk(tree) if isinstance(node, kinds) and node.name == kind.__name__), None)


def _definitions(stage: Stage, kind: Any) -> list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Its definition and those of the user's classes that it is derived from, in the order in which methods are looked for."""
    every = [item for item in getattr(kind, "__mro__", (kind,)) if item is not object]
    return [node for item in every if (node := definition(stage, item)) is not None]


def method(stage: Stage, kind: Any, *names: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The first of these methods that the sources have of a class."""
    nodes = [node for node in _definitions(stage, kind) if isinstance(node, ast.ClassDef)]
    parts = [item for node in nodes for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
    return next((item for name in names for item in parts if item.name == name), None)


def source_of(stage: Stage, kind: Any) -> str:
    return "\n".join(ast.unparse(node) for node in _definitions(stage, kind))


def at_its_class(stage: Stage, kind: Any, own: Any, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Call a function as if a line of the user's did, that of the definition of a class: what is seen by its caller's place is
    seen there, and `own` is that caller's `self`."""
    node = definition(stage, kind)
    text = "\n" * ((node.lineno if node is not None else 1) - 1) + "answer = function(*args, **named)"
    names = {"function": function, "args": args, "named": named, "self": own}
    exec(compile(text, file_of(stage, kind), "exec"), vars(sys.modules["__main__"]), names)  # noqa: S102 - these words alone
    return names["answer"]


def answered(stage: Stage, what: str, tried: Iterable[tuple[str, Callable[[], Any]]]) -> None:
    """Have requests answered, one after the other, until one comes to a model; the next run begins with that one.

    Raises what the first one raised where none is answered.
    """
    known = stage.learned.get("request")
    first: Exception | None = None
    for name, ask in sorted(tried, key=lambda item: item[0] != known):
        before = stage.count()
        try:
            answer = ask()
        except Exception as error:  # noqa: BLE001 - another form may be the one; the first error is raised where none is
            first = first or error
            continue
        if stage.came(before):
            stage.learn("request", name)
            stage.note("servers", f"{what} was called with a made image ({name}) instead of being served")
            sys.stdout.write(f"{what}: {said(answer)}\n")
            return
    if first is not None:
        raise first
    stage.note("servers", f"{what} was called with a made image instead of being served")


def takes(function: Any, name: str) -> bool:
    return name in inspect.signature(function).parameters


def settled(made: Any) -> Any:
    """What a server takes of an answer: awaited where it is to be, and all of what is made piece by piece."""
    made = asyncio.run(_awaited(made)) if inspect.isawaitable(made) else made
    return list(made) if inspect.isgenerator(made) else made


async def _awaited(value: Any) -> Any:
    return await value
