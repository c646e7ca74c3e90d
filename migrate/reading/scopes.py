"""Names in Python code: what a piece of it reads, binds and changes, and where an import leads inside a repository."""

from __future__ import annotations

import ast
import builtins
import posixpath
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from .edits import Positions
from .search_path import added_folders
from .source import SourceFile

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef
_Node = TypeVar("_Node", bound=ast.AST)
NameUse = tuple[str, str | None]
"""A name in use, whole, or only one attribute of it: ("args", "arch")."""

BUILTINS = frozenset(dir(builtins))
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def dotted(node: ast.AST | None) -> str | None:
    """ "a.b.c" for a chain of attributes on a name, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def root_of(node: ast.AST) -> str | None:
    """The name at the bottom of a chain of attributes, subscripts and calls: `a` for `a.b[0].c()`."""
    while True:
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return node.id if isinstance(node, ast.Name) else None


def use_of(node: ast.AST) -> NameUse | None:
    """What an expression that denotes a place uses: ("args", "arch") for `args.arch.x[0]`, ("a", None) for `a`."""
    last: str | None = None
    while True:
        if isinstance(node, ast.Attribute):
            last = node.attr
            node = node.value
        elif isinstance(node, ast.Subscript | ast.Starred):
            last = None
            node = node.value
        else:
            return (node.id, last) if isinstance(node, ast.Name) else None


def last_name(node: ast.AST) -> str:
    """The rightmost identifier of a callee: "load" for `torch.load`, "" when there is none."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def parameters(function: Function | ast.Lambda) -> list[ast.arg]:
    """Every parameter, in order, with *args and **kwargs last."""
    a = function.args
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else []), *([a.kwarg] if a.kwarg else [])]


def targets_of(node: ast.AST) -> Iterator[ast.expr]:
    """The elementary targets of an assignment target: names, attributes and subscripts."""
    if isinstance(node, ast.Tuple | ast.List):
        for element in node.elts:
            yield from targets_of(element)
    elif isinstance(node, ast.Starred):
        yield from targets_of(node.value)
    elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        yield node


