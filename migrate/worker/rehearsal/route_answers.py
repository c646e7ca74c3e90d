"""What the routes of a Flask or FastAPI application answer to given images: path, how the image was sent, status, type, text.

What is seen is left as it is; what it means is found out in another process, which runs nothing of the user's.
"""

from __future__ import annotations

import base64
import inspect
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .places import is_users
from .requests import members_of
from .stage import Stage

_OK = 200
_MOST_TEXT = 1 << 20
_MOST_ROUTES = 16
_MOST_TABLES = 32
_SEVERAL = 2


@dataclass(frozen=True)
class Sent:
    """How an image is sent: as the file `name` of a form, as base64 in the member `name` of a JSON object, or as the body."""

    kind: str
    name: str = ""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    type: str
    text: str


@dataclass(frozen=True)
class Observed:
    """One route: where its function stands, in which forms it may take an image, how it is asked, and why it cannot be."""

    path: str
    where: str
    forms: Sequence[Sent]
    ask: Callable[[Sent, str, bytes], Answer]
    why: str = ""


def observe(stage: Stage, routes: Iterator[Observed], forms: Sequence[Sent] = ()) -> None:
    """Ask every route for each of the probes, and leave the answers as JSON. `forms` are those of routes that declare none."""
    probes = [(Path(probe).name, Path(probe).read_bytes()) for probe in stage.request.probes]
    found = []
    for route in [item for _, item in zip(range(_MOST_ROUTES), routes, strict=False)]:
        said: dict[str, Any] = {"path": route.path, "where": _place(stage, route.where), "why": route.why}
        if not route.why:
            said |= _asked(route, route.forms or forms, probes)
        found.append(said)
        sys.stdout.write(f"POST {route.path}: asked {len(said.get('answers', ()))} times\n")
    assert stage.request.answers is not None
    Path(stage.request.answers).write_text(json.dumps({"routes": found, "tables": list(_tables(stage))}), encoding="utf-8")


def _asked(route: Observed, forms: Sequence[Sent], probes: Sequence[tuple[str, bytes]]) -> dict[str, Any]:
    first = ""
    for form in forms:
        try:
            answer = route.ask(form, *probes[0])
        except Exception as error:  # noqa: BLE001 - another form may be the one that it takes
            first = first or f"{type(error).__name__}: {error}"
            continue
        if answer.status != _OK:
            first = first or f"it answers {answer.status}"
            continue
        # The first one twice: what differs then does not depend on the image.
        answers = [answer, *(route.ask(form, *probe) for probe in probes)]
        return {
            "sent": {"kind": form.kind, "name": form.name},
            "answers": [{"status": one.status, "type": one.type, "text": one.text[:_MOST_TEXT]} for one in answers],
        }
    told = f" ({first[:300]})" if first else ""
    return {"why": f"it takes no image alone, as the file of a form, as base64 in JSON, or as the body{told}"}


def flask_routes(app: Any, with_header: bool) -> Iterator[Observed]:
    """The routes of a Flask application that take POST."""
    app.config["PROPAGATE_EXCEPTIONS"] = True
    client = app.test_client()
    for rule in app.url_map.iter_rules():
        if "POST" not in rule.methods:
            continue

        def ask(form: Sent, name: str, data: bytes, path: str = rule.rule) -> Answer:
            if form.kind == "file":
                answer = client.post(path, data={form.name: (io.BytesIO(data), name, "image/jpeg")})
            elif form.kind == "json":
                answer = client.post(path, json={form.name: encoded(data, with_header)})
            else:
                answer = client.post(path, data=data, content_type="application/octet-stream")
            return Answer(answer.status_code, answer.content_type or "", answer.get_data(as_text=True))

        why = "its path has parameters" if rule.arguments else ""
        yield Observed(rule.rule, place_of(app.view_functions.get(rule.endpoint)), (), ask, why)


def fastapi_routes(
    app: Any, client: Any, with_header: bool, files: Sequence[str], entries: Sequence[str]
) -> Iterator[Observed]:
    """The routes of a FastAPI application that take POST; `files` and `entries` are what the sources take out of requests."""
    for at, route in fastapi_posts(app):

        def ask(form: Sent, name: str, data: bytes, path: str = at) -> Answer:
            if form.kind == "file":
                answer = client.post(path, files={form.name: (name, io.BytesIO(data), "image/jpeg")})
            elif form.kind == "json":
                answer = client.post(path, json={form.name: encoded(data, with_header)})
            else:
                answer = client.post(path, content=data, headers={"Content-Type": "application/octet-stream"})
            return Answer(answer.status_code, answer.headers.get("content-type", ""), answer.text)

        forms, why = _declared(route.dependant, files, entries)
        why = "its path has parameters" if "{" in at else why
        yield Observed(at, place_of(route.endpoint), forms, ask, why)


