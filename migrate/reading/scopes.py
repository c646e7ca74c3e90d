"""Files and what the names in them stand for: scope by scope, and where an import leads inside a repository."""

from __future__ import annotations

import ast
import builtins
import itertools
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from .bindings import (
    COMPREHENSIONS,
    FUNCTIONS,
    Function,
    NameUse,
    bound_names,
    dotted,
    last_name,
    local_names,
    parameters,
    reads,
    root_of,
    targets_of,
    use_of,
)
from .edits import Positions
from .search_path import added_folders
from .source import SourceFile

__all__ = [
    "BUILTINS", "Definition", "Function", "Module", "NameUse", "Repository", "bound_names", "dotted", "import_module",
    "last_name", "local_names", "parameters", "reads", "root_of", "targets_of", "use_of",
]  # fmt: skip

Definition = Function | ast.ClassDef
_Node = TypeVar("_Node", bound=ast.AST)
_SCOPES = (*FUNCTIONS, *COMPREHENSIONS, ast.ClassDef)

BUILTINS = frozenset(dir(builtins))


def import_module(node: ast.ImportFrom, path: str) -> str:
    """The absolute dotted module of a `from` import in the file at `path`, as seen from the repository root."""
    if not node.level:
        return node.module or ""
    folder = posixpath.dirname(path)
    for _ in range(node.level - 1):
        folder = posixpath.dirname(folder)
    parts = [part for part in folder.split("/") if part] + ([node.module] if node.module else [])
    return ".".join(parts)


def imported_names(node: ast.Import | ast.ImportFrom, path: str) -> dict[str, str]:
    """What an import statement of the file at `path` binds: local name to dotted name, stars left out."""
    if isinstance(node, ast.Import):
        pairs = [(alias.name, alias.asname, alias.name.partition(".")[0]) for alias in node.names]
        return {asname or root: name if asname else root for name, asname, root in pairs}
    module = import_module(node, path)
    named = [alias for alias in node.names if alias.name != "*"]
    return {alias.asname or alias.name: f"{module}.{alias.name}" if module else alias.name for alias in named}


