"""Calls that a network makes of itself: `out = self(images)` in its methods that train, validate and predict."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from ..reading.nodes import inside
from ..reading.scopes import Function, Module, dotted, parameters
from ..slicing.factories import ModelTable
from .gradients import always_gradless
from .loops import CallSite, call_site, input_of, is_network

_EVALUATES = re.compile(r"^(?!loss_).*?(?:^|_)(eval|valid|val|test|infer|predict|classif|accuracy|score|prob)", re.I)
_TRAINS = re.compile(r"(^|_)(train|fit|learn|optimi)", re.I)
_NETWORKS_OWN = frozenset(["__init__", "__call__", "forward"])


def find_own_calls(module: Module, table: ModelTable) -> list[CallSite]:
    """Every call of `self` on images in a method by which a network of torch's is trained or evaluated.

    What its `forward` calls in turn is part of the network, and left out; so are Lightning's modules, whose Trainer has the
    loops.
    """
    found: list[CallSite] = []
    for owner in (node for node in module.nodes if isinstance(node, ast.ClassDef) and _is_module(module, node, table)):
        methods = {item.name: item for item in owner.body if isinstance(item, ast.FunctionDef)}
        parts = _reached(methods, "forward")
        for name, method in methods.items():
            taken = parameters(method)
            if name in _NETWORKS_OWN or name in parts or "__call__" in methods or not taken:
                continue
            found += (
                site for call in inside(method, ast.Call) if (site := _read(module, method, call, taken[0].arg)) is not None
            )
    return found


def _is_module(module: Module, owner: ast.ClassDef, table: ModelTable) -> bool:
    if owner in table.classes and table.classes[owner].lightning:
        return False
    names = [module.expand(base) or ast.unparse(base) for base in owner.bases]
    if any("Lightning" in name for name in names):
        return False
    return "torch.nn.Module" in names or is_network(module, owner, table)


def _reached(methods: dict[str, ast.FunctionDef], first: str) -> set[str]:
    """The methods of the same object that one calls, and what these call."""
    waiting, found = [first], set[str]()
    while waiting:
        name = waiting.pop()
        if name in methods and name not in found:
            found.add(name)
            waiting += _called(methods[name])
    return found


def _called(method: ast.FunctionDef) -> Iterator[str]:
    for call in inside(method, ast.Call):
        own, _, name = (dotted(call.func) or "").partition(".")
        if own == "self" and name:
            yield name


def _read(module: Module, method: Function, call: ast.Call, own: str) -> CallSite | None:
    given = input_of(call)
    if dotted(call.func) not in (own, f"{own}.forward") or given is None or isinstance(given, ast.Constant):
        return None
    site = call_site(module, call, module.function_of(call), own, given)
    if site.mapped:
        return None
    if site.fact.kind == "train" or (_TRAINS.search(method.name) and not always_gradless(module, call)):
        return replace(site, fact=replace(site.fact, kind="train"))
    return site if _EVALUATES.search(method.name) or always_gradless(module, call) else None
