"""Slicing across functions: from a point inside a function, out through its callers, to a program that can run alone.

The functions on the way are written out reduced, returning what was asked for, so that names keep the scopes they had:

    def main(args):                      from    def main(args):
        model = build(args.arch)                     loader = DataLoader(...)
        return model                                 model = build(args.arch)
                                                     evaluate(model, loader)
    args = parser.parse_args()
    model = main(args)

Code of another file stands in a function of its own, which is that file's namespace.
"""

import ast
import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from ..reading.calls import Calls, SliceError, bind, reduce_function, spread, substitute
from ..reading.nodes import defaults_of, inside, is_future_import, values_of
from ..reading.scopes import Definition, Function, Module, NameUse, Repository, last_name, parameters, reads
from .checkpoint_loading import reaches_loading, without_loading
from .classes import ClassReduction, without_framework
from .hydra_config import composed
from .liveness import LiveNames, Options
from .node_rewrites import NarrowedCalls, Node, RenamedCalls, RenamedClasses
from .slicer import Slicer

SLICED = "sliced_"
"""What is taken out of another file is called so in a slice, since the script may have that file's names too."""


@dataclass(frozen=True)
class Point:
    """A place in the code, and an expression to be computed there. `statement` None means the end of the module."""

    module: Module
    function: Function | None
    statement: ast.stmt | None
    expression: ast.expr
    after: bool = False
    """Whether the expression is computed after the statement instead of before it."""


@dataclass
class Program:
    """A module that computes something: its statements, and the expression that is the result after they ran."""

    body: list[ast.stmt]
    expression: ast.expr
    dropped: list[ast.stmt]
    entry: Module
    callers: list[tuple[Module, ast.Call]] = field(default_factory=list)
    """The calls that were followed, innermost first."""


@dataclass
class _Pending:
    live: set[NameUse] = field(default_factory=set)
    replaced: dict[str, Definition | None] = field(default_factory=dict)


