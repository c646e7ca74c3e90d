"""BentoML: a service is made, and each of its methods or functions that takes an image is called with one."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..requests import Form, forms, is_image_key
from ..stage import Stage
from . import answered, at_its_class, own_values, settled, source_of

LIBRARY = "bentoml"
_ORDER = {
    "Image": "image",
    "ndarray": "array",
    "Tensor": "array",
    "Path": "path",
    "bytes": "bytes",
    "str": "base64",
    "list": "pixels",
}
"""What an annotation speaks of, and the form of an image that it asks for."""


def hosted(stage: Stage) -> list[Any]:
    """The services of the script: its classes, else the older objects."""
    if sys.modules.get(LIBRARY) is None:
        return []
    main = list(vars(sys.modules["__main__"]).values())
    classes = [value for value in own_values(stage) if "__bentoml_service__" in getattr(value, "__dict__", {})]
    real = [value for value in main if isinstance(getattr(value, "inner", None), type) and hasattr(value, "apis")]
    older = [value for value in main if type(value).__name__ == "Service" and value not in real]
    return list(dict.fromkeys([*classes, *real])) or older


def call(stage: Stage, service: Any) -> None:
    stage.served = True
    if isinstance(service, type) or isinstance(getattr(service, "inner", None), type):
        kind = getattr(service, "inner", service)
        made = at_its_class(stage, kind, None, kind)
        methods = [getattr(value, "func", value) for value in _of(kind) if _is_api(value)]
        bound = [types.MethodType(method, made) for method in methods]
        source = source_of(stage, kind)
    else:
        kind, made = None, None
        bound = [getattr(value, "func", value) for value in service.apis.values()]
        source = "\n".join(inspect.getsource(function) for function in bound if _readable(function))
    taking = [function for function in bound if _image_of(function) is not None]
    for function in taking or bound:
        own = kind or getattr(function, "__func__", function)
        answered(stage, f"{function.__name__} of BentoML", _tried(stage, own, made, function, source))


def _of(kind: type) -> list[Any]:
    found: dict[str, Any] = {}
    for item in reversed(kind.__mro__):
        found |= vars(item)
    return list(found.values())


def _is_api(value: Any) -> bool:
    return hasattr(value, "__bentoml_api__") or type(value).__name__ in ("APIMethod", "_APIMethod")


def _readable(function: Any) -> bool:
    return Path(function.__code__.co_filename).is_file()


def _image_of(function: Any) -> inspect.Parameter | None:
    """The parameter that takes the image: by its annotation, else by its name; of one of the older kind the first."""
    every = [item for item in inspect.signature(function).parameters.values() if item.name not in ("ctx", "context")]
    told = [
        item for item in every if any(word in _annotation(item) for word in ("Image", "ndarray", "Tensor", "Path", "bytes"))
    ]
    named = [item for item in every if is_image_key(item.name)]
    older = every if getattr(function, "__bentoml_input__", "") in ("Image", "NumpyNdarray", "File") else []
    return next(iter([*told, *named, *older]), None)


def _annotation(parameter: inspect.Parameter) -> str:
    if parameter.annotation is parameter.empty:
        return ""
    return parameter.annotation if isinstance(parameter.annotation, str) else inspect.formatannotation(parameter.annotation)


def _tried(stage: Stage, own: Any, made: Any, function: Any, source: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    parameter = _image_of(function) or next(iter(inspect.signature(function).parameters.values()), None)
    if parameter is None:
        return
    told = _annotation(parameter) or {"Image": "Image", "NumpyNdarray": "ndarray"}.get(
        getattr(function, "__bentoml_input__", ""), ""
    )
    first = [form for word, form in _ORDER.items() if word in told]
    given = sorted(forms(stage, source), key=lambda form: form.name not in first)
    several = "list" in told.lower().partition("[")[0] or "List[" in told or "Sequence[" in told

    def asked(form: Form, listed: bool) -> Callable[[], Any]:
        def ask() -> Any:
            value: Any = form.make()
            value = Path(value) if form.name == "path" and "Path" in told else value
            value = bytes(value) if form.name == "bytes" else value
            answer = at_its_class(stage, own, made, function, **{parameter.name: [value] if listed else value})
            return settled(answer)

        return ask

    for form in given:
        for listed in (several, not several):
            yield f"{form.name}{' in a list' if listed else ''}", asked(form, listed)
