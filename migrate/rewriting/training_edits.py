"""Put one call of a training graph in the place of a loop's step: the construction before the loop, the call, and what goes."""

import ast
import copy
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..reading.edits import Edit, Positions
from ..reading.nodes import inside
from ..reading.scopes import Function, Module, dotted
from ..slicing.gradient_calls import binds_anew
from ..survey.loops import CallSite
from .graph_mode import check_name, import_edits
from .placement import RejectedError
from .rule import Context
from .training_loops import LoopStep, WholeStep, changing, read_step, whole_step
from .training_statements import is_view

_LINE = 120
_NAMES = ["train_step", "training_step", "headrace_step", *(f"train_step{number}" for number in range(2, 100))]


@dataclass(frozen=True)
class TrainingCall:
    """One eager training call: its step, its update where that is part of the step, and the edits, or why there are none."""

    site: CallSite
    step: LoopStep | None = None
    whole: WholeStep | None = None
    edits: Sequence[Edit] = ()
    rejected: str | None = None


def training_calls(context: Context) -> Iterator[TrainingCall]:
    """The eager training calls of a file."""
    for site in context.sites:
        if site.fact.kind != "train" or site.captured or not site.trained_here:
            continue
        try:
            step = read_step(site, context.sites)
            whole = whole_step(step)
            yield TrainingCall(site, step, whole, step_edits(context, step, whole))
        except RejectedError as reason:
            yield TrainingCall(site, rejected=str(reason))


def step_edits(context: Context, step: LoopStep, whole: WholeStep | None, further: Sequence[str] = ()) -> list[Edit]:
    """The edits that put a training graph in the place of a step; `further` are options of it. Raises RejectedError."""
    module, positions = context.module, context.positions
    check_name(module)
    if not positions.starts_line(step.construct_at):
        raise RejectedError("the loop shares its line with another statement")
    criterion, arguments = _criterion(context, step)
    options = [*_options(step, whole), *further]
    name = _free_name(module)
    model = step.site.fact.model
    parts = [model, criterion, step.optimizer, *options]
    made = _construction(positions, step.construct_at, name, parts)
    _check_invariant(step, parts)
    outputs = step.outputs or ("_" if not _reads_underscore(module, step) else None)
    call = f"{name}({', '.join([_source(context, step.site.call.args[0]), *arguments])})"
    loss = step.backward[0].loss
    texts = [f"{loss}, {outputs} = {call}" if outputs is not None else f"{loss} = {call}[0]"]
    if step.view is not None and _read_elsewhere(module, step):
        texts.append(f"{outputs} = {ast.unparse(step.view)}")
    gone = [*(whole.gone if whole is not None else _backwards(step))]
    gone += [item for item in (step.forward, step.loss, step.division) if item is not None and item is not step.call_at]
    edits = [] if step.condition is not None else [positions.insert_before(step.construct_at, made)]
    start, end = positions.span(step.call_at)
    # Gradients are dropped before the step, not in its middle.
    early = [item for item in step.after if whole is None and any(item is zero for zero in step.zero_grads)]
    gone += [item for item in early if not any(item is one for one in gone)]
    if step.condition is not None:
        # The graph too is made only there: an optimizer may well be None where nothing trains.
        made = _construction(positions, step.call_at, name, parts, deeper=True)
        text = _either(context, step, step.condition, [made, *(_source(context, item) for item in early), *texts])
    else:
        text = (positions.newline(step.call_at.lineno) + positions.indent(step.call_at.lineno)).join(texts)
        edits += [positions.insert_before(step.cast or step.call_at, _source(context, item)) for item in early]
    edits.append(Edit(start, end, text))
    unique = list({id(item): item for item in gone}.values())
    _check_removable(positions, [*unique, step.call_at], step.call_at)
    return [*edits, *_removals(positions, unique), *import_edits(context)]


