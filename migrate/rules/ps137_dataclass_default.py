"""PS137: an object of a dataclass as the default of a field."""

import ast
from collections.abc import Iterator

from ..reading.bindings import last_name
from ..reading.edits import Edit
from ..reading.nodes import inside, keyword_of
from ..rewriting.call_edits import source_of, truth
from ..rewriting.rule import Context, Fix, Repair, diff

_HASHED = {"frozen": True, "unsafe_hash": True, "eq": False}
"""With one of these a dataclass has a hash."""

_VALID_1 = """\
import torch
from dataclasses import dataclass, field

@dataclass(frozen=True)
class Size:
    side: int = 32

@dataclass
class Data:
    size: Size = Size()
    more: list = field(default_factory=list)

class Plain:
    data: Data = Data()
"""
_EXAMPLE_1 = diff("""\
import torch
-from dataclasses import dataclass
+from dataclasses import dataclass, field

@dataclass
class Data:
    size: int = 32

@dataclass
class Settings:
-    train: Data = Data()
-    test: Data = Data(size=64)
+    train: Data = field(default_factory=Data)
+    test: Data = field(default_factory=lambda: Data(size=64))
""")


class DataclassDefault(Repair):
    """What it does: makes a field's default anew for each object, where it is an object of another dataclass.

    Why: Python 3.11 and later refuse defaults that have no hash: "mutable default for field ... is not allowed".

    Example: `data: Data = Data()` becomes `data: Data = field(default_factory=Data)`.

    Fix safety: safe; the class cannot be made at all as it stands. Before Python 3.11 all objects shared the one default.
    """

    safety = "safe"
    VALID = (_VALID_1,)
    INVALID = (_EXAMPLE_1,)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        factory, added = _field(context)
        for owner in module.of_kind(ast.ClassDef):
            if _decorator(owner) is None:
                continue
            bound = {node.id for node in inside(owner, ast.Name) if isinstance(node.ctx, ast.Store)}
            for line in owner.body:
                if not isinstance(line, ast.AnnAssign) or not isinstance(line.value, ast.Call):
                    continue
                call = line.value
                found = module.find_callee(call.func)
                if found is None or not isinstance(found[1], ast.ClassDef) or not _has_no_hash(found[1]):
                    continue
                name = source_of(context, call.func)
                names = {node.id for node in inside(call, ast.Name)}
                edits = []
                if factory is not None and not names & bound:
                    made = name if not call.args and not call.keywords else f"lambda: {source_of(context, call)}"
                    edits = [*added, Edit(*context.positions.span(call), f"{factory}(default_factory={made})")]
                    added = []
                message = f"Python 3.11 refuses an object of {name} as a default; make one with default_factory"
                yield self.fix(context, call, message, edits)


def _decorator(owner: ast.ClassDef) -> ast.expr | None:
    for node in owner.decorator_list:
        if last_name(node.func if isinstance(node, ast.Call) else node) == "dataclass":
            return node
    return None


def _has_no_hash(owner: ast.ClassDef) -> bool:
    """Whether a class is a dataclass whose objects have no hash."""
    made = _decorator(owner)
    own = any(isinstance(node, ast.FunctionDef) and node.name == "__hash__" for node in owner.body)
    given = {name: keyword_of(made, name) for name in _HASHED} if isinstance(made, ast.Call) else {}
    hashed = any(item is not None and truth(item.value) is _HASHED[name] for name, item in given.items())
    return made is not None and not own and not hashed


def _field(context: Context) -> tuple[str | None, list[Edit]]:
    """What `dataclasses.field` is called in the file, and the edit that imports it where nothing does."""
    module = context.module
    for name, full in module.imports.items():
        if full in ("dataclasses.field", "dataclasses"):
            return (name if full == "dataclasses.field" else f"{name}.field"), []
    for node in module.of_kind(ast.ImportFrom):
        if node.module == "dataclasses" and node.names[-1].name != "*":
            taken = "field" in module.imports or any(item.id == "field" for item in inside(module.tree, ast.Name))
            end = context.positions.span(node.names[-1])[1]
            return (None, []) if taken else ("field", [Edit(end, end, ", field")])
    return None, []
