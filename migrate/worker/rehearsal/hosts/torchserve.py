"""TorchServe: a handler is initialized with the context of its archive and handles one request.

The archive is what a manifest or a documented `torch-model-archiver` says; its folder is the handler's own, in which the
archive's other files are linked.
"""

from __future__ import annotations

import ast
import importlib
import os
import posixpath
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ....survey.model_archives import MANIFEST, ModelArchive, model_archives
from ..making import WEIGHTS, Maker
from ..requests import Form, forms, is_image_key, keys_of
from ..stage import Stage
from . import answered, at_its_class, definition, method, own_values, source_of

LIBRARY = "ts"
_OWN = {"image_classifier": "ImageClassifier", "vision_handler": "VisionHandler", "base_handler": "BaseHandler"}
"""Handlers of TorchServe's own that take images, by their names: the classes that stand for them."""


def hosted(stage: Stage) -> list[Any]:
    """A handler file's function, else its class that handles requests; or the script as the model file of a handler of
    TorchServe's own."""
    own, archive = own_values(stage), _archive(stage)
    wanted = (archive.function if archive is not None else None) or "handle"
    functions = [value for value in own if isinstance(value, types.FunctionType) and value.__name__ == wanted]
    if functions and functions[0].__code__.co_argcount == 2:
        return functions
    base = getattr(sys.modules.get("ts"), "BaseHandler", None) or _base()
    classes = [value for value in own if isinstance(value, type) and _handles(value, base)]
    if classes:
        leaves = [value for value in classes if not any(value in other.__mro__[1:] for other in classes)]
        return leaves[-1:]
    if archive is not None and archive.handler in _OWN and archive.model_file == stage.request.script:
        library = importlib.import_module(f"ts.torch_handler.{archive.handler}")
        return [type(_OWN[archive.handler], (getattr(library, _OWN[archive.handler]),), {"__module__": "__main__"})]
    return []


def _base() -> type | None:
    module = sys.modules.get("ts.torch_handler.base_handler")
    return getattr(module, "BaseHandler", None)


def _handles(kind: type, base: type | None) -> bool:
    if base is not None and issubclass(kind, base):
        return True
    stages = [callable(getattr(kind, name, None)) for name in ("initialize", "handle")]
    return all(stages) and not hasattr(kind, "execute")


def call(stage: Stage, thing: Any) -> None:
    stage.served = True
    context = _context(stage)
    kind: Any = thing
    if isinstance(thing, type):
        own = thing()
        at_its_class(stage, kind, own, own.initialize, context)
        handle = own.handle
        reading = method(stage, kind, "preprocess", "handle")
    else:
        own, handle = None, thing
        at_its_class(stage, kind, None, handle, None, context)  # the first call of a function initializes
        found = definition(stage, kind)
        reading = None if isinstance(found, ast.ClassDef) else found
    source = source_of(stage, kind)
    keys = keys_of(reading, 0 if own is None else 1)

    def asked(form: Form, wrap: Callable[[Any], Any]) -> Callable[[], Any]:
        def ask() -> Any:
            (answer,) = at_its_class(stage, kind, own, handle, [wrap(form.make())], context)
            return answer

        return ask

    def tried() -> Iterator[tuple[str, Callable[[], Any]]]:
        given = forms(stage, source)
        given.sort(key=lambda form: form.name not in ("bytes", "base64", "header"))  # what comes over HTTP
        for form in given:
            for name, wrap in _wraps(keys):
                yield f"{form.name} as {name}", asked(form, wrap)

    answered(stage, f"{getattr(kind, '__name__', 'handle')} of TorchServe", tried())