def _criterion(context: Context, step: LoopStep) -> tuple[str, list[str]]:
    """The criterion as it is handed over, and what the call hands to it beside the outputs."""
    value, names = step.value, changing(step.loop)
    outputs = step.outputs
    direct = isinstance(value, ast.Call) and bool(value.args) and not value.keywords and step.division is None
    if direct and isinstance(value, ast.Call):
        first, callee = value.args[0], dotted(value.func)
        is_outputs = first is step.site.call or (outputs is not None and dotted(first) == outputs)
        rest = value.args[1:]
        plain = not any(isinstance(item, ast.Starred) for item in rest) and all(_mentions(item, names) for item in rest)
        if is_outputs and callee is not None and plain and not any(_mentions(item, [outputs]) for item in rest):
            return callee, [_source(context, item) for item in rest]
    if isinstance(step.loop, Function):  # which of its parameters are tensors, nothing says
        if direct and isinstance(value, ast.Call) and (viewed := _of_a_view(step, value)) is not None:
            return viewed
        raise RejectedError("the loss is more than a call of the criterion, in a function of one batch")
    body = copy.deepcopy(value) if step.loss is not step.forward else _with_outputs(value, step.site.call)
    name = outputs or "outputs"
    free = list(dict.fromkeys(node.id for node in inside(body, ast.Name)))
    inputs = [item for item in free if item in names and item != name]
    if any(
        isinstance(node, ast.Lambda | ast.ListComp | ast.GeneratorExp | ast.NamedExpr | ast.Await) for node in ast.walk(body)
    ):
        raise RejectedError("the loss is computed by more than one plain expression")
    called = {node.func.id for node in inside(body, ast.Call) if isinstance(node.func, ast.Name)}
    if called & set(inputs):
        raise RejectedError("the loop makes its criterion anew in each round")
    if (moving := _moving_attribute(context.module, body)) is not None:
        raise RejectedError(f"the loss reads {moving}, which this file changes; a captured step would keep the value it saw")
    text = _body_text(context, step, body)
    if step.division is not None and step.divisor is not None:
        if isinstance(value, ast.BinOp | ast.IfExp):
            text = f"({text})"
        text = f"{text} / {_bracketed(_source(context, step.divisor), step.divisor)}"
    return f"lambda {', '.join([name, *inputs])}: {text}", inputs


def _of_a_view(step: LoopStep, value: ast.Call) -> tuple[str, list[str]] | None:
    """The criterion and what it takes beside the outputs where it is called with a view of these and plain names."""
    name, callee, rest = step.outputs or "outputs", dotted(value.func), value.args[1:]
    first = _with_outputs(value.args[0], step.site.call)
    given = [item.id for item in rest if isinstance(item, ast.Name)]
    others = {node.id for node in inside(first, ast.Name)} - {name, *step.site.module.imports}
    if callee is None or others or len({name, callee.partition(".")[0], *given}) < len(rest) + 2:
        return None
    if not is_view(step.site.module, first, {name}, changing(step.loop)):
        return None
    return f"lambda {', '.join([name, *given])}: {callee}({', '.join([ast.unparse(first), *given])})", given


def _options(step: LoopStep, whole: WholeStep | None) -> list[str]:
    given = [f"{name}={ast.unparse(value)}" for name, value in whole.clipping] if whole is not None else ["update=False"]
    first = step.backward[0]
    if first.divide is not None:
        given.append(f"divide={ast.unparse(first.divide)}")
    scaler = next((item.scaler for item in step.backward if item.scaler is not None), None)
    if scaler is not None and step.branch is None:
        given.append(f"grad_scaler={scaler}")
    elif scaler is not None and step.branch is not None:
        scaled = next(item for item in step.backward if item.scaler is not None)
        positive = any(item is scaled.statement for item in step.branch.body)
        test = ast.unparse(step.branch.test)
        if positive and test in (scaler, f"{scaler} is not None"):
            given.append(f"grad_scaler={scaler}")
        elif positive:
            given.append(f"grad_scaler={scaler} if {test} else None")
        elif test in (f"not {scaler}", f"{scaler} is None"):
            given.append(f"grad_scaler={scaler}")
        else:
            given.append(f"grad_scaler=None if {test} else {scaler}")
    return given