def bound_names(node: ast.AST) -> set[str]:
    """Names that a statement binds in its own scope, nested statements included, nested scopes not."""
    names: set[str] = set()
    stack: list[ast.AST] = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(current.name)
            continue
        if isinstance(current, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            continue
        if isinstance(current, ast.Name) and isinstance(current.ctx, ast.Store | ast.Del):
            names.add(current.id)
        elif isinstance(current, ast.alias):
            names.add(current.asname or current.name.partition(".")[0])
        elif isinstance(current, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and current.name:
            names.add(current.name)
        elif isinstance(current, ast.MatchMapping) and current.rest:
            names.add(current.rest)
        stack.extend(ast.iter_child_nodes(current))
    return names


def local_names(function: Function | ast.Lambda) -> set[str]:
    """Names local to a function: parameters and what its body binds, without `global` and `nonlocal` ones."""
    names = {argument.arg for argument in parameters(function)}
    body = [function.body] if isinstance(function, ast.Lambda) else function.body
    outer: set[str] = set()
    for statement in body:
        names |= bound_names(statement)
        for node in ast.walk(statement):
            if isinstance(node, ast.Global | ast.Nonlocal):
                outer.update(node.names)
    return names - outer


def reads(node: ast.AST | Iterable[ast.AST] | None, modules: Container[str] = ()) -> set[NameUse]:
    """The names from outside that a piece of code reads, with nested functions, lambdas and comprehensions looked into.

    Calling a method reads the whole object, unless its name is one of `modules`.
    """
    found: set[NameUse] = set()
    for item in [node] if isinstance(node, ast.AST) else node or ():
        _collect(item, found, frozenset())
        for inner in ast.walk(item):
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and isinstance(inner.func.value, ast.Name):
                name = inner.func.value.id
                if (
                    name not in modules
                    and (name, inner.func.attr) in found
                    and not inner.func.attr.startswith(("parse_", "add_argument"))
                ):
                    found.add((name, None))
    return found


def _collect(node: ast.AST, found: set[NameUse], hidden: frozenset[str]) -> None:
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load) and node.id not in hidden:
            found.add((node.id, None))
        return
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id not in hidden:
            found.add((node.value.id, None if node.attr == "__dict__" else node.attr))
        return
    if isinstance(node, _SCOPES):
        inner = hidden | local_names(node)
        for argument in parameters(node):
            if argument.annotation:
                _collect(argument.annotation, found, hidden)
        for outside in [*node.args.defaults, *node.args.kw_defaults, *getattr(node, "decorator_list", [])]:
            if outside is not None:
                _collect(outside, found, hidden)
        if getattr(node, "returns", None):
            _collect(node.returns, found, hidden)  # type: ignore[union-attr, arg-type]
        for inside in [node.body] if isinstance(node, ast.Lambda) else node.body:
            _collect(inside, found, inner)
        return
    if isinstance(node, ast.ClassDef):
        for outside in [*node.bases, *(keyword.value for keyword in node.keywords), *node.decorator_list]:
            _collect(outside, found, hidden)
        for inside in node.body:  # a class body's names are not seen by its methods, but reading one name too many is harmless
            _collect(inside, found, hidden)
        return
    if isinstance(node, _COMPREHENSIONS):
        hidden |= {
            name for generator in node.generators for target in targets_of(generator.target) for name in bound_names(target)
        }
    for child in ast.iter_child_nodes(node):
        _collect(child, found, hidden)


def import_module(node: ast.ImportFrom, path: str) -> str:
    """The absolute dotted module of a `from` import in the file at `path`, as seen from the repository root."""
    if not node.level:
        return node.module or ""
    folder = posixpath.dirname(path)
    for _ in range(node.level - 1):
        folder = posixpath.dirname(folder)
    parts = [part for part in folder.split("/") if part] + ([node.module] if node.module else [])
    return ".".join(parts)


@dataclass
class Module:
    """One parsed file with the tables that analysis needs."""

    file: SourceFile
    tree: ast.Module
    repository: Repository = field(repr=False)
    _expanded: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _found: dict[str, tuple[Module, Definition] | None] = field(default_factory=dict, init=False, repr=False)

    @property
    def path(self) -> str:
        return self.file.path

    @cached_property
    def name(self) -> str:
        stem = self.path.removesuffix(".ipynb").removesuffix(".py").removesuffix("/__init__")
        return stem.replace("/", ".")

    @cached_property
    def positions(self) -> Positions:
        return Positions(self.file.text or "")

    def place(self, node: ast.expr | ast.stmt | ast.keyword | ast.alias | ast.arg | ast.ExceptHandler) -> tuple[int, int]:
        """The line, from 1, and the column, in characters from 0, where a node begins."""
        return self.positions.place(self.positions.offset(node.lineno, node.col_offset))

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def calls(self) -> list[ast.Call]:
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    @cached_property
    def loads(self) -> dict[str, list[ast.expr]]:
        """The names and dotted names that are read, each with the places."""
        found: dict[str, list[ast.expr]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and (name := dotted(node)):
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def words(self) -> set[str]:
        """Every name that the file uses for anything but attributes."""
        names = {node.id for node in self.nodes if isinstance(node, ast.Name)}
        names |= {node.arg for node in self.nodes if isinstance(node, ast.arg)}
        return names | set(self.definitions) | set(self.imports)

    @cached_property
    def _by_kind(self) -> dict[type[ast.AST], list[ast.AST]]:
        found: dict[type[ast.AST], list[ast.AST]] = {}
        level: list[ast.AST] = [self.tree]
        while level:
            for node in level:
                found.setdefault(type(node), []).append(node)
            level = [child for node in level if not isinstance(node, ast.JoinedStr) for child in ast.iter_child_nodes(node)]
        return found

    def of_kind(self, kind: type[_Node]) -> list[_Node]:
        """The nodes of one class, level by level; those inside of f-strings, which are strings, are left out."""
        return self._by_kind.get(kind, [])  # type: ignore[return-value]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """What stands around a node, innermost first."""
        current = self.parents.get(node)
        while current is not None:
            yield current
            current = self.parents.get(current)

    @cached_property
    def references(self) -> dict[str, list[ast.Name | ast.Attribute]]:
        """What reads an imported thing, by its dotted name: {"torch.nn.Linear": [the node of `nn.Linear`]}, parts included."""
        found: dict[str, list[ast.Name | ast.Attribute]] = {}
        for node in self.of_kind(ast.Name):
            current: ast.AST = node
            name = self.imports.get(node.id)
            while name is not None and isinstance(current, ast.Name | ast.Attribute):
                found.setdefault(name, []).append(current)
                outer = self.parents.get(current)
                if not isinstance(outer, ast.Attribute):
                    break
                current, name = outer, f"{name}.{outer.attr}"
        return found

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        """Functions and classes at module level, also those under `if` and `try`; the last of a name wins."""
        found: dict[str, Definition] = {}
        stack: list[ast.AST] = list(reversed(self.tree.body))
        while stack:
            node = stack.pop()
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found[node.name] = node
            elif isinstance(node, ast.If | ast.Try | ast.With):
                stack.extend(reversed(list(ast.iter_child_nodes(node))))
        return found

    @cached_property
    def imports(self) -> dict[str, str]:
        """Local name to the dotted thing it stands for: {"nn": "torch.nn", "Net": "model.Net"}; anywhere in the file."""
        found: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    root = alias.name.partition(".")[0]
                    found[alias.asname or root] = alias.name if alias.asname else root
            elif isinstance(node, ast.ImportFrom):
                module = import_module(node, self.path)
                for alias in node.names:
                    if alias.name != "*":
                        found[alias.asname or alias.name] = f"{module}.{alias.name}" if module else alias.name
        return found

    @cached_property
    def star_imports(self) -> list[str]:
        return [
            import_module(node, self.path)
            for node in self.nodes
            if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
        ]

    def expand(self, node: ast.AST | None) -> str | None:
        """The dotted name with its root import resolved: "torch.nn.Linear" for `nn.Linear`."""
        text = dotted(node)
        if text is None:
            return None
        root, dot, rest = text.partition(".")
        if root not in self._expanded:
            self._expanded[root] = self._import_of(root, set()) or root
        return self._expanded[root] + dot + rest

    def _import_of(self, name: str, seen: set[str]) -> str | None:
        """What a name was imported as, here or in a file of the repository from which everything is imported by star."""
        seen.add(self.path)
        if name in self.imports or name in self.definitions:
            return self.imports.get(name)
        for star in self.star_imports:
            module = self.repository.module(star, self.path)
            if module is not None and module.path not in seen and (found := module._import_of(name, seen)) is not None:
                return found
        return None

    def function_of(self, node: ast.AST) -> Function | None:
        """The innermost function that encloses a node."""
        return next((item for item in self.ancestors(node) if isinstance(item, Function)), None)

    def class_of(self, function: ast.AST) -> ast.ClassDef | None:
        """The class whose method a function is."""
        parent = self.parents.get(function)
        return parent if isinstance(parent, ast.ClassDef) else None

    def qualified(self, function: Function | None) -> str | None:
        """The function's name with those of the definitions around it: "Trainer.evaluate"."""
        if function is None:
            return None
        return ".".join([item.name for item in (function, *self.ancestors(function)) if isinstance(item, Definition)][::-1])

    def statement_of(self, node: ast.AST) -> ast.stmt:
        current = node
        while not isinstance(current, ast.stmt):
            current = self.parents[current]
        return current

    def find(self, name: str, _seen: set[tuple[str, str]] | None = None) -> tuple[Module, Definition] | None:
        """The function or class that a name stands for, through imports (re-exports and stars too) inside the repository."""
        if _seen is None:
            if name not in self._found:
                self._found[name] = self.find(name, set())
            return self._found[name]
        if name in self.definitions:
            return self, self.definitions[name]
        if (self.path, name) in _seen:  # one set for the whole search: star imports of each other are as many paths as subsets
            return None
        _seen.add((self.path, name))
        if name in self.imports:
            return self.repository.lookup(self.imports[name], self.path, _seen)
        for star in self.star_imports:
            module = self.repository.module(star, self.path)
            if module is not None and (found := module.find(name, _seen)):
                return found
        return None

    def find_callee(self, node: ast.AST) -> tuple[Module, Definition] | None:
        """What a callee expression (a name, or attributes of a module) stands for inside the repository."""
        text = dotted(node)
        if text is None:
            return None
        root, dot, rest = text.partition(".")
        if not dot:
            return self.find(root)
        if root in self.imports:
            return self.repository.lookup(f"{self.imports[root]}.{rest}", self.path, set())
        return None


class Repository:
    """The parsed files by path, and the way from an import to a file."""

    def __init__(self, files: Iterable[SourceFile]) -> None:
        self.modules: dict[str, Module] = {}
        for file in files:
            if file.tree is not None:
                self.modules[file.path] = Module(file, file.tree, self)

    def module(self, name: str, importer: str) -> Module | None:
        """The file that `import name` reaches from the file `importer`.

        It is looked for from its folder, then from the folders above, then from those that any file adds to the search path.
        """
        relative = name.replace(".", "/")
        for folder in (*_upward(posixpath.dirname(importer)), *self._added):
            for candidate in (f"{relative}.py", f"{relative}/__init__.py"):
                found = self.modules.get(posixpath.join(folder, candidate))
                if found is not None and (found.path != importer or candidate.endswith("__init__.py")):
                    return found
        return None

    @cached_property
    def _added(self) -> tuple[str, ...]:
        """Folders of this repository that its files add to Python's search path."""
        texts = ((module, module.file.text or "") for module in self.modules.values())
        added = (folder for module, text in texts if "sys.path" in text for folder in added_folders(module.tree, module.path))
        return tuple(dict.fromkeys(folder for folder in added if any(path.startswith(f"{folder}/") for path in self.modules)))

    def has_package(self, name: str, importer: str) -> bool:
        """Whether a top-level import name leads into this repository, packages without `__init__.py` included."""
        root = name.partition(".")[0]
        prefixes = [posixpath.join(folder, root) for folder in (*_upward(posixpath.dirname(importer)), *self._added)]
        return bool(root) and any(
            f"{prefix}.py" in self.modules or any(path.startswith(f"{prefix}/") for path in self.modules) for prefix in prefixes
        )

    def lookup(self, name: str, importer: str, seen: set[tuple[str, str]]) -> tuple[Module, Definition] | None:
        """The definition that a dotted name such as "models.resnet.ResNet" denotes."""
        prefix, _, attribute = name.rpartition(".")
        if not prefix:
            return None
        module = self.module(prefix, importer)
        return module.find(attribute, seen) if module is not None else None


def _upward(folder: str) -> Iterator[str]:
    """A folder and those above it, up to the root, which is ""."""
    while folder:
        yield folder
        folder = posixpath.dirname(folder)
    yield ""
