"""PS110: `Variable(x)`, which does nothing since torch 0.4."""

import ast
import re
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.names import has_fallback, importing, is_alone, mentions, remove_import
from ..reading.nodes import inside, keyword_of
from ..reading.scopes import Module, last_name
from ..reading.statements import block_of
from ..rewriting.call_edits import calls_of, source_of, truth
from ..rewriting.rule import Context, Fix, Repair, diff

_EXAMPLE_1 = diff("""\
import torch
-from torch.autograd import Variable

x = torch.ones(2)
-y = model(Variable(x.cuda()))  # Variable
+y = model(x.cuda())  # Variable
""")
_EXAMPLE_2 = diff("""\
import torch
-from torch.autograd import Function, Variable as V
+from torch.autograd import Function


+@torch.no_grad()
def validate(x, y):
-    x = V(x, volatile=True)
-    return model(x), V(-y)
+    return model(x), (-y)
""")


class Variable(Repair):
    """What it does: takes the tensor itself instead of wrapping it in a Variable, and the import with it when nothing else
    uses it.

    Why: tensors and variables have been one thing since torch 0.4; `volatile` is ignored today, and what it was for is
    `torch.no_grad()`.

    Example: `images = Variable(images)` goes, and `model(Variable(x))` becomes `model(x)`.

    Fix safety: safe for `Variable(x)`. `requires_grad=` stays, since it makes a new leaf. Where `volatile=True` stood,
    the function becomes `@torch.no_grad()` when it does not back-propagate and is no network's `forward`; otherwise a remark
    says that the graph of the gradient is built.
    """

    safety = "safe"
    VALID = ("import torch\n\n\ndef Variable(x):\n    return x\n\n\ny = Variable(torch.ones(2))\n",)
    INVALID = (_EXAMPLE_1, _EXAMPLE_2)

    def check(self, context: Context) -> Iterator[Fix]:
        replaced = 0
        calls = [call for call in calls_of(context, "torch.autograd.Variable") if _only_wraps(call)]
        for call in calls:
            replaced += 1
            volatile = keyword_of(call, "volatile")
            idle = _idle_else(context, call, calls)
            group = idle or _wrapped_together(context, call, calls)
            if group and call is not group[0]:
                continue  # its line goes with the first one's
            volatile = next((found for item in group if (found := keyword_of(item, "volatile")) is not None), volatile)
            edits = [_branch(context, call) if idle else _unwrapped(context, call, calls, together=bool(group))]
            message = "Variable(x) has been x itself since torch 0.4; leave Variable out"
            if volatile is not None and truth(volatile.value) is not False:
                quiet, more = _without_gradient(context, call, always=truth(volatile.value) is True)
                edits += more
                message += "; volatile has no effect, use torch.no_grad()"
                message += "" if quiet else ", which does not stand around this call"
            yield self.fix(context, call, message, edits)
        yield from self._unused(context, replaced)

    def _unused(self, context: Context, replaced: int) -> Iterator[Fix]:
        """The import, once nothing uses it: in the pass after the one that replaced the last use."""
        module = context.module
        for node, alias in importing(module, "torch.autograd.Variable"):
            name = alias.asname or alias.name
            was_used = _was_used(context)
            if (
                was_used
                and not replaced
                and not mentions(module, name)
                and not _is_exported(context, name)
                and not has_fallback(module, node)
            ):
                edit = remove_import(module, context.positions, node, alias)
                yield self.fix(context, node, "Variable is not used; leave the import out", [edit], severity="note")


def _only_wraps(call: ast.Call) -> bool:
    others = {item.arg for item in call.keywords} - {"volatile"}
    return len(call.args) == 1 and not isinstance(call.args[0], ast.Starred) and not others


def _wrapped_together(context: Context, call: ast.Call, calls: list[ast.Call]) -> list[ast.Call]:
    """The calls of `x, y = Variable(x), Variable(y)`, whose line says nothing without them; none for any other line."""
    value = context.module.parents[call]
    statement = context.module.parents[value]
    if not isinstance(value, ast.Tuple) or not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return []
    target = statement.targets[0]
    if not isinstance(target, ast.Tuple) or not all(isinstance(item, ast.Name) for item in target.elts):
        return []
    wrapped = [item for item in value.elts if isinstance(item, ast.Call) and item in calls]
    plain = [ast.unparse(item.args[0] if item in wrapped and isinstance(item, ast.Call) else item) for item in value.elts]
    return wrapped if plain == [ast.unparse(item) for item in target.elts] else []


def _says_nothing(statement: ast.AST, calls: list[ast.Call]) -> bool:
    """Whether a statement is `x = Variable(x)`, with one of the calls."""
    if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call) and statement.value in calls):
        return False
    inner = statement.value.args[0]
    return isinstance(inner, ast.Name) and [ast.unparse(target) for target in statement.targets] == [inner.id]


