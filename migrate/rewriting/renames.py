"""A rule that is a table: things that have another name or stand in another module today."""

import ast
import sys
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ..reading.edits import Edit, Positions
from ..reading.names import has_fallback, import_line, importing, mentions, remove_import, uses
from ..reading.scopes import BUILTINS, Module, root_of
from .rule import Context, Fix, Repair


def table(text: str) -> Mapping[str, str]:
    """The new names by the old ones: a line `old -> new` each, or `package -> package: name name` for names that stay."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        old, _, rest = line.partition(" -> ")
        new, _, same = rest.partition(": ")
        found |= {f"{old}.{name}": f"{new}.{name}" for name in same.split()} or {old: new}
    return found


class Renames(Repair):
    """Renames what a file imports, in the import or where it is used. `names` are single things, `modules` whole modules."""

    names: ClassVar[Mapping[str, str]] = {}
    """Dotted name today by dotted name then; a name without a dot is a builtin, and an expression stands in brackets."""
    modules: ClassVar[Mapping[str, str]] = {}
    inexact: ClassVar[frozenset[str]] = frozenset()
    """Old names whose new ones are not quite the same: unsafe, whatever the rule is."""
    gone: ClassVar[frozenset[str]] = frozenset()
    """Modules that are no more: their import goes once nothing uses it."""
    reason: ClassVar[str]
    """Why, as the end of a sentence that begins with the old name."""

    def target(self, name: str) -> str | None:
        """What a dotted name is called today, where the table knows it."""
        if name in self.names:
            return self.names[name]
        prefix, rest = name, ""
        while prefix:
            if prefix in self.modules:
                return self.modules[prefix] + rest
            prefix, dot, last = prefix.rpartition(".")
            rest = f"{dot}{last}{rest}"
        return None

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for node in module.of_kind(ast.ImportFrom):
            if not node.level and self._concerns(node.module or "") and not self._is_own(module, node.module or ""):
                yield from self._from(context, node)
        for plain in module.of_kind(ast.Import):
            if any(self._concerns(alias.name) for alias in plain.names):
                yield from self._import(context, plain)
        for old in (*self.names, *self.modules):
            for use in uses(module, old):
                if has_fallback(module, use):
                    continue
                if isinstance(use, ast.Attribute):  # whoever gives a library's name a value needs none of the library's
                    yield from self._use(context, use, old) if isinstance(use.ctx, ast.Load) else ()
                elif use.id == old and old in self.modules and self._is_imported_plainly(module, old):
                    new = self.modules[old]
                    yield self.fix(context, use, self._message(old, new), [Edit(*context.positions.span(use), new)])

    def _concerns(self, name: str) -> bool:
        root = name.partition(".")[0]
        return any(old.partition(".")[0] == root for old in (*self.names, *self.modules, *self.gone))

    def _is_own(self, module: Module, name: str) -> bool:
        return module.repository.has_package(name, module.path)

    def _message(self, old: str, new: str) -> str:
        return f"{old} {self.reason}; write {new}"

    def _from(self, context: Context, node: ast.ImportFrom) -> Iterator[Fix]:
        source, positions = node.module or "", context.positions
        if has_fallback(context.module, node):
            return
        if [alias.name for alias in node.names] == ["*"]:
            if source in self.modules and (edit := _token(positions, node, source, self.modules[source])):
                yield self.fix(context, node, self._message(source, self.modules[source]), [edit])
            return
        moved = {alias: new for alias in node.names if (new := self.target(f"{source}.{alias.name}")) is not None}
        if not moved:
            return
        homes = {_home(new) for new in moved.values()}
        message = self._message(f"{source}.{next(iter(moved)).name}", next(iter(moved.values())))
        if len(homes) == 1 and "" not in homes and len(moved) == len(node.names):
            found = [_token(positions, node, source, homes.pop())] if source not in homes else []
            found += [_alias(positions, alias, new) for alias, new in moved.items() if alias.name != new.rpartition(".")[2]]
            edits = [edit for edit in found if edit is not None]
        elif homes == {source}:
            edits = [_alias(positions, alias, new) for alias, new in moved.items()]
        else:
            edits = _split(positions, node, moved)
        exact = not any(f"{source}.{alias.name}" in self.inexact for alias in moved)
        yield self.fix(context, node, message, edits, offer=self.safety if exact else "unsafe")

    def _import(self, context: Context, node: ast.Import) -> Iterator[Fix]:
        module = context.module
        for alias in node.names:
            if self._is_own(module, alias.name) or has_fallback(module, node):
                continue
            new = self.target(alias.name)
            start, whole = context.positions.span(alias)
            if new is not None:
                end = whole if alias.asname == new else start + len(alias.name)
                yield self.fix(context, node, self._message(alias.name, new), [Edit(start, end, new)])
            elif alias.name in self.gone:
                local = alias.asname or alias.name
                used = mentions(module, local)
                root = alias.name.partition(".")[0]
                edit = Edit(start, start + len(alias.name), root)
                if alias.asname or root == alias.name or any(item is not node for item, _ in importing(module, root)):
                    edit = remove_import(module, context.positions, node, alias)
                yield self.fix(
                    context, node, f"{alias.name} {self.reason}; leave the import out", [] if used else [edit], severity="error"
                )

    def _is_imported_plainly(self, module: Module, name: str) -> bool:
        return all(not alias.asname and isinstance(node, ast.Import) for node, alias in importing(module, name))

    def _use(self, context: Context, node: ast.Attribute, old: str) -> Iterator[Fix]:
        module, new = context.module, self.target(old)
        assert new is not None
        root = root_of(node)
        assert root is not None
        known = module.imported_as(root, node)
        assert known is not None
        start, end = context.positions.span(node)
        if self.target(known) is not None and known != old.partition(".")[0]:
            return  # the import itself changes
        message = self._message(old, new)
        if old in self.inexact:
            yield self.fix(context, node, message)
        elif new.startswith("("):
            yield self.fix(context, node, message, [Edit(start, end, new)])
        elif "." not in new and old not in self.modules:
            taken = new in module.imports or new in module.definitions or new not in BUILTINS
            yield self.fix(context, node, message, [] if taken else [Edit(start, end, new)])
        elif new.rpartition(".")[0] == old.rpartition(".")[0]:
            yield self.fix(context, node, message, [Edit(end - len(node.attr), end, new.rpartition(".")[2])])
        elif new.startswith(f"{known}."):
            yield self.fix(context, node, message, [Edit(start, end, root + new.removeprefix(known))])
        else:
            yield self.fix(context, node, message, _with_import(module, context.positions, start, end, new))


def _home(new: str) -> str:
    """The module of a dotted name; empty for builtins and expressions, which an assignment stands for."""
    return "" if new.startswith("(") else new.rpartition(".")[0]


def _with_import(module: Module, positions: Positions, start: int, end: int, new: str) -> list[Edit]:
    first = new.partition(".")[0]
    if module.imports.get(first, first) != first or first in module.definitions:
        return []
    if first in sys.stdlib_module_names:
        added = import_line(module, positions, f"import {new.rpartition('.')[0] or new}")
    else:  # with a package come its public modules
        added = None if first in module.imports else import_line(module, positions, f"import {first}")
    return [*([added] if added else []), Edit(start, end, new)]


def _token(positions: Positions, node: ast.ImportFrom, old: str, new: str) -> Edit | None:
    start, end = positions.span(node)
    text = positions.text[start:end]
    at = text.find(old, len("from"))
    return Edit(start + at, start + at + len(old), new) if at >= 0 and not text[4:at].strip() and old != new else None


def _alias(positions: Positions, alias: ast.alias, new: str) -> Edit:
    return Edit(*positions.span(alias), _spelled(alias, new))


def _spelled(alias: ast.alias, new: str) -> str:
    """What stands in the import for a thing that keeps its name in this file."""
    name, local = new.rpartition(".")[2], alias.asname or alias.name
    return name if name == local else f"{name} as {local}"


def _split(positions: Positions, node: ast.ImportFrom, moved: Mapping[ast.alias, str]) -> list[Edit]:
    """What moved leaves the import, for imports of their own above it."""
    by_home: dict[str, list[str]] = {}
    for alias, new in moved.items():
        if _home(new):
            by_home.setdefault(_home(new), []).append(_spelled(alias, new))
    lines = [f"from {home} import {', '.join(names)}" for home, names in by_home.items()]
    lines += [f"{alias.asname or alias.name} = {new}" for alias, new in moved.items() if not _home(new)]
    start, end = positions.span(node)
    kept = [alias for alias in node.names if alias not in moved]
    apart = f"{positions.newline(node.lineno)}{positions.indent(node.lineno)}" if positions.starts_line(node) else "; "
    if not kept:
        return [Edit(start, end, apart.join(lines))]
    return [Edit(start, start, "".join(line + apart for line in lines)), *positions.leave_out(node.names, moved)]