def fastapi_posts(app: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """The routes of a FastAPI application that take POST, each with its path, those of mounted applications and of included
    routers, which lately keep their own, among them."""
    from fastapi import routing

    every = getattr(app, "routes", None) or ()
    for route in getattr(routing, "iter_route_contexts", iter)(every):
        path = f"{above}{getattr(route, 'path', None) or ''}"
        if hasattr(route, "routes"):
            yield from fastapi_posts(route, path)
        elif "POST" in (getattr(route, "methods", None) or ()) and hasattr(route, "dependant"):
            yield path, route


def _declared(takes: Any, files: Sequence[str], entries: Sequence[str]) -> tuple[list[Sent], str]:
    """How a route of FastAPI declares that it takes an image, or why that is none of the forms that are kept."""
    kinds = [(type(field.field_info).__name__, field) for field in takes.body_params]
    if not kinds and getattr(takes, "request_param_name", None) is not None:
        return [Sent("body"), *(Sent("file", name) for name in files), *(Sent("json", name) for name in entries)], ""
    needed = [(kind, field) for kind, field in kinds if len(kinds) == 1 or field.field_info.is_required()]
    if len(needed) != 1:
        return [], "it takes more than an image" if kinds else "it takes no image"
    ((kind, field),) = needed
    if kind == "File":
        return [Sent("file", field.alias)], ""
    kind_of_body = field.field_info.annotation
    names = _text_fields(kind_of_body) or members_of(takes.call, field.name, kind_of_body) or None
    if kind != "Body" or (names is not None and len(names) != 1):
        return (
            [],
            "it takes an image neither as the file of a form, nor as base64 in one member of a JSON object, nor as the body",
        )
    if names is None:
        embedded = len(kinds) > 1 or getattr(field.field_info, "embed", None) is True
        return ([Sent("json", field.alias)], "") if embedded else ([], "it takes a JSON text, no object")
    return [Sent("json", names[0])], ""


def _text_fields(kind: Any) -> list[str] | None:
    """The texts that an object of a pydantic class must have; None of another type."""
    fields = getattr(kind, "model_fields", None)
    if fields is None:
        return None
    needed = [name for name, field in fields.items() if field.is_required()] or list(fields)[:1]
    return [fields[name].alias or name for name in needed]


def encoded(data: bytes, with_header: bool) -> str:
    text = base64.b64encode(data).decode()
    return f"data:image/jpeg;base64,{text}" if with_header else text


def place_of(function: Any) -> str:
    """ "path:line" of a function, beneath its decorators."""
    try:
        plain = inspect.unwrap(function)
        return f"{plain.__code__.co_filename}:{plain.__code__.co_firstlineno}"
    except (AttributeError, ValueError):
        return ""


def _place(stage: Stage, where: str) -> str:
    path, _, line = where.rpartition(":")
    return f"{os.path.relpath(path, stage.root)}:{line}" if path and is_users(path, stage.root) else ""


def _tables(stage: Stage) -> Iterator[list[str]]:
    """Lists of texts among the application's own variables, each as it is: names that it may give its classes."""
    seen: list[list[str]] = []
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not path or not is_users(str(path), stage.root):
            continue
        for value in list(vars(module).values()):
            for table in tables_of(value):
                if table not in seen and len(seen) < _MOST_TABLES:
                    seen.append(table)
                    yield table


def tables_of(value: Any) -> Iterator[list[str]]:
    """The texts of a list, or of a mapping by index; of one of lists of texts, those at each place in them."""
    if isinstance(value, dict):
        try:
            by_index = {int(key): item for key, item in value.items()}
        except (TypeError, ValueError):
            try:
                by_index = {int(item): key for key, item in value.items() if not isinstance(item, bool)}
            except (TypeError, ValueError):
                return
        if sorted(by_index) != list(range(len(value))):
            return
        value = [by_index[index] for index in range(len(by_index))]
    if not isinstance(value, list | tuple) or len(value) < _SEVERAL:
        return
    if all(isinstance(item, str) for item in value):
        yield list(value)
    elif all(isinstance(item, list | tuple) and len(item) == len(value[0]) for item in value):
        for place in range(len(value[0])):
            if all(isinstance(item[place], str) for item in value):
                yield [item[place] for item in value]
