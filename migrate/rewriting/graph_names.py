"""The calls that share one graph, and what that graph is called."""

import ast
from dataclasses import dataclass

from ..reading.scopes import Function, Module, local_names
from ..survey.loops import CallSite
from .rule import Context


@dataclass(frozen=True)
class Group:
    """The calls of one model in one function (or at module level), which share one graph."""

    sites: tuple[CallSite, ...]

    @property
    def first(self) -> CallSite:
        return self.sites[0]

    @property
    def model(self) -> str:
        return self.first.fact.model

    @property
    def single(self) -> bool:
        """Whether no call stands in a loop over batches."""
        return all(site.loop is None for site in self.sites)

    @property
    def evaluates(self) -> bool:
        return any(site.fact.kind == "evaluate" for site in self.sites)


def binder(module: Module, group: Group) -> Function | None:
    """The function, around a group's calls, in which the model's name is local; None where the name is a global."""
    root = group.model.partition(".")[0]
    function = group.first.function
    while function is not None and root not in local_names(function):
        function = module.function_of(function)
    return function


def graph_name(context: Context, group: Group, word: str = "graph") -> str:
    """A name for the graph that the file does not use yet; two models that could meet do not share it."""
    return _free_name(context, group, context.module.words, word)


def attribute_name(context: Context, group: Group, owner: ast.ClassDef) -> str:
    taken = {node.attr for node in ast.walk(owner) if isinstance(node, ast.Attribute)}
    taken |= {item.name for item in owner.body if isinstance(item, Function)}
    return _free_name(context, group, taken)


def _free_name(context: Context, group: Group, taken: set[str], word: str = "graph") -> str:
    stem = group.model.removeprefix("self.").replace(".", "_")
    plain = [] if any(_meets(context.module, group, site) for site in context.sites) else [word]
    candidates = [*plain, f"{stem}_{word}", f"headrace_{stem}_{word}", *(f"{stem}_{word}{number}" for number in range(2, 100))]
    return next(name for name in candidates if name not in taken)


def _meets(module: Module, group: Group, site: CallSite) -> bool:
    """Whether a call of another model stands where one name for both graphs would confuse them."""
    if site.fact.model == group.model:
        return False
    other, first = Group((site,)), group.first
    if site.function is first.function:
        return True
    if site.fact.model.startswith("self.") and group.model.startswith("self."):
        owners = [module.class_of(function) for function in (site.function, first.function) if function is not None]
        return len(owners) == 2 and owners[0] is owners[1]
    binders = [binder(module, item) for item in (group, other)]
    return None in binders or binders[0] is binders[1]
