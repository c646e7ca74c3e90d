"""Servers: instead of serving for ever, the routes and functions that take an image are called once with a made one."""

from __future__ import annotations

import contextlib
import functools
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..requests import ADDRESS, FAILING, REFUSED, Asked, Images, jpeg, members_of, speaks_of_images, taken
from ..route_answers import Sent, encoded, fastapi_posts, fastapi_routes, flask_routes, observe
from ..stage import Stage

_PAGES = 4
"""Pages that are asked for where nothing takes an image."""


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    def serve_flask(original: Any, self: Any, *args: Any, **named: Any) -> None:
        _call_flask(stage, self)

    def serve_asgi(original: Any, app: Any, *args: Any, **named: Any) -> None:
        if isinstance(app, str):
            module, _, name = app.partition(":")
            own = sys.modules["__main__"]
            path = Path(getattr(own, "__file__", ""))
            app = getattr(own if path.stem == module else __import__("importlib").import_module(module), name or "app")
        _call_fastapi(stage, app)

    stage.when_imported("flask.app", lambda library: stage.wrap(library.Flask, "run", serve_flask))
    stage.when_imported("uvicorn", lambda library: stage.wrap(library, "run", serve_asgi))
    stage.when_imported(
        "waitress", lambda library: stage.wrap(library, "serve", lambda original, app, **_: _call_flask(stage, app))
    )
    stage.at_end(lambda: _left_over(stage))
    yield


def _call_flask(stage: Stage, app: Any) -> None:
    stage.served = True
    client = app.test_client()
    how = taken(stage)
    if stage.request.probes:
        asked = [*(Sent("file", name) for name in how.files), *(Sent("json", name) for name in how.entries), Sent("body")]
        observe(stage, flask_routes(app, how.with_header), [] if how.forms else asked)
        return
    text = encoded(jpeg(stage), how.with_header)
    rules = [rule for rule in app.url_map.iter_rules() if not rule.arguments]
    posts = [rule for rule in rules if "POST" in rule.methods]
    posts.sort(key=lambda rule: not speaks_of_images(rule.rule, app.view_functions.get(rule.endpoint)))

    def ask(path: str) -> str:
        if how.files or how.forms:
            data = {name: (io.BytesIO(jpeg(stage)), "image.jpg", "image/jpeg") for name in how.files}
            answer = client.post(path, data={**data, **how.filled(how.forms, text)})
        elif how.entries:
            answer = client.post(path, json=how.filled(how.entries, text))
        else:
            answer = client.post(path, data=jpeg(stage))
        return f"{answer.status_code} {answer.get_data(as_text=True)[:2000]}"

    app.config["PROPAGATE_EXCEPTIONS"] = True
    asked_each = Asked(stage)
    for rule in posts:
        stage.note("servers", f"POST {rule.rule} was called with a made image instead of serving")
        asked_each.ask(rule.rule, functools.partial(ask, rule.rule))
    asked_each.end()
    for rule in [] if posts else rules[:_PAGES]:
        stage.note("servers", f"GET {rule.rule} was called instead of serving")
        sys.stdout.write(f"GET {rule.rule}: {client.get(rule.rule).status_code}\n")


def last_lesson(stage: Stage, error: BaseException) -> bool:
    """A route ended with an error for which nothing is known, and another one came to the model: a server goes on."""
    return stage.failed_route is not None and stage.came_by_route and stage.add(FAILING, stage.failed_route)


def _call_fastapi(stage: Stage, app: Any) -> None:
    from fastapi.testclient import TestClient

    stage.served = True
    if stage.request.probes:
        how = taken(stage)
        with TestClient(app) as client:
            observe(stage, fastapi_routes(app, client, how.with_header, how.files, how.entries))
        return
    asked = Asked(stage)
    with TestClient(app) as client:
        routes = [(path, route) for path, route in fastapi_posts(app) if "{" not in path]
        for at, route in sorted(routes, key=lambda item: not speaks_of_images(item[0], item[1].endpoint)):
            requests = list(_requests(stage, route.dependant))

            def ask(path: str = at, requests: list[dict[str, Any]] = requests) -> str:
                for number, request in enumerate(requests):
                    try:
                        answer = client.post(path, **request)
                    except Exception:
                        if number == len(requests) - 1:
                            raise
                        continue  # another form may be the one that it takes
                    if answer.status_code < REFUSED or number == len(requests) - 1:
                        stage.note("servers", f"POST {path} was called with a made image instead of serving")
                        break
                return f"{answer.status_code} {answer.text[:2000]}"

            if requests:
                asked.ask(at, ask)
        asked.end()


def _requests(stage: Stage, takes: Any) -> Iterator[dict[str, Any]]:
    """Requests with an image in the forms that a route of FastAPI declares: files, form fields, JSON, or its own."""
    kinds: dict[str, list[Any]] = {}
    for field in takes.body_params:
        kinds.setdefault(type(field.field_info).__name__, []).append(field)
    how = taken(stage)
    text = encoded(jpeg(stage), with_header=False)
    texts = [encoded(jpeg(stage), with_header=True), text] if how.with_header else [text, ADDRESS]
    if files := kinds.get("File"):
        yield {"files": {field.alias: ("image.jpg", jpeg(stage), "image/jpeg") for field in files}}
    elif forms := kinds.get("Form"):
        yield from ({"data": dict.fromkeys([field.alias for field in forms], value)} for value in texts)
    elif bodies := kinds.get("Body"):
        embedded = len(bodies) > 1 or getattr(bodies[0].field_info, "embed", None) is True
        for value in texts:
            parts = {field.alias: _body(takes.call, field, how, value) for field in bodies}
            yield {"json": parts if embedded else parts[bodies[0].alias]}
    elif getattr(takes, "request_param_name", None) is not None:
        yield {"content": jpeg(stage)}
        yield {"files": {name: ("image.jpg", jpeg(stage), "image/jpeg") for name in how.files or ("file", "image")}}
        yield from ({"json": dict.fromkeys(how.entries or ("image",), value)} for value in texts)


def _body(function: Any, field: Any, how: Images, text: str) -> Any:
    """A text, a table with it for what the function takes out of it, or an object of a pydantic class with that text in each of
    its fields for text."""
    kind = field.field_info.annotation
    fields = getattr(kind, "model_fields", None)
    if fields is None:
        return how.filled(members_of(function, field.name, kind), text) or text
    plain = {name: field for name, field in fields.items() if "str" in str(field.annotation)}
    asked = [name for name, field in plain.items() if field.is_required()] or list(plain)[:1]
    return {fields[name].alias or name: text for name in asked}


def _left_over(stage: Stage) -> None:
    """An application that a server outside would have run: `uvicorn main:app`, `flask run`, gunicorn."""
    if stage.served:
        return
    for value in list(vars(sys.modules["__main__"]).values()):
        kind = f"{type(value).__module__}.{type(value).__name__}"
        if kind == "flask.app.Flask":
            _call_flask(stage, value)
            return
        if kind == "fastapi.applications.FastAPI":
            _call_fastapi(stage, value)
            return
