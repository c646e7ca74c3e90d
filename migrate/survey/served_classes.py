"""What a model server would call: handlers, APIs and services that a file defines and nothing in it runs."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from ..reading.scopes import Definition, Function, Module, dotted, last_name
from .model_archives import ModelArchive


@dataclass(frozen=True, kw_only=True)
class ServedKind:
    """How a class for one server is known: by what it is derived from, what decorates it, its name, or the methods that it has.

    `server` is the file of the rehearsal's host; `methods` are all needed, where neither of the others tells.
    """

    server: str
    library: str
    bases: frozenset[str] = frozenset()
    decorators: frozenset[str] = frozenset()
    name: str = ""
    methods: frozenset[str] = frozenset()


KINDS = (
    ServedKind(
        server="torchserve",
        library="ts",
        bases=frozenset({"BaseHandler", "VisionHandler", "ImageClassifier"}),
        methods=frozenset({"initialize", "handle"}),
    ),
    ServedKind(server="litserve", library="litserve", bases=frozenset({"LitAPI"})),
    ServedKind(server="cog", library="cog", bases=frozenset({"BasePredictor"})),
    ServedKind(server="triton_python", library="triton_python_backend_utils", name="TritonPythonModel"),
    ServedKind(server="bentoml", library="bentoml", decorators=frozenset({"bentoml.service"})),
    ServedKind(server="django", library="django"),  # by what `_is_view` says
)

_OF_VIEWS = ("django.", "rest_framework.")
_CONTEXTS = (["context"], ["ctx"], ["_context"])
"""The second of the two arguments of a function that TorchServe calls."""
_SAGEMAKER = frozenset({"model_fn", "input_fn", "predict_fn", "output_fn"})
_EVENTS = (["event"], ["job"])


def handles_an_event(name: str, parameters: Sequence[str], beside: Container[str]) -> bool:
    """Whether a cloud calls a function with an event: `lambda_handler(event, context)`, RunPod's `handler(job)`, Azure's `run`
    where `init` stands beside it."""
    if name == "run":
        return len(parameters) == 1 and "init" in beside
    first, others = parameters[:1], list(parameters[1:])
    return name.endswith("handler") and first in _EVENTS and others in ([], *_CONTEXTS, ["_"], ["__"])


def served(module: Module, archives: Iterable[ModelArchive] = ()) -> dict[str, list[Definition]]:
    """Server -> the classes and functions of a file that it calls."""
    found: dict[str, list[Definition]] = {}
    for node in module.definitions.values():
        if isinstance(node, ast.ClassDef) and (kind := next((kind for kind in KINDS if _is_of(module, node, kind)), None)):
            found.setdefault(kind.server, []).append(node)
    for node in module.definitions.values():
        decorated = (
            (item.func for item in node.decorator_list if isinstance(item, ast.Call)) if isinstance(node, Function) else ()
        )
        if any(module.imports.get("bentoml") and (dotted(item) or "").endswith(".api") for item in decorated):
            found.setdefault("bentoml", []).append(node)  # of an older service
        if _is_view(module, node):
            found.setdefault("django", []).append(node)
        if isinstance(node, Function) and node.name == "handle" and [item.arg for item in node.args.args][1:] in _CONTEXTS:
            found.setdefault("torchserve", []).append(node)
    functions = {node.name: node for node in module.definitions.values() if isinstance(node, Function)}
    if {"model_fn", "input_fn"} <= functions.keys():
        found["cloud_functions"] = [functions[name] for name in functions if name in _SAGEMAKER]
    for name, node in functions.items():
        if handles_an_event(name, [item.arg for item in node.args.args], functions):
            found.setdefault("cloud_functions", []).append(node)
    for archive in archives:
        if module.path == archive.handler and "torchserve" not in found:
            name = archive.function or "handle"
            found |= {"torchserve": [functions[name]]} if name in functions else {}
        elif module.path == archive.model_file and not archive.own_handler:
            found.setdefault("torchserve", [])
    return found


def _is_view(module: Module, node: Definition) -> bool:
    """Whether Django calls it for a path: a function whose first argument is the request, or a class of Django's views."""
    if isinstance(node, ast.ClassDef):
        bases = [module.expand(base) or "" for base in node.bases]
        return any(base.startswith(_OF_VIEWS) and base.endswith(("View", "ViewSet")) for base in bases)
    imported = any(f"{name}.".startswith(_OF_VIEWS) for name in module.imports.values())
    return imported and isinstance(node, Function) and [item.arg for item in node.args.args[:1]] == ["request"]


def _is_of(module: Module, node: ast.ClassDef, kind: ServedKind) -> bool:
    bases = {name: module.expand(base) or name for base in node.bases if (name := last_name(base))}
    if any(name in kind.bases and (full == name or full.partition(".")[0] == kind.library) for name, full in bases.items()):
        return True
    if kind.decorators & {module.expand(item.func if isinstance(item, ast.Call) else item) for item in node.decorator_list}:
        return True
    if kind.name and node.name == kind.name:
        return True
    methods = {item.name for item in node.body if isinstance(item, Function)}
    return bool(kind.methods) and kind.methods <= methods
