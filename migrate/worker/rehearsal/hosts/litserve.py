"""LitServe: an API of the user's is set up on the CPU and takes one request through decode, predict and encode."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..requests import Form, forms, is_image_key, keys_of
from ..stage import Stage
from . import answered, at_its_class, method, own_values, settled, source_of, takes

LIBRARY = "litserve"


def stand_in(stage: Stage) -> None:
    def run(original: Any, self: Any, *_: Any, **__: Any) -> None:
        served = self.lit_api if isinstance(self.lit_api, list | tuple) else [self.lit_api]
        for api in served:
            call(stage, api)

    stage.when_imported("litserve", lambda library: stage.wrap(library.LitServer, "run", run))


def hosted(stage: Stage) -> list[Any]:
    """APIs that the script makes or defines, where it starts no server itself."""
    library = sys.modules.get("litserve")
    if library is None:
        return []
    kind = library.LitAPI
    main = list(vars(sys.modules["__main__"]).values())
    made = [value for value in main if isinstance(value, kind)]
    servers = [value for value in main if isinstance(value, library.LitServer)]
    of_servers = [
        api for server in servers for api in (server.lit_api if isinstance(server.lit_api, list) else [server.lit_api])
    ]
    defined = [value for value in own_values(stage) if isinstance(value, type) and issubclass(value, kind)]
    leaves = [value for value in defined if not any(value in other.__mro__[1:] for other in defined)]
    return made or of_servers or leaves


def call(stage: Stage, api: Any) -> None:
    stage.served = True
    api = api() if isinstance(api, type) else api
    kind = type(api)
    api.device = "cpu"
    at_its_class(stage, kind, api, api.setup, "cpu")
    source = source_of(stage, kind)
    keys = keys_of(method(stage, kind, "decode_request"))

    def asked(form: Form, wrap: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: at_its_class(stage, kind, api, _answer, api, wrap(form.make()))

    def tried() -> Iterator[tuple[str, Callable[[], Any]]]:
        for form in forms(stage, source):
            for name, wrap in _wraps(api, keys):
                yield f"{form.name} {name}".strip(), asked(form, wrap)

    answered(stage, f"{kind.__name__} of LitServe", tried())


def _wraps(api: Any, keys: list[str]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """How a request holds an image: as an object of the annotated class, under the keys that are read, or as it is."""
    annotated = [item.annotation for item in inspect.signature(api.decode_request).parameters.values()]
    fields = getattr(annotated[0] if annotated else None, "model_fields", None)
    if fields:
        needed = [name for name, field in fields.items() if field.is_required()] or list(fields)[:1]
        yield f"as {', '.join(needed)}", lambda value: annotated[0](**dict.fromkeys(needed, value))
    named = [key for key in keys if is_image_key(key)] or keys
    for key in named:
        yield f"as {key}", lambda value, key=key: {key: value}  # type: ignore[misc]
    if len(named) > 1:
        yield f"as {', '.join(named)}", lambda value: dict.fromkeys(named, value)
    yield "", lambda value: value


def _answer(api: Any, request: Any) -> Any:
    """What the server does with one request; with batches, with a batch of one."""
    context: dict[str, Any] = {}

    def ask(function: Callable[..., Any], value: Any) -> Any:
        made = function(value, context=context) if takes(function, "context") else function(value)
        return settled(made)

    x = ask(api.decode_request, request)
    if (getattr(api, "max_batch_size", 1) or 1) > 1:
        outputs = ask(api.unbatch, ask(api.predict, ask(api.batch, [x])))
        return ask(api.encode_response, next(iter(outputs)))
    return ask(api.encode_response, ask(api.predict, x))
