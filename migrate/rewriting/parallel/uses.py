"""What a script does with the wrapped model, use by use, and the edit of each. An unknown one leaves the script alone."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ...reading.edits import Edit
from ...reading.scopes import Function
from ...survey.loops import CallSite
from ..placement import RejectedError
from ..rule import Context
from .flows import Flow, Place, bindings, callee, flows, is_spawn, place_of

_SAME = frozenset(["train", "eval", "parameters", "zero_grad"])
"""Methods that a global module has as the wrapper had them."""


@dataclass(frozen=True)
class Wrapped:
    """The statement that wraps the model, the place of the wrapper and, where it has a name, that of the model in it."""

    statement: ast.Assign
    call: ast.Call
    outer: Place
    inner: Place | None
    conditional: bool
    """Whether an `if` decides if the model is wrapped, so that a name may stand for it as it was."""
    batches: str
    """"shares" or "whole": what each process has of a batch."""


@dataclass(frozen=True)
class Uses:
    """The edits of all uses, the calls that evaluate, and the one that trains."""

    edits: tuple[Edit, ...]
    evaluations: tuple[CallSite, ...]
    training: CallSite
    names: frozenset[Place]
    """Where the wrapped model stands, or the one in the wrapper."""
    before: tuple[tuple[ast.expr, Place], ...]
    """The uses of the model before it is wrapped, and the places where it stands then."""
    plain: frozenset[Place]
    """Where it stands before that."""


def read_uses(context: Context, wrapped: Wrapped) -> Uses:
    """Raises RejectedError, with the line, where one is not understood."""
    reader = _Reader(context, wrapped)
    edits = list(reader.edits())
    trains = [site for site in reader.calls if site.fact.kind == "train"]
    if not trains:
        raise RejectedError("no training loop that calls it was found in this file")
    if len(trains) > 1:
        raise RejectedError(f"it is trained in two places, lines {trains[0].fact.call_line} and {trains[1].fact.call_line}")
    evaluations = tuple(site for site in reader.calls if site.fact.kind != "train")
    names, plain = frozenset(reader.outer | reader.inner), frozenset(reader.begins)
    return Uses(tuple(edits), evaluations, trains[0], names, tuple(reader.before()), plain)


def state_edits(context: Context, names: set[Place]) -> Iterator[Edit]:
    """State dicts of what stands in these places, optimizers, are saved and loaded as plain tensors."""
    module = context.module
    for call in module.calls:
        if isinstance(call.func, ast.Attribute) and place_of(module, call.func.value) in names:
            yield from _state_edit(context, call, call.func.value, "")


class _Reader:
    def __init__(self, context: Context, wrapped: Wrapped) -> None:
        self.context, self.module, self.wrapped = context, context.module, wrapped
        self.known: list[Flow] = flows(self.module)
        self.calls: list[CallSite] = []
        here = wrapped.statement
        begun = (self.module.function_of(here), here.end_lineno or here.lineno)
        self.begins = {wrapped.outer: begun}
        """Of places that hold a plain model before, the function and the line after which what stands there is wrapped."""
        if wrapped.inner is not None:
            self.begins[wrapped.inner] = begun
        callers = self._callers()
        self.outer = self._reached(wrapped.outer)
        unwrapped = [flow for flow in self.known if flow.unwraps and flow.source in self.outer]
        starts = {flow.target for flow in unwrapped if self._is_after(flow.by, flow.source)}
        starts |= {wrapped.inner} if wrapped.inner is not None else set()
        starts |= callers
        starts -= {wrapped.outer}
        self.inner: set[Place] = set().union(*(self._reached(place) for place in starts)) - self.outer
        self._check_bindings()

    def edits(self) -> Iterator[Edit]:
        nodes = [node for node in self.module.nodes if isinstance(node, ast.Name | ast.Attribute)]
        for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
            if not isinstance(node.ctx, ast.Load):
                continue
            place = place_of(self.module, node)
            if place is None or place not in self.outer | self.inner or not self._is_after(node, place):
                continue
            made = list(self._edit(node, outer=place in self.outer))
            if made and any(isinstance(item, ast.JoinedStr) for item in self.module.ancestors(node)):
                raise RejectedError(f"line {node.lineno} uses the wrapped model within an f-string, which is not edited")
            yield from made

    def before(self) -> Iterator[tuple[ast.expr, Place]]:
        """What is done with the model before it is wrapped, which makes it global in place."""
        for node in self.module.nodes:
            if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            place = place_of(self.module, node)
            within = any(item is self.wrapped.statement for item in self.module.ancestors(node))
            if place in self.begins and not within and not self._is_after(node, place):
                yield node, place

    def _reached(self, start: Place) -> set[Place]:
        """Where what stands in a place comes to stand, by what runs once it is wrapped."""
        found, waiting = {start}, [start]
        while waiting:
            at = waiting.pop()
            for flow in self.known:
                if flow.source == at and flow.target not in found and not flow.unwraps and self._is_after(flow.by, at):
                    found.add(flow.target)
                    waiting.append(flow.target)
        return found

    def _callers(self) -> set[Place]:
        """Where those that hand the model to the code that wraps it keep it: it is made global in place."""
        found: set[Place] = set()
        waiting = [place for place in (self.wrapped.inner, self.wrapped.outer) if place is not None]
        while waiting:
            at = waiting.pop()
            for flow in self.known:
                if flow.target != at or flow.unwraps or flow.source in self.begins or not self._precedes(flow.by, at):
                    continue
                statement = self.module.statement_of(flow.by)
                self.begins[flow.source] = (self.module.function_of(flow.by), statement.end_lineno or statement.lineno)
                found.add(flow.source)
                waiting.append(flow.source)
            for flow in self.known:  # other names for it, given before
                statement = self.module.statement_of(flow.by)
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                named = any(place_of(self.module, target) == flow.target for target in targets)
                if flow.source == at and named and flow.target not in self.begins and self._precedes(flow.by, at):
                    self.begins[flow.target] = self.begins[at]
                    found.add(flow.target)
                    waiting.append(flow.target)
        return found

    def _precedes(self, node: ast.expr | ast.stmt, place: Place) -> bool:
        """Whether something comes to a place before the model in it is wrapped: in the same function above, or by its call."""
        if place not in self.begins:
            return False
        function, line = self.begins[place]
        if self.module.function_of(node) is function:
            return node.lineno < line or (node.end_lineno or node.lineno) <= line
        return place.scope is function

    def _is_after(self, node: ast.expr, place: Place) -> bool:
        """Whether a use is one of the wrapped model: below the statement that wraps it, or in other functions."""
        if any(item is self.wrapped.statement for item in self.module.ancestors(node)):
            return False
        if place not in self.begins:
            return True
        function, line = self.begins[place]
        return self.module.function_of(node) is not function or node.lineno > line

    def _check_bindings(self) -> None:
        """What has one of the names is the wrapped model, wherever it comes from, and nothing else."""
        module, here = self.module, self.wrapped.statement
        for place in self.outer | self.inner:
            given = [flow for flow in self.known if flow.target == place]
            for flow in given:
                if place in self.outer - self.begins.keys() and not self._is_after(flow.by, flow.source):
                    raise RejectedError(
                        f"line {flow.by.lineno} gives {place.name} the model before it is wrapped, and others after"
                    )
                known = self.outer if flow.unwraps != (place in self.outer) else self.inner
                if flow.source not in known and not self._precedes(flow.by, place):
                    raise RejectedError(f"line {flow.by.lineno} gives {place.name} another model than the wrapped one")
            for node in bindings(module, place):
                statement = module.statement_of(node)
                value = statement.value if isinstance(statement, ast.Assign) else None
                is_flow = value is not None and any(flow.by is value for flow in given)
                if statement is here or is_flow or self._precedes(statement, place):
                    continue
                raise RejectedError(f"line {statement.lineno} binds {place.name}, the wrapped model, anew")

    def _edit(self, node: ast.expr, *, outer: bool) -> Iterator[Edit]:
        module, positions = self.module, self.context.positions
        parent = module.parents[node]
        prefix = "module." if outer else ""
        if outer and isinstance(parent, ast.Attribute) and parent.attr == "module" and parent.value is node:
            if not isinstance(parent.ctx, ast.Load):
                raise RejectedError(f"line {node.lineno} binds the model in its wrapper")
            yield Edit(positions.span(node)[1], positions.span(parent)[1], "")
            node, parent, prefix = parent, module.parents[parent], ""
        call = module.parents.get(parent)
        if isinstance(parent, ast.Call) and parent.func is node:
            yield from self._call(parent, node, past=not prefix)
        elif isinstance(parent, ast.Attribute) and isinstance(call, ast.Call) and call.func is parent:
            if parent.attr in ("state_dict", "load_state_dict"):
                if prefix and self.wrapped.conditional:
                    raise RejectedError(
                        f"whether the names in the state dict of line {node.lineno} begin with module. depends on whether the "
                        "model is wrapped"
                    )
                yield from _state_edit(self.context, call, node, prefix)
            elif parent.attr not in _SAME:
                raise RejectedError(f"line {node.lineno} uses .{parent.attr} of the wrapped model")
        elif isinstance(parent, ast.Assign) and parent.value is node:
            pass  # another name for it
        elif not self._hands_over(node, parent):
            raise RejectedError(f"line {node.lineno} hands the wrapped model to something that was not followed")

    def _call(self, call: ast.Call, node: ast.expr, *, past: bool) -> Iterator[Edit]:
        site = next((item for item in self.context.sites if item.call is call), None)
        if site is None or site.captured or site.mapped:
            raise RejectedError(f"what the call of line {call.lineno} is for was not understood")
        self.calls.append(site)
        if site.fact.kind == "train":
            if past:
                raise RejectedError(f"line {call.lineno} trains the model past its wrapper, which exchanges no gradients")
            return  # the step's own edits
        if any(isinstance(item, ast.Starred) for item in call.args):
            raise RejectedError(f"line {call.lineno} calls the model with arguments that are not written out")
        begin, end = self.context.positions.span(node)
        asked = "" if self.wrapped.batches == "shares" else ', batches="whole"'
        yield Edit(begin, begin, "headrace.parallel.local_view(")
        yield Edit(end, end, f"{asked})")

    def _hands_over(self, node: ast.expr, parent: ast.AST) -> bool:
        """Whether a use is an argument of a function of this file, which is read as well."""
        call = parent if isinstance(parent, ast.Call) else self.module.parents.get(parent)
        if isinstance(parent, ast.Tuple) and isinstance(call, ast.keyword):
            call = self.module.parents.get(call)
        if not isinstance(call, ast.Call):
            return False
        reached = callee(self.module, call)
        follows = any(flow.by is node for flow in self.known)
        return follows and (is_spawn(self.module, call) or (reached is not None and isinstance(reached[0], Function)))


def _state_edit(context: Context, call: ast.Call, owner: ast.expr, prefix: str) -> Iterator[Edit]:
    """`model.state_dict()` gives plain tensors under the names that they had, `model.load_state_dict(state)` takes such."""
    positions = context.positions
    begin, end = positions.span(call)
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr == "state_dict":
        if call.args or call.keywords:
            raise RejectedError(f"line {call.lineno} asks for the state dict with arguments")
        yield Edit(begin, begin, "headrace.parallel.whole(")
        yield Edit(end - 1, end, f'prefix="{prefix}"))' if prefix else "))")
    elif call.func.attr == "load_state_dict":
        if not call.args or isinstance(call.args[0], ast.Starred):
            raise RejectedError(f"line {call.lineno} loads a state that is not its first argument")
        first = positions.span(call.args[0])[0]
        yield Edit(begin, begin, "headrace.parallel.load_state(")
        yield Edit(_end_of(context, owner), first, ", ")
        if prefix:
            yield Edit(end - 1, end - 1, f', prefix="{prefix}"')


def _end_of(context: Context, owner: ast.expr) -> int:
    return context.positions.span(owner)[1]