def _idle_else(context: Context, call: ast.Call, calls: list[ast.Call]) -> list[ast.Call]:
    """The calls of an `else:` that holds `x = Variable(x)` and no more, nor a comment; none for a call anywhere else."""
    module = context.module
    statement = module.parents[call]
    parent = module.parents[statement]
    block = parent.orelse if isinstance(parent, ast.If) and statement in parent.orelse else []
    if not block or not all(_says_nothing(item, calls) for item in block):
        return []
    found = [item.value for item in block if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call)]
    edit = _branch(context, found[0])
    text = context.positions.text[edit.start : edit.end]
    plain = len(found) == len(block) and "#" not in text and ";" not in text
    return found if plain and text.partition("\n")[0].strip() == "else:" else []


def _branch(context: Context, call: ast.Call) -> Edit:
    """The edit that takes out the `else:` of which a call is the first."""
    parent = context.module.parents[context.module.parents[call]]
    assert isinstance(parent, ast.If)
    starts, before = context.positions.starts, parent.body[-1]
    last = parent.orelse[-1]
    return Edit(starts[before.end_lineno or before.lineno], starts[last.end_lineno or last.lineno], "")


def _is_last_of_idle(module: Module, statement: ast.stmt, calls: list[ast.Call]) -> bool:
    block = block_of(module, statement)
    kept = isinstance(module.parents[statement], ast.Module)  # a file may be empty
    return not kept and block[-1] is statement and all(_says_nothing(item, calls) for item in block)


def _unwrapped(context: Context, call: ast.Call, calls: list[ast.Call], *, together: bool) -> Edit:
    """What was wrapped in place of the call; `x = Variable(x)` goes altogether, but for the last one of a block of nothing
    else, and so does `x, y = Variable(x), y`."""
    module, inner = context.module, call.args[0]
    statement = module.parents[module.parents[call]] if together else module.parents[call]
    if (
        isinstance(statement, ast.Assign)
        and (together or _says_nothing(statement, calls))
        and context.positions.starts_line(statement)
        and not is_alone(module, statement)
        and (together or not _is_last_of_idle(module, statement, calls))
    ):
        positions = context.positions
        end = positions.starts[statement.end_lineno or statement.lineno]
        if not positions.text[positions.span(statement)[1] : end].strip():
            return Edit(positions.starts[statement.lineno - 1], end, "")
    text = source_of(context, inner)
    simple = isinstance(inner, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant | ast.List)
    inside = isinstance(statement, ast.Assign | ast.Return | ast.keyword) or (
        isinstance(statement, ast.Call) and call in statement.args
    )
    several_lines = "\n" in text or "\r" in text
    return Edit(*context.positions.span(call), text if simple or (inside and not several_lines) else f"({text})")


def _without_gradient(context: Context, call: ast.Call, *, always: bool) -> tuple[bool, list[Edit]]:
    """Whether gradients are, or come to be, off around a call, with the decorator that does it where it can stand: not where
    they were off only sometimes (`volatile=not self.training`), and not in a network's `forward`, by which it is trained."""
    module = context.module
    blocks = [node for node in module.ancestors(call) if isinstance(node, ast.With)]
    if any("no_grad" in ast.unparse(item) for node in blocks for item in node.items):
        return True, []
    function = module.function_of(call)
    if function is None or module.imports.get("torch") != "torch":
        return False, []
    if any("no_grad" in ast.unparse(item) for item in function.decorator_list):
        return True, []
    if not always or function.name == "forward":
        return False, []
    calls = inside(function, ast.Call)
    if any(re.search(r"train|backward|grad|step|fit|main", last_name(item.func), re.I) for item in calls):
        return False, []
    return True, [context.positions.insert_before(function, "@torch.no_grad()")]


def _was_used(context: Context) -> bool:
    """Whether the file as it came called it: an import that nothing used is not ours to take out."""
    original = context.index.repository.modules.get(context.module.path)
    if original is None:  # it did not parse
        return "Variable" in (context.survey.file(context.module.path).text or "").replace("import Variable", "")
    return any(isinstance(node, ast.Name) for node in original.references.get("torch.autograd.Variable", []))


def _is_exported(context: Context, name: str) -> bool:
    """Whether other files may import the name from this one."""
    module, repository = context.module, context.index.repository
    for other in repository.modules.values():
        for star in other.star_imports:
            target = repository.module(star, other.path)
            if target is not None and target.path == module.path:
                return True
        if name in other.imports and repository.has_package(other.imports[name], other.path):
            return True
    return module.path.endswith("__init__.py")
