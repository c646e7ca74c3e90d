"""Which imports, and which definitions that are only looked up by name, a slice needs."""

import ast

from ..reading.bindings import bound_names
from ..reading.scopes import BUILTINS, Definition, Module, import_module
from ..reading.statements import with_fields
from .liveness import LiveNames


class ImportSlicer:
    """Answers for one scope of a module; `bound_here` are the names that its own statements bind."""

    def __init__(self, module: Module, bound_here: set[str], *, top_level: bool, wrapped: bool) -> None:
        self.module = module
        self.bound_here = bound_here
        self.top_level = top_level
        self.wrapped = wrapped
        """Whether the statements will stand inside a function, where star imports and __future__ may not."""

    def statement(self, statement: ast.Import | ast.ImportFrom, live: LiveNames) -> ast.stmt | None:
        """The import reduced to what `live` need; they no longer do before it."""
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            return statement if self.top_level and not self.wrapped else None
        kept: list[ast.alias] = []
        for alias in statement.names:
            if alias.name == "*":
                assert isinstance(statement, ast.ImportFrom)
                names = self._star_needed(import_module(statement, self.module.path), live)
                if names and self.wrapped:
                    kept += [ast.alias(item) for item in sorted(names)]
                elif names:
                    kept.append(alias)
                continue
            name = alias.asname or alias.name.partition(".")[0]
            if isinstance(statement, ast.Import) and "." in alias.name and not alias.asname:
                # `import torch.optim` binds torch; it matters where torch.optim is read, or nothing else binds torch
                attributes = live.attributes(name)
                plain = any(
                    isinstance(item, ast.Import) and any(a.name == name for a in item.names) for item in self.module.nodes
                )
                if plain and attributes is not None and alias.name.split(".")[1] not in attributes:
                    continue
            if live.has(name) or self._for_effect(statement, alias, name) or self._for_lookup(statement, live):
                kept.append(alias)
        for alias in kept:
            if alias.name != "*" and not (isinstance(statement, ast.Import) and "." in alias.name and not alias.asname):
                live.kill(alias.asname or alias.name)
        return with_fields(statement, names=kept) if kept else None

    def _star_needed(self, module_name: str, live: LiveNames) -> set[str]:
        """The live names that a star import may bring."""
        names = {name for name in live.roots() if name not in BUILTINS}
        found = self.module.repository.module(module_name, self.module.path)
        unknown = names - self.bound_here
        if found is None:
            return unknown
        provided = set(found.definitions) | set(found.imports)
        provided = provided.union(*(bound_names(item) for item in found.tree.body if not isinstance(item, ast.ImportFrom)))
        if by_name(live):
            return {name for name in provided if not name.startswith("_")}
        hits = names & provided | {name for name in names if found.find(name) is not None}
        return hits or (unknown if found.star_imports else set())

    def _for_effect(self, statement: ast.Import | ast.ImportFrom, alias: ast.alias, name: str) -> bool:
        """An import of the repository's own code under a name that nobody reads was made for what it does, e.g. to register."""
        if not self.top_level or isinstance(statement, ast.ImportFrom):
            return False
        if any(isinstance(node, ast.Name) and node.id == name for node in self.module.nodes):
            return False
        return self.module.repository.has_package(alias.name, self.module.path)

    def _for_lookup(self, statement: ast.Import | ast.ImportFrom, live: LiveNames) -> bool:
        """An import of models that `globals()[name]` or `eval(name)` may mean."""
        if not (self.top_level and isinstance(statement, ast.ImportFrom) and by_name(live)):
            return False
        name = import_module(statement, self.module.path)
        zoo = name.startswith(("torchvision.models", "timm.models"))
        return zoo or self.module.repository.module(name, self.module.path) is not None

    def may_be_looked_up(self, statement: Definition, live: LiveNames) -> bool:
        """A class, or a function that only makes something, which `globals()[name]` or `eval(name)` may mean."""
        if not (self.top_level and by_name(live)):
            return False
        if isinstance(statement, ast.ClassDef):
            return any((self.module.expand(base) or "").startswith("torch.nn") for base in statement.bases)
        returned = [node.value for node in ast.walk(statement) if isinstance(node, ast.Return)]
        looping = any(isinstance(node, ast.For | ast.While | ast.With) for node in ast.walk(statement))
        return bool(returned) and not looping and all(isinstance(value, ast.Call | ast.Name) for value in returned)


def by_name(live: LiveNames) -> bool:
    """Whether what is live looks names up in the module as a whole, so that any of its definitions may be meant."""
    return any(live.has(name) for name in ("globals", "eval", "vars", "locals", "exec"))
