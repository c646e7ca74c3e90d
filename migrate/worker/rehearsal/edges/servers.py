"""Servers: instead of serving for ever, the routes and functions that take an image are called once with a made one."""

from __future__ import annotations

import ast
import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..making import photo
from ..places import is_users
from ..stage import Stage


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
    stage.when_imported("gradio", lambda library: _gradio(stage, library))
    stage.at_end(lambda: _left_over(stage))
    yield


def _image(name: str = "image.jpg") -> io.BytesIO:
    file = io.BytesIO()
    photo(name, (256, 256)).save(file, "JPEG")
    file.seek(0)
    file.name = name
    return file


def _field_names(stage: Stage) -> list[str]:
    """The names by which the sources take uploaded files: `request.files["file"]`."""
    found: dict[str, None] = {}
    for path in sorted(Path(stage.root).rglob("*.py")):
        if is_users(str(path), stage.root):
            with contextlib.suppress(SyntaxError, ValueError):
                for node in ast.walk(ast.parse(path.read_bytes())):
                    match node:
                        case ast.Subscript(value=held, slice=ast.Constant(value=str(key))):
                            pass
                        case ast.Call(func=held, args=[ast.Constant(value=str(key)), *_]):
                            pass
                        case _:
                            continue
                    if "request.files" in ast.unparse(held):
                        found[key] = None
    return list(found)


def _call_flask(stage: Stage, app: Any) -> None:
    stage.served = True
    client = app.test_client()
    names = _field_names(stage)
    for rule in app.url_map.iter_rules():
        if "POST" not in rule.methods or rule.arguments:
            continue
        stage.note("servers", f"POST {rule.rule} was called with a made image instead of serving")
        app.config["PROPAGATE_EXCEPTIONS"] = True
        data = {name: (_image(), "image.jpg", "image/jpeg") for name in names}
        answer = client.post(rule.rule, data=data) if names else client.post(rule.rule, data=_image().read())
        sys.stdout.write(f"POST {rule.rule}: {answer.status_code} {answer.get_data(as_text=True)[:2000]}\n")


def _call_fastapi(stage: Stage, app: Any) -> None:
    from fastapi.testclient import TestClient

    stage.served = True
    with TestClient(app) as client:
        for route in getattr(app, "routes", ()):
            fields = [field.alias for field in getattr(getattr(route, "dependant", None), "body_params", ())]
            if "POST" not in (getattr(route, "methods", None) or ()) or not fields:
                continue
            stage.note("servers", f"POST {route.path} was called with a made image instead of serving")
            answer = client.post(route.path, files={name: ("image.jpg", _image(), "image/jpeg") for name in fields})
            sys.stdout.write(f"POST {route.path}: {answer.status_code} {answer.text[:2000]}\n")


def _gradio(stage: Stage, library: Any) -> None:
    def launch(original: Any, self: Any, *args: Any, **named: Any) -> None:
        import numpy as np

        stage.served = True
        function = getattr(self, "fn", None)
        if not callable(function):
            return
        kind = getattr((getattr(self, "input_components", None) or [None])[0], "type", "numpy")
        image = photo("image.jpg", (256, 256))
        stage.note("servers", "the function of a Gradio interface was called with a made image instead of serving")
        sys.stdout.write(f"{function(image if kind == 'pil' else np.asarray(image))}\n")

    for name in ("Interface", "Blocks"):
        if hasattr(library, name):
            stage.wrap(getattr(library, name), "launch", launch)


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
