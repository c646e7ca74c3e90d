"""Program slicing: the statements of one scope on which some names depend.

Going backward from a point, a statement stays when it binds a live name or changes a live object; then what it reads
is live too. Live are names, or single attributes of names, so that `args.epoch = checkpoint["epoch"]` does not keep a
checkpoint alive for the sake of `args.arch`. Nothing here knows about functions calling each other: see `interprocedural`.
"""

import ast
from collections.abc import Callable, Iterable, Sequence

from ..reading.arguments import destination, is_parse_call
from ..reading.nodes import inside
from ..reading.scopes import Definition, Module, NameUse, bound_names, last_name, reads, root_of, use_of
from ..reading.statements import (
    aliases,
    blocks,
    is_main_guard,
    is_plain_attribute,
    local_definitions,
    store_targets,
    with_fields,
)
from .import_slicer import ImportSlicer
from .liveness import LiveNames, Options
from .side_effects import SideEffects, is_checkpoint_call, is_seed, makes_data

_INERT_PLACES = ("torch.backends", "os.environ", "warnings", "matplotlib", "logging", "sys.stdout", "sys.stderr", "plt")


class Slicer:
    """Slices the blocks of one scope (a module's top level or one function's body)."""

    def __init__(
        self,
        module: Module,
        body: Sequence[ast.stmt],
        options: Options,
        *,
        top_level: bool,
        wrapped: bool = False,
        rewrite: Callable[[ast.stmt], ast.stmt] | None = None,
        replaced: dict[str, Definition | None] | None = None,
        returns: bool = False,
    ) -> None:
        self.module = module
        self.options = options
        self.top_level = top_level
        self.wrapped = wrapped
        """Whether the statements will stand inside a function, where star imports and __future__ may not."""
        self.returns = returns
        """Whether the scope's own results are wanted, so that `return` stays with what it needs."""
        self.effects = SideEffects(module)
        self.rewrite = rewrite or (lambda statement: statement)
        self.replaced = replaced or {}
        """Definitions to be written instead of the original ones, or None where another frame has written them already."""
        self.definitions: dict[str, Definition] = dict(module.definitions) if top_level else local_definitions(body)
        self.aliases = aliases(body)
        self.imports = ImportSlicer(module, set().union(*map(bound_names, body)), top_level=top_level, wrapped=wrapped)
        self._expanded: set[str] = set()
        self._seeds = True
        self._plain = {*module.imports, "self"}  # a method of self touches what it touches, see `classes`
        self.stored: set[str] = set()
        """Names that kept statements bind; slicing goes backward, so a `global` is met after them."""

    # -- liveness

    def reads(self, node: ast.AST | Iterable[ast.AST] | None) -> set[NameUse]:
        return reads(node, self._plain)

    def mark_live(self, live: LiveNames, items: set[NameUse]) -> None:
        """Make names live; with a function or class of this scope, what its body reads is live, wherever that is bound."""
        work = list(items)
        while work:
            item = work.pop()
            if item in live.items:
                continue
            live.items.add(item)
            name = item[0]
            definition = self.definitions.get(name)
            if definition is not None and name not in self._expanded:
                self._expanded.add(name)
                replacement = self.replaced.get(name, definition)
                work.extend(use for use in self.reads(replacement or definition) if use[0] != name)

    def _alias_touches(self, live: LiveNames, place: NameUse) -> bool:
        if live.touches(place):
            return True
        family = self.aliases.get(place[0])
        return family is not None and any(live.touches((other, place[1])) for other in family)

    # -- blocks

    def block(self, body: Sequence[ast.stmt], live: LiveNames) -> list[ast.stmt]:
        """The statements of a block that `live` (of what comes after; updated to those before) depend on."""
        kept: list[ast.stmt] = []
        for statement in reversed(body):
            result = self.statement(statement, live)
            if result is not None:
                kept.append(result)
        kept.reverse()
        return kept

    def path(
        self, body: Sequence[ast.stmt], trail: Sequence[ast.AST], live: LiveNames, *, after: bool = False
    ) -> list[ast.stmt]:
        """What runs before the last statement of `trail` (each element inside the one before it), or with `after` that one
        too; with the control flow on the way taken as given: conditions are dropped, loops are entered once."""
        index = next(i for i, statement in enumerate(body) if statement is trail[0])
        inner: list[ast.stmt] = []
        if len(trail) > 1:
            inner = self._enter(body[index], trail[1:], live, after=after)
        elif after:
            inner = self.block([body[index]], live)
        return [*self.block(body[:index], live), *inner]

    def _enter(self, statement: ast.stmt, trail: Sequence[ast.AST], live: LiveNames, *, after: bool) -> list[ast.stmt]:
        body = next((block for block in blocks(statement) if any(item is trail[0] for item in block)), None)
        if body is None:  # an except handler or a match case stands between
            return self._enter(trail[0], trail[1:], live, after=after) if len(trail) > 1 else []  # type: ignore[arg-type]
        looping = isinstance(statement, ast.For | ast.AsyncFor | ast.While)
        self._seeds = self._seeds and not looping
        kept = self.path(body, trail, live, after=after)
        self._seeds = self._seeds or looping
        if isinstance(statement, ast.For | ast.AsyncFor):
            names = bound_names(statement.target)
            if names & live.roots():
                first = ast.Call(
                    ast.Name("next", ast.Load()), [ast.Call(ast.Name("iter", ast.Load()), [statement.iter], [])], []
                )
                bind = ast.copy_location(ast.Assign([statement.target], first), statement)
                for name in names:
                    live.kill(name)
                self.mark_live(live, self.reads(statement.iter))
                return [ast.fix_missing_locations(bind), *kept]
        elif isinstance(statement, ast.With | ast.AsyncWith):
            names = {
                name for item in statement.items if item.optional_vars is not None for name in bound_names(item.optional_vars)
            }
            if names & live.roots():
                self.mark_live(live, self.reads([item.context_expr for item in statement.items]))
                return [with_fields(statement, body=kept or [ast.Pass()])]
        return kept

    # -- statements

    def statement(self, statement: ast.stmt, live: LiveNames) -> ast.stmt | None:
        """The statement reduced to what `live` depend on, or None; `live` is updated to those before it."""
        match statement:
            case ast.Import() | ast.ImportFrom():
                return self.imports.statement(statement, live)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return self._definition(statement, live)
            case ast.If():
                return self._if(statement, live)
            case ast.For() | ast.AsyncFor() | ast.While():
                return self._loop(statement, live)
            case ast.With() | ast.AsyncWith():
                return self._with(statement, live)
            case ast.Try() | ast.TryStar():
                return self._try(statement, live)
            case ast.Match():
                return self._match(statement, live)
            case ast.Global() | ast.Nonlocal():
                names = [name for name in statement.names if name in self.stored]
                return with_fields(statement, names=names) if names else None
            case ast.Return() if self.returns:
                live.items = set()  # nothing runs after it on this way
                self.mark_live(live, self.reads(statement.value))
                return statement
            case ast.Assert() if bound_names(statement) & live.roots():
                pass  # what `:=` binds in it
            case ast.Return() | ast.Raise() | ast.Assert() | ast.Pass() | ast.Break() | ast.Continue():
                return None
        return self._simple(statement, live)

    def _definition(self, statement: Definition, live: LiveNames) -> ast.stmt | None:
        if self.imports.may_be_looked_up(statement, live):
            self.mark_live(live, {(statement.name, None)})
        if not live.has(statement.name):
            return None
        live.kill(statement.name)
        if statement.name in self.replaced:
            replacement = self.replaced[statement.name]
            if replacement is None or self.definitions.get(statement.name) is not statement:
                return None
            self.mark_live(live, self.reads(replacement) - {(statement.name, None)})
            return replacement
        self.mark_live(live, {use for use in self.reads(statement) if use[0] != statement.name})
        return statement

    def _if(self, statement: ast.If, live: LiveNames) -> ast.stmt | None:
        if is_main_guard(statement):  # what it prepares is there for handlers, in the file that is run
            before = [item for item in statement.body if not _serves(item)] if self.top_level and not self.wrapped else []
            body = self.block(before, live)
            return with_fields(statement, test=ast.Constant(True), body=body, orelse=[]) if body else None
        if self.effects.trains(statement.test):
            return None
        other = live.copy()
        body = self.block(statement.body, live)
        orelse = self.block(statement.orelse, other)
        live.add(other.items)
        bound = bound_names(statement.test) & live.roots()
        if not body and not orelse and not bound:
            return None
        for name in bound:
            live.kill(name)
        body = body or self._kept_raise(statement.body, live)
        orelse = orelse or self._kept_raise(statement.orelse, live)
        self.mark_live(live, self.reads(statement.test))
        if not body and not orelse:
            body = [ast.Pass()]
        if not body:
            test = statement.test
            negated = (
                test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else ast.UnaryOp(ast.Not(), test)
            )
            ast.copy_location(negated, test)
            return ast.fix_missing_locations(ast.copy_location(ast.If(negated, orelse, []), statement))
        return with_fields(statement, body=body, orelse=orelse)

    def _kept_raise(self, body: Sequence[ast.stmt], live: LiveNames) -> list[ast.stmt]:
        """A branch that only complains stays, so that a wrong choice gives the script's own message."""
        for statement in body:
            if isinstance(statement, ast.Raise):
                self.mark_live(live, self.reads(statement))
                return [statement]
        return []

    def _loop(self, statement: ast.For | ast.AsyncFor | ast.While, live: LiveNames) -> ast.stmt | None:
        if self.effects.trains(statement):
            self.options.dropped.append(statement)
            return None
        after = live.copy()
        body: list[ast.stmt] = []
        for _ in range(6):  # what an iteration needs may be made by the one before it
            before = set(live.items)
            body = self.block(statement.body, live)
            live.add(before)
            if live.items == before:
                break
        bound = bound_names(statement.test if isinstance(statement, ast.While) else statement.target)
        binds = bool(bound & after.roots())
        if not body and not binds:
            live.items = after.items
            return None
        orelse = self.block(statement.orelse, live)
        body = self._with_exits(statement.body, body, live)
        if isinstance(statement, ast.While):
            self.mark_live(live, self.reads(statement.test))
            return with_fields(statement, body=body or [ast.Pass()], orelse=orelse)
        for name in bound_names(statement.target) - after.roots():
            live.kill(name)
        self.mark_live(live, self.reads(statement.iter))
        return with_fields(statement, body=body or [ast.Pass()], orelse=orelse)

    def _with_exits(self, original: Sequence[ast.stmt], kept: list[ast.stmt], live: LiveNames) -> list[ast.stmt]:
        """Put back the `break` and `continue` that decide how often a kept loop's body runs."""
        result: list[ast.stmt] = []
        remaining = {statement.lineno: statement for statement in kept}
        for statement in original:
            survivor = remaining.get(statement.lineno)
            if isinstance(statement, ast.If) and any(isinstance(inner, ast.Break | ast.Continue) for inner in statement.body):
                if survivor is None:
                    exits = [inner for inner in statement.body if isinstance(inner, ast.Break | ast.Continue)]
                    self.mark_live(live, self.reads(statement.test))
                    survivor = with_fields(statement, body=exits, orelse=[])
                elif isinstance(survivor, ast.If):
                    survivor.body += [inner for inner in statement.body if isinstance(inner, ast.Break | ast.Continue)]
            if survivor is not None:
                result.append(survivor)
        return result

    def _with(self, statement: ast.With | ast.AsyncWith, live: LiveNames) -> ast.stmt | None:
        body = self.block(statement.body, live)
        bound = set().union(*map(bound_names, statement.items))
        if not body and not bound & live.roots():
            return None
        for name in bound:
            live.kill(name)
        self.mark_live(live, self.reads([item.context_expr for item in statement.items]))
        return with_fields(statement, body=body or [ast.Pass()])

    def _try(self, statement: ast.Try | ast.TryStar, live: LiveNames) -> ast.stmt | None:
        final = self.block(statement.finalbody, live)
        start = live.copy()
        orelse = self.block(statement.orelse, live)
        body = self.block(statement.body, live)
        handlers: list[ast.ExceptHandler] = []
        any_handler = False
        for handler in statement.handlers:
            branch = start.copy()
            inner = self.block(handler.body, branch)
            any_handler = any_handler or bool(inner)
            live.add(branch.items)
            handlers.append(with_fields(handler, body=inner or [ast.Pass()]))
        if not (body or orelse or final or any_handler):
            return None
        for handler in handlers:
            self.mark_live(live, self.reads(handler.type))
        if not handlers and not final:
            final = [ast.Pass()]
        return with_fields(
            statement, body=body or [ast.Pass()], handlers=handlers, orelse=orelse if handlers else [], finalbody=final
        )

    def _match(self, statement: ast.Match, live: LiveNames) -> ast.stmt | None:
        start = live.copy()
        cases: list[ast.match_case] = []
        kept = False
        for case in statement.cases:
            branch = start.copy()
            body = self.block(case.body, branch)
            kept = kept or bool(body)
            live.add(branch.items)
            cases.append(with_fields(case, body=body or self._kept_raise(case.body, live) or [ast.Pass()]))
        if not kept:
            return None
        self.mark_live(live, self.reads(statement.subject))
        for case in statement.cases:
            self.mark_live(live, self.reads(case.pattern) | self.reads(case.guard))
        return with_fields(statement, cases=cases)

    def _simple(self, statement: ast.stmt, live: LiveNames) -> ast.stmt | None:
        calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
        bound = {name for name in bound_names(statement) if live.has(name)}
        stored = [place for target in store_targets(statement) if (place := self._stored_place(target)) is not None]
        relevant = bool(bound) or any(self._alias_touches(live, place) for place in stored)
        loads = False
        for call in calls:
            changed = self.effects.changes(call, statement=isinstance(statement, ast.Expr) and statement.value is call)
            changed += [(name, None) for name in self._assigned_by(call)]
            if any(self._alias_touches(live, place) for place in changed) and not self._pruned_argument(call, live):
                relevant = True
                loads = loads or is_checkpoint_call(call)
            elif isinstance(statement, ast.Expr) and statement.value is call:
                relevant = relevant or self._kept_for_effect(call, live)
        if not relevant:
            return None
        if self._left_out(calls, bound, loads):
            self.options.dropped.append(statement)
            return None
        self.stored |= bound
        rewritten = self.rewrite(statement)
        parsed = isinstance(statement, ast.Assign) and is_parse_call(statement.value)
        wanted: set[str] | None = None
        if parsed and isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            wanted = live.attributes(statement.targets[0].id)
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            for name in bound:
                live.kill(name)
            for place in stored:
                if place[1] is not None and isinstance(statement, ast.Assign) and is_plain_attribute(statement, place):
                    live.items.discard(place)
        read = self.reads(rewritten)
        if isinstance(statement, ast.AugAssign):
            read |= {(name, None) for name in bound}
        if parsed and wanted is not None:
            parser = root_of(statement.value)  # type: ignore[attr-defined]
            read = {use for use in read if use[0] != parser}
            if parser is not None:
                read |= {(parser, f"--{name}") for name in wanted} or {(parser, "--")}
        # a store into an object's place needs the object; an attribute's store does not need the attribute itself
        read |= {(place[0], None) if place[1] is None else (place[0], "") for place in stored}
        self.mark_live(live, read)
        return rewritten

    def _assigned_by(self, call: ast.Call) -> set[str]:
        """The names of this scope, or of the file, that a called function assigns, which says so by `nonlocal` or `global`."""
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        definition = self.definitions.get(name) or self.module.definitions.get(name)
        shared = (item for item in ast.walk(definition or call) if isinstance(item, ast.Global | ast.Nonlocal))
        names = {name for item in shared for name in item.names}
        return names and {item.id for item in inside(definition, ast.Name) if not isinstance(item.ctx, ast.Load)} & names

    def _stored_place(self, target: ast.expr) -> NameUse | None:
        if isinstance(target, ast.Name):
            return None
        root = root_of(target)
        expanded = self.module.expand(target if not isinstance(target, ast.Subscript) else target.value) or ""
        if root in self.module.imports and expanded.startswith(_INERT_PLACES):
            return None
        return use_of(target)

    def _pruned_argument(self, call: ast.Call, live: LiveNames) -> bool:
        """Whether an `add_argument` declares an option that nothing in the slice reads."""
        if last_name(call.func) != "add_argument" or not isinstance(call.func, ast.Attribute):
            return False
        parser = root_of(call.func.value)
        family = {parser, *self.aliases.get(parser or "", ())}
        found = [live.attributes(name) for name in family if name is not None and live.has(name)]
        if not any(attributes and any(item.startswith("--") for item in attributes) for attributes in found):
            return False
        if any(attributes is None for attributes in found):
            return False
        name = destination(call)
        return name is not None and not any(f"--{name}" in (attributes or ()) for attributes in found)

    def _kept_for_effect(self, call: ast.Call, live: LiveNames) -> bool:
        expanded = self.module.expand(call.func) or ""
        if expanded.startswith("sys.path.") or expanded == "os.chdir":
            return True
        if last_name(call.func) == "__init__" and isinstance(call.func, ast.Attribute):
            return isinstance(call.func.value, ast.Call) and last_name(call.func.value.func) == "super" and live.has("self")
        return self._seeds and self.options.seeds and is_seed(call)

    def _left_out(self, calls: Sequence[ast.Call], bound: set[str], loads: bool) -> bool:
        """Steps that would train, and with `checkpoints` off those that load: the objects then stay as they were before."""
        if not self.options.data and not bound and any(makes_data(call) for call in calls):
            return True
        given = {root for call in calls for value in call.args if (root := root_of(value)) is not None}
        for call in calls:
            if (not bound or bound & given) and self.effects.trains(call):
                return True
            loading = is_checkpoint_call(call)
            if not self.options.checkpoints and loading and (loads or bound & given):
                return True
        return False


def _serves(statement: ast.stmt) -> bool:
    """Whether a statement starts a server, which comes after all that it needs and does not return."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and last_name(call.func) in (
        "run",
        "run_app",
        "run_server",
        "serve",
        "serve_forever",
        "launch",
    )
