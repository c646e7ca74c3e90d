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
    for name, table, entry in _tables(module, key):
        purposes = _purposes(module, name, key, callee)
        if purposes and all(purposes) and "spread" in purposes:
            yield table, entry


def spread_with(module: Module, key: str, callee: str) -> Iterator[ast.keyword]:
    """Where a file spreads such a table, of its own or of another file, into a call of `callee...`, and the key has to stay in
    it, because something else reads that."""
    for call in module.calls:
        for given in call.keywords if (module.expand(call.func) or "").startswith(callee) else ():
            if given.arg is None and (found := _table_of(module, given.value)) is not None:
                owner, name = found
                with_key = any(table == name for table, *_ in _tables(owner, key))
                if with_key and not all(_purposes(owner, name, key, callee)):
                    yield given


def _table_of(module: Module, read: ast.expr) -> tuple[Module, str] | None:
    """The file, and the name there, of a table that is read: `conf.SCHEDULER`, `SCHEDULER`."""
    text = dotted(read)
    if text is None:
        return None
    root, _, rest = text.partition(".")
    known = module.imports.get(root)
    if known is None:
        return (module, text) if not rest else None
    of, _, name = f"{known}.{rest}".rstrip(".").rpartition(".")
    owner = module.repository.module(of, module.path) if of else None
    return (owner, name) if owner is not None else None


def _tables(module: Module, key: str) -> Iterator[tuple[str, ast.Dict, ast.expr]]:
    """The tables of a file that are bound to a name and have the key."""
    for assigned in module.of_kind(ast.Assign):
        target, table = assigned.targets[0], assigned.value
        if isinstance(target, ast.Name) and len(assigned.targets) == 1 and isinstance(table, ast.Dict):
            entry = next((item for item in table.keys if item is not None and text_of(item) == key), None)
            if entry is not None:
                yield target.id, table, entry


def _purposes(owner: Module, name: str, key: str, callee: str) -> list[str]:
    """What all files read a table for."""
    readers = [owner, *_others(owner)]
    return [_purpose(reader, node, key, callee) for reader in readers for node in _reads(reader, owner, name)]


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
    for part in reader.of_kind(ast.Attribute):
        root, _, rest = (dotted(part) or "").partition(".")
        known = reader.imports.get(root)
        if part.attr == name and known is not None and _means(reader, owner, f"{known}.{rest}", name):
            yield part


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