@dataclass
class Module:
    """One parsed file with the tables that analysis needs."""

    file: SourceFile
    tree: ast.Module
    repository: Repository = field(repr=False)
    _expanded: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _bound: dict[ast.AST, set[str]] = field(default_factory=dict, init=False, repr=False)
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

    def ancestors(self, node: ast.AST, within: ast.AST | None = None) -> Iterator[ast.AST]:
        """What stands around a node, innermost first; below `within`, where that is one of it."""
        current = self.parents.get(node)
        while current is not None and current is not within:
            yield current
            current = self.parents.get(current)

    @cached_property
    def references(self) -> dict[str, list[ast.Name | ast.Attribute]]:
        """What reads an imported thing, by its dotted name: {"torch.nn.Linear": [the node of `nn.Linear`]}, parts included."""
        found: dict[str, list[ast.Name | ast.Attribute]] = {}
        for node in self.of_kind(ast.Name):
            current: ast.AST = node
            name = self.imported_as(node.id, node)
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
        """Local name to the dotted thing it stands for: {"nn": "torch.nn", "Net": "model.Net"}; anywhere in the file.

        Where the file's top and a function import different things by one name, it is the top's; see `imported_as`.
        """
        inner = {
            name: value for scope, names in self._imported.items() if scope is not self.tree for name, value in names.items()
        }
        return inner | self._imported.get(self.tree, {})

    @cached_property
    def _imported(self) -> dict[ast.AST, dict[str, str]]:
        """What each scope imports: the file, its functions and classes."""
        found: dict[ast.AST, dict[str, str]] = {}
        shared: dict[ast.AST, set[str]] = {self.tree: set()}  # what each scope says is the file's
        for node in self.nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                scope = next(item for item in self.ancestors(node) if isinstance(item, Definition | ast.Module))
                if scope not in shared:
                    shared[scope] = {name for item in ast.walk(scope) if isinstance(item, ast.Global) for name in item.names}
                for name, value in imported_names(node, self.path).items():
                    found.setdefault(self.tree if name in shared[scope] else scope, {})[name] = value
        return found

    @cached_property
    def _inner_names(self) -> set[str]:
        """Every name that some function, class or comprehension binds for itself."""
        return set().union(*(self.names_of(node) for node in self.nodes if isinstance(node, _SCOPES)))

    def names_of(self, scope: ast.AST) -> set[str]:
        """What a function, a class or a comprehension binds for itself; nothing for any other node."""
        if scope not in self._bound:
            names: set[str] = set()
            if isinstance(scope, FUNCTIONS):
                names = local_names(scope)
            elif isinstance(scope, COMPREHENSIONS):
                names = names.union(*(bound_names(item.target) for item in scope.generators))
            elif isinstance(scope, ast.ClassDef):
                names = names.union(*map(bound_names, scope.body))
            self._bound[scope] = names
        return self._bound[scope]

    def imported_as(self, name: str, node: ast.AST) -> str | None:
        """The dotted thing that an import makes of a name where a node stands; None where the name means something else."""
        child, methods = node, False
        for scope in self.ancestors(node) if name in self._inner_names else ():
            if isinstance(scope, _SCOPES) and _holds(scope, child):
                seen = not (isinstance(scope, ast.ClassDef) and methods)  # methods do not see the names of their class
                if seen and name in self.names_of(scope):
                    return self._imported.get(scope, {}).get(name)
                methods |= isinstance(scope, FUNCTIONS)
            child = scope
        return None if name in self.definitions else self._imported.get(self.tree, {}).get(name)

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
        if root in self._inner_names and node in self.parents:
            return (self.imported_as(root, node) or root) + dot + rest
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

    def source_of(self, name: str) -> Module | None:
        """The file of the repository that a dotted name is, else the one in which what it names stands."""
        return self.repository.module(name, self.path) or self.repository.module(name.rpartition(".")[0], self.path)

    def find_callee(self, node: ast.AST) -> tuple[Module, Definition] | None:
        """What a callee expression (a name, or attributes of a module) stands for inside the repository."""
        text = dotted(node)
        if text is None:
            return None
        root, dot, rest = text.partition(".")
        if not dot:
            return self.find(root)
        known = self.imported_as(root, node) if node in self.parents else self.imports.get(root)
        return self.repository.lookup(f"{known}.{rest}", self.path, set()) if known is not None else None


def apart(folder: str, path: str) -> int:
    """How many folders up from a path the one lies that it shares with another folder or file."""
    above = posixpath.dirname(path).split("/")
    shared = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(folder.split("/"), above, strict=False))
    return len(above) - len(list(shared))