def _check_invariant(step: LoopStep, texts: Sequence[str]) -> None:
    """Raise RejectedError where what the construction reads changes in the loop, so that it may not stand before the loop."""
    names = set() if isinstance(step.loop, Function) else changing(step.loop)
    for text in texts:
        node = ast.parse(
            text.partition("=")[2] if text.split("=")[0].isidentifier() and "=" in text else text, mode="eval"
        ).body
        own = {item.arg for part in inside(node, ast.Lambda) for item in part.args.args}
        for part in ast.walk(node):
            if isinstance(part, ast.Name | ast.Attribute) and (name := dotted(part)) in names and name not in own:
                raise RejectedError(f"{name} changes from one round of the loop to the next")
    read = {name for text in texts for name in re.findall(r"[\w.]+", text)}
    if not isinstance(step.loop, Function) and (again := binds_anew(step.site.module, step.site.function, step.loop, read)):
        raise RejectedError(f"{again} is bound anew by a function that the loop calls")


def _construction(positions: Positions, place: ast.stmt, name: str, parts: Sequence[str], *, deeper: bool = False) -> str:
    indent, newline = positions.indent(place.lineno), positions.newline(place.lineno)
    if deeper:
        indent += "\t" if "\t" in indent else "    "
    line = f"{name} = headrace.training_step({', '.join(parts)})"
    if len(indent) + len(line) <= _LINE:
        return line
    inner = indent + ("\t" if "\t" in indent else "    ")
    together = ", ".join(parts)
    if len(inner) + len(together) > _LINE:
        together = f",{newline}{inner}".join(parts) + ","
    return f"{name} = headrace.training_step({newline}{inner}{together}{newline}{indent})"


def _free_name(module: Module) -> str:
    return next(name for name in _NAMES if name not in module.words)


def _either(context: Context, step: LoopStep, condition: ast.If, trains: Sequence[str]) -> str:
    """The step where the condition holds, and what stood there where it does not."""
    positions = context.positions
    line = step.call_at.lineno
    indent, newline = positions.indent(line), positions.newline(line)
    inner = indent + ("\t" if "\t" in indent else "    ")
    kept = [item for item in (step.forward, step.loss, step.division) if item is not None]
    unique = list({id(item): item for item in kept}.values())
    lines = [f"if {_source(context, condition.test)}:", *(inner + item for item in trains)]
    lines += [f"{indent}else:", *(inner + _source(context, item) for item in unique)]
    return newline.join([lines[0], *lines[1:]])


def _backwards(step: LoopStep) -> Sequence[ast.stmt]:
    if step.condition is not None:
        zero = [item for item in step.condition.body if any(item is one for one in step.zero_grads)]
        goes = [step.backward[0].statement, *(item for item in zero if item.lineno < step.backward[0].statement.lineno)]
        if len(goes) < len(step.condition.body):
            return [step.backward[0].statement]
        if step.condition.orelse:
            raise RejectedError("backward() is all that its branch does")
        return [step.condition]
    if step.branch is not None and len(step.branch.body) == len(step.branch.orelse) == 1:
        return [step.branch]
    return [item.statement for item in step.backward]


def _check_removable(positions: Positions, statements: Iterable[ast.stmt], replaced: ast.stmt) -> None:
    for item in statements:
        assert item.end_lineno is not None
        rest = _behind(positions, item).strip()
        if not positions.starts_line(item) or (rest and not rest.startswith("#")):
            raise RejectedError("several statements of the step share a line")
        if any("#" in positions.lines[line - 1] for line in range(item.lineno, item.end_lineno)):
            raise RejectedError("a statement of the step has a comment inside, which would be lost")
        if item is not replaced and positions.lines[item.lineno - 2 : item.lineno - 1] and positions.continues(item.lineno - 1):
            raise RejectedError("several statements of the step share a line")


