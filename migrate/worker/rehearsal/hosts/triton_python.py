"""Triton's Python backend: a model is initialized with its configuration and executes one request.

The configuration is the `config.pbtxt` beside its version's folder; where there is none, the inputs are those that its source
asks for by name.
"""

from __future__ import annotations

import ast
import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .....errors import ArtifactError
from .....runtime.artifact.model_config import read_config
from ..making import photo
from ..requests import SIZE, Form, forms
from ..stage import Stage
from . import answered, at_its_class, definition, own_values, source_of

LIBRARY = "triton_python_backend_utils"
_SIDE = 224
"""Of an image where the configuration leaves its sides open."""


def hosted(stage: Stage) -> list[Any]:
    named = [value for value in own_values(stage) if isinstance(value, type) and value.__name__ == "TritonPythonModel"]
    return [value for value in named if callable(getattr(value, "execute", None))]


def call(stage: Stage, kind: Any) -> None:
    stage.served = True
    library: Any = importlib.import_module(LIBRARY)
    script = Path(stage.root, stage.request.script)
    folder = script.parent.parent if script.parent.name.isdigit() else script.parent
    config = _configuration(folder)
    if "input" not in config:
        config["input"] = [{"name": name, "data_type": "", "dims": []} for name in _asked(stage, kind)]
    made = kind()
    if callable(getattr(made, "initialize", None)):
        arguments = {
            "model_config": json.dumps(config),
            "model_instance_kind": "CPU",
            "model_instance_device_id": "0",
            "model_instance_name": f"{folder.name}_0",
            "model_repository": str(folder),
            "model_version": script.parent.name if script.parent.name.isdigit() else "1",
            "model_name": folder.name,
        }
        at_its_class(stage, kind, made, made.initialize, arguments)
    outputs = [item["name"] for item in config.get("output", ())]

    def asked(form: Form, kinds: str, batch: bool) -> Callable[[], Any]:
        def ask() -> Any:
            inputs = [library.Tensor(item["name"], _value(item, form, kinds, batch)) for item in config["input"]]
            request = library.InferenceRequest(inputs, outputs, folder.name)
            responses = at_its_class(stage, kind, made, made.execute, [request])
            responses = responses or getattr(getattr(request, "sender", None), "responses", [])
            if responses[0].has_error():
                raise RuntimeError(f"the model answered with an error: {responses[0].error()}")
            return {tensor.name(): tensor.as_numpy().tolist() for tensor in responses[0].output_tensors()}

        return ask

    def tried() -> Iterator[tuple[str, Callable[[], Any]]]:
        source = source_of(stage, kind)
        for form in forms(stage, source):
            if form.name in ("base64", "header", "bytes", "address", "path"):
                for batch in (int(config.get("max_batch_size", 0)) > 0, int(config.get("max_batch_size", 0)) == 0):
                    yield f"{form.name}{' in a batch' if batch else ''}", asked(form, "", batch)
        for kinds in ("uint8", "float32"):
            for batch in (True, False):
                yield f"pixels as {kinds}{' in a batch' if batch else ''}", asked(Form(kinds, list), kinds, batch)

    answered(stage, f"{kind.__name__} of Triton", _fitting(config, tried()))


def _fitting(config: dict[str, Any], tried: Iterator[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Of the forms those that the first input's type takes; pixels before encoded images where it is a number's."""
    types = {item["data_type"] for item in config["input"]} - {""}
    every = list(tried)
    if not types:
        return every
    encoded = bool(types & {"TYPE_STRING"})
    numbers = [item for item in every if item[0].startswith("pixels")]
    own = [item for item in every if item not in numbers]
    flat = [item for item in own if item[0].startswith("bytes")] if "TYPE_UINT8" in types else []
    return own if encoded else [*flat, *numbers]


def _configuration(folder: Path) -> dict[str, Any]:
    try:
        message: dict[str, Any] = json.loads(json.dumps(read_config(folder).message))
    except (ArtifactError, OSError):
        return {}
    return message


def _asked(stage: Stage, kind: Any) -> list[str]:
    """The inputs that the source takes by name."""
    found: dict[str, None] = {}
    for node in ast.walk(definition(stage, kind) or ast.Module([], [])):
        match node:
            case ast.Call(args=[_, ast.Constant(value=str(name)), *_]) if "get_input_tensor_by_name" in ast.unparse(node.func):
                found[name] = None
    return list(found) or ["INPUT0"]


def _value(item: dict[str, Any], form: Form, kinds: str, batch: bool) -> Any:
    """What one input holds: encoded images as text or bytes, or pixels in the configured order and type."""
    if not kinds:
        value = form.make()
        if item["data_type"] == "TYPE_UINT8":
            array = np.frombuffer(bytes(value) if not isinstance(value, str) else value.encode(), np.uint8)
        else:
            array = np.array([bytes(value) if isinstance(value, bytearray) else value.encode()], dtype=np.object_)
        return array[None] if batch else array
    dims = [int(side) for side in item["dims"]]
    dims = dims[-3:] if len(dims) >= 3 else [3, _SIDE, _SIDE] if kinds == "float32" else [*SIZE, 3]
    first = dims[0] in (1, 3) and dims[-1] not in (1, 3)
    height, width = [side if side > 0 else _SIDE for side in (dims[1:] if first else dims[:2])]
    channels = 1 if 1 in (dims[0] if first else dims[-1],) else 3
    pixels = np.asarray(photo("image.jpg", (height, width), "L" if channels == 1 else "RGB")).reshape(height, width, channels)
    pixels = pixels.transpose(2, 0, 1) if first else pixels
    told = item["data_type"].removeprefix("TYPE_") or ("UINT8" if kinds == "uint8" else "FP32")
    array = (
        (pixels / 255).astype({"FP32": np.float32, "FP16": np.float16, "FP64": np.float64}[told])
        if told.startswith("FP")
        else pixels
    )
    return np.ascontiguousarray(array[None] if batch else array)