class ProgramSlicer:
    """Builds programs for points; one per repository and entry file."""

    def __init__(self, repository: Repository, calls: Calls, entry: Module, options: Options) -> None:
        self.repository = repository
        self.calls = calls
        self.entry = entry
        self.options = options
        self.pending: dict[str, _Pending] = {}
        self.reductions: dict[str, ClassReduction] = {}
        self.wrappers: list[ast.stmt] = []
        self.reached: set[str] = set()
        """Names under which the program's top level has what wrapped files gave out."""
        self.stand_ins: dict[str, str] = {}
        """Classes of other files that were reduced, by name: what the program calls their reduced forms."""
        self.brought: dict[Definition, str] = {}
        """What other files define that would load weights, and under which name the program has it without."""

    def build(self, point: Point, stack: Sequence[tuple[Module, ast.Call]] = ()) -> Program:
        """The program for a point. `stack` gives the calls to go out through, innermost first; without it they are searched."""
        waiting = list(stack)
        followed: list[tuple[Module, ast.Call]] = []
        visited: set[ast.AST] = set()
        while point.function is not None:
            if point.function in visited or len(visited) > 30:
                raise SliceError(f"{point.module.path}:{point.function.lineno}: {point.function.name} calls itself")
            visited.add(point.function)
            call = waiting.pop(0) if waiting else None
            point, used = self._leave(point, call)
            if used is not None:
                followed.append(used)
        body, expression = self._module(point, wrapped=False)
        body, expression = self._stand_in(point.module, body), self._stand_in(point.module, [expression])[0]
        if not self.options.checkpoints:
            body, expression = self._without_loading(point.module, body), self._without_loading(point.module, [expression])[0]
        future = [item for item in body if is_future_import(item)]
        body = [*future, *self.wrappers, *(item for item in body if item not in future)]
        return Program(body, expression, self.options.dropped, point.module, followed)

    def reduce(self, reduction: ClassReduction, where: Module) -> None:
        """Let a class's reduced form stand for it in the program; one of another file is wrapped like all code from there."""
        owner, module = reduction.owner, reduction.module
        self.reductions[owner.name] = reduction
        self._pending(module).replaced[owner.name] = reduction.build()
        if where is not module:
            made = self._wrap(module, ast.Name(owner.name, ast.Load()), {(owner.name, None)})
            assert isinstance(made, ast.Name)
            self.stand_ins[owner.name] = made.id

    def _stand_in(self, entry: Module, nodes: list[Node]) -> list[Node]:
        """The nodes with reduced classes of other files in place of the imported ones."""
        names = {
            name: self.stand_ins[found[1].name]
            for name in [*entry.imports, *self.stand_ins]
            if (found := entry.find(name)) is not None
            and found[1].name in self.stand_ins
            and found[0] is self.reductions[found[1].name].module
        }
        return (
            [made for node in nodes if (made := RenamedClasses(names).visit(copy.deepcopy(node))) is not None]
            if names
            else nodes
        )

    def _without_loading(self, module: Module, nodes: list[Node]) -> list[Node]:
        """The nodes calling, of what other files define, the forms that load no weights."""
        return [RenamedCalls(dict(self._loading_calls(module, node))).copied(node) for node in nodes]

    def _loading_calls(self, module: Module, node: ast.AST) -> Iterator[tuple[ast.Call, str]]:
        for call in list(inside(node, ast.Call)):
            found = module.find_callee(call.func)
            if found is None or found[0] is module or found[1].name in self.reductions or not reaches_loading(*found):
                continue
            if found[1] not in self.brought:
                self.brought[found[1]] = f"{SLICED}{found[1].name}"
                self._wrap(found[0], ast.Name(found[1].name, ast.Load()), {(found[1].name, None)})
            yield call, self.brought[found[1]]

    # -- one function

    def _leave(self, point: Point, call: tuple[Module, ast.Call] | None) -> tuple[Point, tuple[Module, ast.Call] | None]:
        function = point.function
        assert function is not None
        module = point.module
        slicer = Slicer(module, function.body, self.options, top_level=False, rewrite=NarrowedCalls(self.reductions))
        live = LiveNames()
        slicer.mark_live(live, slicer.reads(point.expression))
        if point.statement is None:
            kept = slicer.block(function.body, live)
        else:
            kept = slicer.path(function.body, _trail(module, function, point.statement), live, after=point.after)
        owner = module.class_of(function)
        names = [argument.arg for argument in parameters(function)]
        used = [name for name in names if live.has(name)]
        method = owner is not None and bool(names) and not _is_static(function)
        if method and owner is not None:
            return self._leave_method(point, owner, names[0], used, kept, live, call)
        outer = module.function_of(function)
        found = call or self._caller(module, function, outer)
        if found is None:
            return self._uncalled(point, function, used, kept, live), None
        where, site = found
        arguments = bind(function, spread(site) if self._hands_over(where, site, function) else site, skip=0)
        if not arguments and names:
            arguments = composed(function, names[0])
        if not kept:
            expression = substitute(point.expression, {name: arguments[name] for name in used if name in arguments})
            missing = [name for name in used if name not in arguments]
            if not missing:
                free = {use for use in live.items if use[0] not in names}
                return self._step(point, where, site, expression, free, outer), found
        expression = self._reduced(module, function, used, kept, point.expression, arguments)
        free = {use for use in live.items if use[0] not in names}
        return self._step(point, where, site, expression, free | {(function.name, None)}, outer), found

    def _step(
        self, point: Point, where: Module, site: ast.Call, expression: ast.expr, free: set[NameUse], outer: Function | None
    ) -> Point:
        """The same question, asked where the call stands."""
        if where is not point.module:
            own = ({name for name, _ in reads(expression)} & {name for name, _ in free}) - self.reached
            if own:  # it still speaks of the inner file's names: that file becomes a function
                expression = self._wrap(point.module, expression, free)
        elif outer is None:
            self._pending(where).live |= free
        return Point(where, where.function_of(site), where.statement_of(site), expression)

    def _uncalled(self, point: Point, function: Function, used: list[str], kept: list[ast.stmt], live: LiveNames) -> Point:
        """Nobody calls it in the repository: a web handler, or a function given to a framework that parses arguments."""
        names = {argument.arg for argument in parameters(function)}
        free = {use for use in live.items if use[0] not in names}
        if point.module.function_of(function) is not None:
            raise SliceError(f"{point.module.path}:{function.lineno}: nothing calls {function.name}")
        expression = point.expression
        if used or kept:
            expression = self._reduced(point.module, function, used, kept, point.expression, {})
            free |= {(function.name, None)}
        self._pending(point.module).live |= free
        return Point(point.module, None, None, expression)

    def _reduced(
        self,
        module: Module,
        function: Function,
        used: list[str],
        kept: list[ast.stmt],
        result: ast.expr,
        arguments: dict[str, ast.expr],
    ) -> ast.expr:
        """Write a function's reduced form down, and return the call of it."""
        reduced, call = reduce_function(module, function, used, kept, result, arguments)
        self._pending(module).replaced[function.name] = reduced
        return call

    # -- methods

    def _leave_method(
        self,
        point: Point,
        owner: ast.ClassDef,
        self_name: str,
        used: list[str],
        kept: list[ast.stmt],
        live: LiveNames,
        call: tuple[Module, ast.Call] | None,
    ) -> tuple[Point, tuple[Module, ast.Call] | None]:
        module, function = point.module, point.function
        assert function is not None
        if not kept and not live.has(self_name) and (function.name == "__init__" or not set(used) - {self_name}):
            return self._leave_init(point, owner, [name for name in used if name != self_name], live, call)
        reduction = self.reductions.get(owner.name)
        if reduction is None:
            reduction = self.reductions[owner.name] = ClassReduction(module, without_framework(owner), self.options)
        attributes = live.attributes(self_name)
        if attributes is None:
            reduction.whole = True
        reduction.wanted |= (attributes or set()) - set(reduction.originals)
        free = {use for use in live.items if use[0] not in used and use[0] != self_name}
        self._pending(module).live |= free
        if function.name == "__init__":
            raise SliceError(f"{module.path}:{function.lineno}: the model is used while {owner.name} is being made")
        found = call or self._method_caller(owner, function)
        made_by = self._constructor(owner) if found is None else None
        found = found or made_by
        if found is None:
            raise SliceError(f"{module.path}:{function.lineno}: nothing calls {owner.name}.{function.name}")
        where, site = found
        others = [name for name in used if name != self_name]
        arguments = bind(function, site, skip=1) if made_by is None else {}
        receiver = site.func.value if isinstance(site.func, ast.Attribute) and made_by is None else site.func
        if made_by is not None:  # a framework calls the method of what is made there
            receiver = site
        if kept or any(name not in arguments for name in others):
            reduced, made = reduce_function(
                module, function, [self_name, *others], kept, point.expression, {self_name: receiver, **arguments}
            )
            reduction.methods[function.name] = reduced
            assert isinstance(made, ast.Call)
            made.func = ast.Attribute(receiver, function.name, ast.Load())
            made.args = made.args[1:]
            expression: ast.expr = ast.fix_missing_locations(made)
        else:
            expression = substitute(point.expression, {self_name: receiver, **arguments})
        caller = where.function_of(site)
        inside = caller is not None and where.class_of(caller) is owner
        if not inside:
            if made_by is None:
                reduction.follow(where, caller, receiver)
            self.reduce(reduction, where)
            if made_by is not None:
                expression = NarrowedCalls(self.reductions).narrowed(expression)
        return Point(where, caller, where.statement_of(site), expression), found

    def _leave_init(
        self, point: Point, owner: ast.ClassDef, used: list[str], live: LiveNames, call: tuple[Module, ast.Call] | None
    ) -> tuple[Point, tuple[Module, ast.Call] | None]:
        """Something made on the way to an object, which needs nothing of the object itself."""
        assert point.function is not None
        free = {use for use in live.items if use[0] not in used}
        if not used:
            self._pending(point.module).live |= free
            return Point(point.module, None, None, point.expression), None
        found = call or self._constructor(owner)
        arguments = bind(point.function, found[1], skip=1) if found is not None else {}
        arguments = {**defaults_of(point.function), **arguments}
        if found is None or any(name not in arguments for name in used):
            raise SliceError(f"{point.module.path}:{point.function.lineno}: nothing says what {owner.name} is made with")
        expression = substitute(point.expression, {name: arguments[name] for name in used})
        return self._step(point, *found, expression, free, None), found

    def _method_caller(self, owner: ast.ClassDef, function: Function) -> tuple[Module, ast.Call] | None:
        outside: list[tuple[Module, ast.Call]] = []
        inside: list[tuple[Module, ast.Call]] = []
        for where, site in self.calls.by_name.get(function.name, []):
            if not isinstance(site.func, ast.Attribute) or where.function_of(site) is function:
                continue
            receiver = site.func.value
            caller = where.function_of(site)
            if isinstance(receiver, ast.Name) and receiver.id == "self":
                if caller is not None and where.class_of(caller) is owner:
                    inside.append((where, site))
            elif self._is_instance(where, caller, receiver, owner):
                outside.append((where, site))
        return min([*outside, *inside], key=lambda found: found[0] is not self.entry, default=None)

    def _constructor(self, owner: ast.ClassDef) -> tuple[Module, ast.Call] | None:
        """Where an object of a class is made whose methods a framework calls."""
        sites = [
            (where, site)
            for where, site in self.calls.by_name.get(owner.name, [])
            if (found := where.find_callee(site.func)) is not None and found[1] is owner
        ]
        return min(sites, key=lambda found: found[0] is not self.entry, default=None)

    def _is_instance(self, where: Module, caller: Function | None, receiver: ast.expr, owner: ast.ClassDef) -> bool:
        if not isinstance(receiver, ast.Call | ast.Name):
            return False
        values: list[ast.expr] = [receiver]
        if isinstance(receiver, ast.Name):
            values = [*values_of(caller, receiver.id), *values_of(where.tree, receiver.id)]
        found = [where.find_callee(value.func) for value in values if isinstance(value, ast.Call)]
        return any(item is not None and item[1] is owner for item in found)

    # -- modules

    def _pending(self, module: Module) -> _Pending:
        return self.pending.setdefault(module.path, _Pending())

    def _module(self, point: Point, *, wrapped: bool) -> tuple[list[ast.stmt], ast.expr]:
        module, pending = point.module, self._pending(point.module)
        slicer = Slicer(
            module,
            module.tree.body,
            self.options,
            top_level=True,
            wrapped=wrapped,
            rewrite=NarrowedCalls(self.reductions),
            replaced={**self._unloaded(module), **pending.replaced},
        )
        live = LiveNames()
        slicer.mark_live(live, reads(point.expression) | pending.live)
        if point.statement is None:
            started = [] if wrapped else [_started(item) for item in module.tree.body if _is_started(item)]
            return slicer.block([*module.tree.body, *started], live), point.expression
        return slicer.path(module.tree.body, _trail(module, None, point.statement), live, after=point.after), point.expression

    def _unloaded(self, module: Module) -> dict[str, Definition]:
        if self.options.checkpoints:
            return {}
        forms = {name: without_loading(module, definition) for name, definition in module.definitions.items()}
        return {name: form for name, form in forms.items() if form is not None}

    def _wrap(self, module: Module, expression: ast.expr, free: set[NameUse]) -> ast.expr:
        """Put what an expression needs of another file into a function, and return an expression that reaches it."""
        names = sorted(({name for name, _ in reads(expression)} & {name for name, _ in free}) - self.reached)
        self._pending(module).live |= free
        value: ast.expr = ast.Name(names[0], ast.Load())
        if len(names) > 1:
            value = ast.Tuple([ast.Name(name, ast.Load()) for name in names], ast.Load())
        body, _ = self._module(Point(module, None, None, value), wrapped=True)
        if not self.options.checkpoints:
            body = self._without_loading(module, body)
        name = "_from_" + re.sub(r"\W", "_", module.name)  # folders and files may be called anything
        wrapper = ast.FunctionDef(
            name=name,
            args=ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[]),
            body=[*body, ast.Return(value)],
            decorator_list=[],
        )
        wrapper.path = module.path  # type: ignore[attr-defined]
        outside = {item: f"{SLICED}{item}" for item in names}  # the script may have the file's own names too
        self.reached |= set(outside.values())
        target: ast.expr = ast.Name(outside[names[0]], ast.Store())
        if len(names) > 1:
            target = ast.Tuple([ast.Name(outside[item], ast.Store()) for item in names], ast.Store())
        self.wrappers += [wrapper, ast.Assign([target], ast.Call(ast.Name(name, ast.Load()), [], []))]
        for statement in self.wrappers:
            statement.lineno = 1
            ast.fix_missing_locations(statement)
        return substitute(expression, {item: ast.Name(outside[item], ast.Load()) for item in names})

    def _hands_over(self, where: Module, site: ast.Call, function: Function) -> bool:
        """Whether a call only names a function that something else will call: `mp.spawn(worker, args=(...))`."""
        if last_name(site.func) == function.name:
            return False
        found = where.find_callee(site.func)
        return found is None or found[1] is not function

    def _caller(self, module: Module, function: Function, outer: Function | None) -> tuple[Module, ast.Call] | None:
        """The call to go out through: of the entry file first, direct calls before those that hand the function over."""
        direct = []
        for where, site in self.calls.by_name.get(function.name, []):
            inside = where.function_of(site)
            if inside is function:
                continue
            if outer is not None:
                if where is module and any(node is outer for node in where.ancestors(site)):
                    direct.append((where, site))
                continue
            found = where.find_callee(site.func)
            if found is not None and found[1] is function:
                direct.append((where, site))
        handed = [
            (where, site)
            for where, site in self.calls.passed.get(function.name, [])
            if (found := where.find(function.name)) is not None and found[1] is function
        ]
        candidates = [*direct, *handed] if direct or outer is None else []
        return min(candidates, key=lambda found: found[0] is not self.entry, default=None)


def _trail(module: Module, function: Function | None, statement: ast.stmt) -> list[ast.AST]:
    around = takewhile(lambda node: node is not function and not isinstance(node, ast.Module), module.ancestors(statement))
    return [statement, *around][::-1]


def _is_started(item: ast.stmt) -> bool:
    """Whether a web framework calls a function before the first request: `@app.on_event("startup")`."""
    marks = item.decorator_list if isinstance(item, Function) and not parameters(item) else []
    names = [last_name(mark.func) if isinstance(mark, ast.Call) else last_name(mark) for mark in marks]
    return bool({"on_event", "on_startup", "before_first_request", "before_serving"} & set(names))


def _started(function: ast.stmt) -> ast.stmt:
    assert isinstance(function, Function)
    text = f"{function.name}()" if isinstance(function, ast.FunctionDef) else f"__import__('asyncio').run({function.name}())"
    return ast.fix_missing_locations(ast.copy_location(ast.parse(text).body[0], function))


def _is_static(function: Function) -> bool:
    return any(last_name(item) == "staticmethod" for item in function.decorator_list)
