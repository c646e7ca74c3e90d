"""Reduce a class to the construction of some of its attributes: `__init__` and the methods it calls, sliced."""

import ast
import copy
from dataclasses import dataclass, field

from ..reading.nodes import defaults_of, inside
from ..reading.scopes import Function, Module, NameUse, dotted, last_name, parameters, root_of
from .checkpoint_loading import without_loading
from .liveness import LiveNames, Options
from .slicer import Slicer


@dataclass
class ClassReduction:
    """A class on its way to a smaller one. `wanted` are the attributes that must come out as the whole class makes them."""

    module: Module
    owner: ast.ClassDef
    options: Options
    wanted: set[str] = field(default_factory=set)
    methods: dict[str, Function] = field(default_factory=dict)
    """Methods already reduced, by name."""
    whole: bool = False
    parameters: list[str] | None = None
    """What the reduced `__init__` takes besides self; None when it was left as it is."""
    built: ast.ClassDef | None = None
    extra: list[ast.stmt] = field(default_factory=list)
    """What the reduced class has besides."""

    @property
    def originals(self) -> dict[str, Function]:
        return {item.name: item for item in self.owner.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}

    @property
    def init(self) -> Function | None:
        return self.originals.get("__init__")

    def follow(self, where: Module, caller: Function | None, receiver: ast.expr) -> None:
        """Keep the methods that the using code calls on the instance for their effect on a wanted attribute: `t.load(path)`."""
        root = root_of(receiver)
        for node in ast.walk(caller if caller is not None else where.tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
                name = node.value.func.attr
                if (
                    root_of(node.value.func.value) == root
                    and name in self.originals
                    and self._changes_wanted(self.originals[name])
                ):
                    self.methods.setdefault(name, self.originals[name])

    def build(self) -> ast.ClassDef:
        """The reduced class, or the class itself where it uses its own object as a whole."""
        init = self.init
        if self.whole or init is None:
            form = None if self.options.checkpoints else without_loading(self.module, self.owner)
            self.built = form if isinstance(form, ast.ClassDef) else self.owner
            return self.built
        done: dict[str, Function] = {}
        self._reduce_init(init, done)
        for _ in range(len(self.originals) + 1):
            extra = self._called({**self.methods, **done}) - set(done) - set(self.methods)
            if not extra:
                break
            for name in extra:
                self._keep(name, done)
        done |= {name: method for name, method in self.methods.items() if name not in done}
        body: list[ast.stmt] = []
        for item in self.owner.body:
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                if item.name in done:
                    body.append(done[item.name])
            elif isinstance(item, ast.Assign | ast.AnnAssign):
                body.append(item)
        reduced = ast.ClassDef(
            name=self.owner.name,
            bases=self.owner.bases,
            keywords=self.owner.keywords,
            body=[*body, *self.extra] or [ast.Pass()],
            decorator_list=self.owner.decorator_list,
        )
        self.built = ast.fix_missing_locations(ast.copy_location(reduced, self.owner))
        return self.built

    def _reduce_init(self, init: Function, done: dict[str, Function]) -> None:
        name = parameters(init)[0].arg
        live, kept = self._slice(init, name)
        taken = [argument.arg for argument in parameters(init)[1:] if live.has(argument.arg)]
        if init.args.vararg is None and init.args.kwarg is None:
            from_defaults = defaults_of(init)
            ordered = [item for item in taken if item not in from_defaults] + [item for item in taken if item in from_defaults]
            arguments = ast.arguments(
                posonlyargs=[],
                args=[ast.arg(name), *(ast.arg(item) for item in ordered)],
                kwonlyargs=[],
                kw_defaults=[],
                defaults=[from_defaults[item] for item in ordered if item in from_defaults],
            )
            self.parameters = taken
        else:
            arguments = init.args
        reduced = ast.FunctionDef(name="__init__", args=arguments, body=kept or [ast.Pass()], decorator_list=[])
        done["__init__"] = ast.fix_missing_locations(ast.copy_location(reduced, init))

    def _slice(self, method: Function, self_name: str) -> tuple[LiveNames, list[ast.stmt]]:
        live = LiveNames()
        slicer = Slicer(self.module, method.body, self.options, top_level=False)
        wanted: set[NameUse] = {(self_name, attribute) for attribute in self.wanted}
        slicer.mark_live(live, wanted)
        kept: list[ast.stmt] = []
        for statement in reversed(method.body):
            result = self._setup_call(statement, self_name, live, slicer) or slicer.statement(statement, live)
            if result is not None:
                kept.insert(0, result)
                # a method's value depends on the attributes that the method reads
                for called in self.called_in(result):
                    slicer.mark_live(live, {(self_name, item) for item in self.attributes_of(self.originals[called])})
        self.wanted |= {item for item in (live.attributes(self_name) or set()) if item and item not in self.originals}
        return live, kept

    def _setup_call(self, statement: ast.stmt, self_name: str, live: LiveNames, slicer: Slicer) -> ast.stmt | None:
        """`self.build_model()` stays when that method makes a wanted attribute."""
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
            return None
        called = self.called_in(statement)
        if called and any(self._changes_wanted(self.originals[name]) for name in called):
            slicer.mark_live(live, slicer.reads(statement) - {(self_name, name) for name in called} | {(self_name, "")})
            return statement
        return None

    def _keep(self, name: str, done: dict[str, Function]) -> None:
        method = self.originals[name]
        returns = any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(method))
        names = parameters(method)
        if returns or not names:
            form = None if self.options.checkpoints else without_loading(self.module, method)
            done[name] = form if form is not None and not isinstance(form, ast.ClassDef) else method
            self.wanted |= self.attributes_of(done[name])
            return
        _, kept = self._slice(method, names[0].arg)
        reduced = ast.FunctionDef(name=name, args=method.args, body=kept or [ast.Pass()], decorator_list=method.decorator_list)
        done[name] = ast.fix_missing_locations(ast.copy_location(reduced, method))

    def _called(self, methods: dict[str, Function]) -> set[str]:
        return {name for method in methods.values() for name in self.called_in(method)}

    def called_in(self, node: ast.AST) -> set[str]:
        """The class's own methods that a piece of code uses."""
        return {
            inner.attr
            for inner in inside(node, ast.Attribute)
            if dotted(inner.value) == "self" and inner.attr in self.originals
        }

    def attributes_of(self, method: Function) -> set[str]:
        """The attributes of the object that a method reads."""
        return {
            node.attr
            for node in inside(method, ast.Attribute)
            if dotted(node.value) == "self" and isinstance(node.ctx, ast.Load) and node.attr not in self.originals
        }

    def _changes_wanted(self, method: Function, depth: int = 0) -> bool:
        names = parameters(method)
        slicer = Slicer(self.module, method.body, self.options, top_level=False)
        live = LiveNames({(names[0].arg if names else "self", attribute) for attribute in self.wanted})
        if slicer.block(method.body, live):
            return True
        return depth < 4 and any(
            self._changes_wanted(self.originals[name], depth + 1)
            for name in self.called_in(method)
            if self.originals[name] is not method
        )


def without_framework(owner: ast.ClassDef) -> ast.ClassDef:
    """A class without the base that only a Trainer needs: Lightning's data modules."""
    if not any(last_name(base).startswith("Lightning") for base in owner.bases):
        return owner
    made = copy.copy(owner)
    made.bases, made.keywords = [], []
    return made