def _wraps(keys: list[str]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """A request's image as its body, as a field of it that is read, or as JSON."""
    inner = [key for key in keys if is_image_key(key) and key not in ("data", "body")]
    yield "body", lambda value: {"body": value}
    yield "data", lambda value: {"data": value}
    for key in inner:
        yield key, lambda value, key=key: {key: value}  # type: ignore[misc]
    for key in inner:
        yield f"body {key}", lambda value, key=key: {"body": {key: value}}  # type: ignore[misc]
    yield "instances", lambda value: {"body": {"instances": [{"data": value}]}}


def _archive(stage: Stage) -> ModelArchive | None:
    """The archive of which the script is the handler or the model file, the handler's before the other."""
    archives, script = model_archives(Path(stage.root)), stage.request.script
    named = [item for item in archives if item.handler == script] + [item for item in archives if item.model_file == script]
    if not named and (Path(stage.root) / posixpath.dirname(script) / MANIFEST).is_file():
        named = list(archives)  # one of TorchServe's own handlers, written out
    return named[0] if named else None


def _context(stage: Stage) -> Any:
    archive = _archive(stage)
    folder = os.path.dirname(os.path.join(stage.root, stage.request.script))
    here = posixpath.dirname(stage.request.script)
    model: dict[str, Any] = {
        "modelName": archive.name if archive is not None else Path(stage.request.script).stem,
        "handler": posixpath.basename(archive.handler if archive is not None else stage.request.script),
        "modelVersion": "1.0",
    }
    files = {"modelFile": archive.model_file if archive is not None else _model_file(stage, folder)}
    files["serializedFile"] = archive.serialized_file if archive is not None else _stored(stage, here)
    there = {key: value for key, value in files.items() if value is not None}
    model |= {key: posixpath.basename(value) for key, value in there.items()}
    extra = archive.extra_files if archive is not None else ()
    for path in (*there.values(), *extra, *filter(None, [archive.config_file if archive is not None else None])):
        _link(stage, path, folder)
    serialized = os.path.join(folder, model["serializedFile"]) if "serializedFile" in model else None
    if serialized is not None and not os.path.exists(serialized):
        stage.note("data", os.path.relpath(serialized, stage.root))
        Maker(stage).file(serialized if serialized.endswith(WEIGHTS) else f"{serialized}.pth")
    library = importlib.import_module("ts.context")
    made = library.Context(
        model["modelName"], folder, {"runtime": "python", "model": model, "archiverVersion": "0.12.0"}, 1, None, "0.12.0",
        model_yaml_config=_settings(folder, archive),
    )  # fmt: skip
    made.metrics = _silent_metrics()
    made.request_ids = {0: "1"}
    made.request_processor = [_Request()]
    return made


class _Request:
    """What a worker tells of one request."""

    def get_request_property(self, key: str) -> str | None:
        return self.get_request_properties().get(key)

    def get_request_properties(self) -> dict[str, str]:
        return {"Content-Type": "application/octet-stream"}

    def report_status(self, *_: Any, **__: Any) -> None: ...

    def add_response_property(self, *_: Any) -> None: ...

    def get_response_headers(self) -> dict[str, str]:
        return {}


def _silent_metrics() -> Any:
    class Metrics:
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda *_, **__: self

    return Metrics()


def _settings(folder: str, archive: ModelArchive | None) -> dict[str, Any]:
    """What the archive's `model-config.yaml` says."""
    name = posixpath.basename(archive.config_file) if archive is not None and archive.config_file else "model-config.yaml"
    path = Path(folder, name)
    if not path.is_file():
        return {}
    import yaml

    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}


def _link(stage: Stage, path: str, folder: str) -> None:
    """Have a file of the repository in the archive's folder too, under its own name; nothing where there is no such file."""
    source, target = os.path.join(stage.root, path), os.path.join(folder, posixpath.basename(path))
    if os.path.exists(source) and not os.path.lexists(target):
        os.symlink(source, target)
        stage.keep(target)


def _model_file(stage: Stage, folder: str) -> str | None:
    """`model.py` beside a handler that the documents do not tell of."""
    path = os.path.join(folder, "model.py")
    return os.path.relpath(path, stage.root) if os.path.isfile(path) else None


def _stored(stage: Stage, here: str) -> str:
    """The only stored weights beside the handler, else the only ones of the repository; else a name that is usual."""
    found = [
        path.relative_to(stage.root).as_posix() for path in sorted(Path(stage.root).rglob("*")) if path.name.endswith(WEIGHTS)
    ]
    beside = [path for path in found if posixpath.dirname(path) == here]
    for among in (beside, found):
        if len(among) == 1:
            return among[0]
    return posixpath.join(here, "model.pth")