def _behind(positions: Positions, item: ast.stmt) -> str:
    """What stands behind a statement on its last line, without the semicolon that ends it where one does."""
    assert item.end_lineno is not None
    rest = positions.lines[item.end_lineno - 1].encode()[item.end_col_offset :].decode()
    return re.sub(r"^[ \t]*;", "", rest)


def _removals(positions: Positions, statements: Iterable[ast.stmt]) -> list[Edit]:
    """Take whole lines out; a comment behind a statement stays where it was, on a line of its own, and of two blank lines that
    come together one goes."""
    left: dict[int, str] = {}
    for item in statements:
        assert item.end_lineno is not None
        for line in range(item.lineno, item.end_lineno + 1):
            left[line] = ""
        rest = _behind(positions, item)
        if rest.strip():
            left[item.end_lineno] = positions.indent(item.lineno) + rest.lstrip(" \t")
    edits = []
    for line in sorted(left):
        end = line
        if line + 1 not in left and not any(left.get(one) for one in _run(left, line)):
            first = _run(left, line)[0]
            if _blank(positions, first - 1) and _blank(positions, line + 1):
                end = line + 1
        edits.append(Edit(positions.starts[line - 1], positions.starts[end], left[line]))
    return edits


def _run(left: dict[int, str], line: int) -> list[int]:
    first = line
    while first - 1 in left:
        first -= 1
    return list(range(first, line + 1))


def _blank(positions: Positions, line: int) -> bool:
    return 1 <= line <= len(positions.lines) and not positions.lines[line - 1].strip()


def _with_outputs(value: ast.expr, call: ast.Call) -> ast.expr:
    """The loss with the model's call in it replaced by the name of its outputs."""

    class Replace(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            return ast.Name("outputs", ast.Load()) if node is call else self.generic_visit(node)

    outer = ast.Expression(value)
    changed = Replace().visit(copy.deepcopy(outer, {id(call): call}))  # a copy that still holds the call itself
    return ast.fix_missing_locations(changed).body  # type: ignore[no-any-return]


def _body_text(context: Context, step: LoopStep, body: ast.expr) -> str:
    value = step.loss.value
    if step.loss is step.forward or step.value is not value or value.lineno != value.end_lineno:
        return ast.unparse(body)
    return _source(context, value)


def _bracketed(text: str, node: ast.expr) -> str:
    return text if isinstance(node, ast.Name | ast.Attribute | ast.Constant | ast.Call | ast.Subscript) else f"({text})"


def _source(context: Context, node: ast.expr | ast.stmt) -> str:
    positions = context.positions
    if node.lineno != node.end_lineno:
        return ast.unparse(node)
    start, end = positions.span(node)
    text = context.module.file.text
    assert text is not None
    return text[start:end]


def _mentions(node: ast.expr, names: Container[str | None]) -> bool:
    return any(inner.id in names for inner in inside(node, ast.Name))


def _reads_underscore(module: Module, step: LoopStep) -> bool:
    scope: ast.AST = step.site.function or module.tree
    return "_" in module.imports or any(node.id == "_" and isinstance(node.ctx, ast.Load) for node in inside(scope, ast.Name))


def _read_elsewhere(module: Module, step: LoopStep) -> bool:
    """Whether more than the loss reads what has the name of the outputs."""
    scope: ast.AST = step.site.function or module.tree
    return any(
        node.id == step.outputs
        and isinstance(node.ctx, ast.Load)
        and module.statement_of(node) not in (step.loss, step.forward)
        for node in inside(scope, ast.Name)
    )


def _moving_attribute(module: Module, body: ast.expr) -> str | None:
    """An attribute that the loss reads, and that this file assigns outside of constructors."""
    called = [node.func for node in inside(body, ast.Call)]
    read = {node.attr: node for node in inside(body, ast.Attribute) if node not in called}
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in read:
            function = module.function_of(node)
            if function is None or function.name != "__init__":
                return ast.unparse(read[node.attr])
    return None
