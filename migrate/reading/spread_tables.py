"""Tables of arguments, `f(x, **TABLE)`: where one is written, and an entry taken out of it."""

import ast
from collections.abc import Iterator

from .edits import Edit, Positions
from .nodes import text_of
from .scopes import Module, dotted


def tables_with(module: Module, key: str, callee: str) -> Iterator[tuple[ast.Dict, ast.expr]]:
    """The tables of a file with this key, and the key, whose arguments go to what is imported as `callee...` alone.

    A table may be read in other files of the repository, as settings are. Where anything else reads the key, or the table as a
    whole, it is left alone.
    """
    for assigned in module.of_kind(ast.Assign):
        name = assigned.targets[0].id if isinstance(assigned.targets[0], ast.Name) else None
        table = assigned.value
        if name is None or len(assigned.targets) > 1 or not isinstance(table, ast.Dict):
            continue
        entry = next((item for item in table.keys if item is not None and text_of(item) == key), None)
        top = module.function_of(assigned) is None
        if entry is not None:
            readers = [module, *(_others(module) if top else ())]
            reads = [_purpose(reader, node, key, callee) for reader in readers for node in _reads(reader, module, name)]
            if reads and all(reads) and "spread" in reads:
                yield table, entry


def without_entry(positions: Positions, table: ast.Dict, key: ast.expr) -> list[Edit]:
    """The edit that takes an entry out of a table, with the comma that goes with it."""
    span, number = positions.span, table.keys.index(key)
    if number:
        return [Edit(span(table.values[number - 1])[1], span(table.values[number])[1], "")]
    following = table.keys[1] if len(table.keys) > 1 else None
    if following is not None:
        return [Edit(span(key)[0], span(following)[0], "")]
    return [Edit(*span(table), "{}")] if len(table.keys) == 1 else []


def _others(module: Module) -> list[Module]:
    return [other for other in module.repository.modules.values() if other is not module and other.path != module.path]


def _reads(reader: Module, owner: Module, name: str) -> Iterator[ast.expr]:
    """Where a file reads the table of that name of another file, or its own."""
    own = reader is owner
    for node in reader.of_kind(ast.Name):
        read = isinstance(node.ctx, ast.Load) and (node.id == name if own else True)
        if read and (own or _means(reader, owner, reader.imports.get(node.id), name)):
            yield node
    for node in reader.of_kind(ast.Attribute):
        root, _, rest = (dotted(node) or "").partition(".")
        known = reader.imports.get(root)
        if node.attr == name and known is not None and _means(reader, owner, f"{known}.{rest}", name):
            yield node


def _means(reader: Module, owner: Module, thing: str | None, name: str) -> bool:
    of, _, last = (thing or "").rpartition(".")
    found = reader.repository.module(of, reader.path) if last == name and of else None
    return found is not None and found.path == owner.path


def _purpose(reader: Module, node: ast.expr, key: str, callee: str) -> str:
    """What a table is read for: "spread" into calls of `callee...`, "other" for another entry; "" for what needs the key."""
    parent = reader.parents.get(node)
    if isinstance(parent, ast.keyword) and parent.arg is None:
        call = reader.parents.get(parent)
        fits = isinstance(call, ast.Call) and (reader.expand(call.func) or "").startswith(callee)
        return "spread" if fits else ""
    taken = text_of(parent.slice) if isinstance(parent, ast.Subscript) and parent.value is node else None
    return "other" if taken is not None and taken != key else ""