class Repository:
    """The parsed files by path, and the way from an import to a file."""

    def __init__(self, files: Iterable[SourceFile]) -> None:
        self.modules: dict[str, Module] = {}
        self._reached: dict[tuple[str, str], Module | None] = {}
        for file in files:
            if file.tree is not None:
                self.modules[file.path] = Module(file, file.tree, self)

    def module(self, name: str, importer: str) -> Module | None:
        """The file that `import name` reaches from the file `importer`.

        It is looked for from its folder, then from the folders above, then from those that any file adds to the search path:
        the nearest first, since one repository may hold several projects, each with a `lib` of its own. Last comes what only
        installing the project makes importable.
        """
        if (name, importer) not in self._reached:
            self._reached[name, importer] = self._reach(name, importer)
        return self._reached[name, importer]

    def _reach(self, name: str, importer: str) -> Module | None:
        return next(self.meant(name, importer), None)

    def meant(self, name: str, importer: str) -> Iterator[Module]:
        """The files that `import name` may reach, the likeliest first: `dataset` of a file beside dataset/dataset.py is the
        package where a script above imports that file, and the file where one beside it runs."""
        relative = name.replace(".", "/")
        added, projects = (
            sorted(folders, key=lambda folder: apart(folder, importer)) for folders in (self.added, self.projects)
        )
        own, *above = upward(posixpath.dirname(importer))
        nearest = (*above, own) if importer.endswith("__init__.py") else (own, *above)  # a package's face is seen from above
        for folder in (*nearest, *added, *installed(importer), *projects):
            for candidate in (f"{relative}.py", f"{relative}/__init__.py"):
                found = self.modules.get(posixpath.join(folder, candidate))
                if found is not None and (found.path != importer or candidate.endswith("__init__.py")):
                    yield found

    @cached_property
    def added(self) -> tuple[str, ...]:
        """Folders of this repository that its files add to Python's search path."""
        texts = ((module, module.file.text or "") for module in self.modules.values())
        added = (folder for module, text in texts if "sys.path" in text for folder in added_folders(module.tree, module.path))
        return tuple(dict.fromkeys(folder for folder in added if folder in self.folders))

    @cached_property
    def projects(self) -> tuple[str, ...]:
        """Folders from which the projects of a workspace are installed: each one's `src`, or the one around a package of its
        name."""

        def is_one(folder: str) -> bool:
            name = posixpath.basename(folder)
            package = name.replace("-", "_")
            inner = f"{folder}/{package}/__init__.py" in self.modules
            return inner or (name == "src" and f"{folder}/__init__.py" not in self.modules)

        return tuple(folder for folder in sorted(self.folders) if is_one(folder))

    @cached_property
    def folders(self) -> frozenset[str]:
        """Those that hold sources, in folders of their own too; without the repository's own."""
        return frozenset(folder for path in self.modules for folder in upward(posixpath.dirname(path)) if folder)

    @cached_property
    def function_names(self) -> frozenset[str]:
        """Of all functions and methods that these files define."""
        return frozenset(item.name for module in self.modules.values() for item in module.of_kind(ast.FunctionDef))

    @cached_property
    def held(self) -> frozenset[str]:
        """The names under which objects and classes of these files hold something that is no method."""
        names: set[str] = set()
        for module in self.modules.values():
            names |= {node.attr for node in module.of_kind(ast.Attribute) if isinstance(node.ctx, ast.Store)}
            names |= {item.arg for item in module.of_kind(ast.keyword) if item.arg}  # of a constructor: Namespace(base_net=net)
            for kind in module.of_kind(ast.ClassDef):
                for item in kind.body:
                    marks = item.decorator_list if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) else None
                    if marks is None or any(last_name(mark).endswith("property") for mark in marks):
                        names |= bound_names(item)
            for call in module.calls:  # setattr(self, "base_net", net), self.add_module("base_net", net)
                texts = (item.value for item in call.args[:2] if isinstance(item, ast.Constant) and isinstance(item.value, str))
                names.update(texts if last_name(call.func) in ("setattr", "add_module", "register_module") else ())
        return frozenset(names)

    def has_package(self, name: str, importer: str) -> bool:
        """Whether a top-level import name leads into this repository, packages without `__init__.py` included."""
        root = name.partition(".")[0]
        folders = (*upward(posixpath.dirname(importer)), *self.added, *installed(importer), *self.projects)
        return bool(root) and any(self.lies_in(root, folder) for folder in folders)

    def lies_in(self, root: str, folder: str) -> bool:
        """Whether a top-level import name is a file or a folder of sources right in this folder of the repository."""
        place = posixpath.join(folder, root)
        return f"{place}.py" in self.modules or place in self.folders

    def lookup(self, name: str, importer: str, seen: set[tuple[str, str]]) -> tuple[Module, Definition] | None:
        """The definition that a dotted name such as "models.resnet.ResNet" denotes."""
        prefix, _, attribute = name.rpartition(".")
        if not prefix:
            return None
        module = self.module(prefix, importer)
        return module.find(attribute, seen) if module is not None else None


def _holds(scope: ast.AST, child: ast.AST) -> bool:
    """Whether a part of a scope sees its names: a function's body does, its decorators and default values do not."""
    body = getattr(scope, "body", None)
    return body is None or child is body or (isinstance(body, list) and child in body)


def installed(path: str) -> tuple[str, ...]:
    """The folders whose packages a file can import where its project, or one around it, is installed: each one's `src`."""
    return tuple(posixpath.join(folder, "src") for folder in upward(posixpath.dirname(path)))


def upward(folder: str) -> Iterator[str]:
    """A folder and those above it, up to the root, which is ""."""
    while folder:
        yield folder
        folder = posixpath.dirname(folder)
    yield ""
