"""How a script's processes are started, and the edits by which torchrun starts them."""

import ast
from collections.abc import Iterator

from ...reading.edits import Edit
from ...reading.names import import_line, is_alone
from ...reading.nodes import arguments_of, keyword_of, text_of
from ...reading.scopes import Function, Module, dotted, last_name
from ..placement import RejectedError
from ..rule import Context
from .flows import is_spawn

_INIT = "torch.distributed.init_process_group"
_ADDRESS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK")
_LOCAL_RANK = ("--local_rank", "--local-rank")
RANKS = "headrace.parallel.world_size()"
_OWN = 'int(os.environ["LOCAL_RANK"])'


def launch_edits(context: Context) -> list[Edit]:
    """The edits that leave rendezvous, ranks and their number to torchrun.

    Raises RejectedError where a script is started in a way that was not understood.
    """
    module = context.module
    edits = [*_groups(context), *_addresses(context), *_options(context)]
    spawns = [call for call in module.calls if is_spawn(module, call)]
    if len(spawns) > 1:
        raise RejectedError(f"processes are spawned in two places, lines {spawns[0].lineno} and {spawns[1].lineno}")
    for call in spawns:
        edits += _spawn(context, call)
    if any("os.environ" in edit.text for edit in edits) and not imported_at_top(module, "os"):
        if "os" in module.words and module.imports.get("os") != "os":
            raise RejectedError("the file uses the name os for something else")
        found = import_line(module, context.positions, "import os")
        edits += [found] if found is not None else []
    return edits


def imported_at_top(module: Module, name: str) -> bool:
    """Whether `import name` stands at the top of a file."""
    plain = [item for item in module.tree.body if isinstance(item, ast.Import)]
    return any(alias.name == name and alias.asname is None for item in plain for alias in item.names)


def _groups(context: Context) -> Iterator[Edit]:
    """The process group is that of the environment, as torchrun sets it."""
    module = context.module
    known = [
        (where, call)
        for where, call in context.index.calls.by_name.get("init_process_group", [])
        if where.expand(call.func) == _INIT
    ]
    if not known:
        raise RejectedError("nothing in the repository calls torch.distributed.init_process_group")
    for where, call in known:
        method = keyword_of(call, "init_method") or (call.args[1] if len(call.args) > 1 else None)
        value = method.value if isinstance(method, ast.keyword) else method
        if len(call.args) > 2 or keyword_of(call, "store") is not None:
            raise RejectedError(f"init_process_group ({where.path}:{call.lineno}) is not told to take torchrun's environment")
        if value is None or text_of(value) == "env://":
            continue
        if where is not module:
            raise RejectedError(
                f"init_process_group ({where.path}:{call.lineno}) is told another init_method than env://, torchrun's"
            )
        start, end = context.positions.span(value)
        yield Edit(start, end, '"env://"')


def _addresses(context: Context) -> Iterator[Edit]:
    """Assignments to what torchrun sets are left out."""
    module, positions = context.module, context.positions
    for node in module.of_kind(ast.Assign):
        targets = [target for target in node.targets if _is_environment(module, target)]
        if not targets:
            continue
        if len(node.targets) > 1 or not positions.starts_line(node):
            raise RejectedError(f"line {node.lineno} sets what torchrun sets, beside something else")
        start, end = positions.span(node)
        after = positions.starts[node.end_lineno or node.lineno]
        if is_alone(module, node) or _all_go(module, node) or positions.text[end:after].strip():
            yield Edit(start, end, "pass")
        else:
            yield Edit(positions.starts[node.lineno - 1], after, "")
    for call in module.calls:
        name = last_name(call.func)
        told = [text_of(value) for value in arguments_of(call)]
        within = [key.value for value in arguments_of(call) if isinstance(value, ast.Dict) for key in value.keys
                  if isinstance(key, ast.Constant)]  # fmt: skip
        keywords = [item.arg for item in call.keywords]
        if name in ("update", "putenv") and {*told, *within, *keywords} & {"MASTER_ADDR", "MASTER_PORT"}:
            raise RejectedError(f"line {call.lineno} sets where the processes meet, which torchrun does")


def _is_environment(module: Module, target: ast.expr) -> bool:
    return (
        isinstance(target, ast.Subscript)
        and module.expand(target.value) == "os.environ"
        and text_of(target.slice) in _ADDRESS
    )  # fmt: skip


def _all_go(module: Module, statement: ast.stmt) -> bool:
    """Whether a block holds nothing but such assignments, and this is the first."""
    parent = module.parents[statement]
    block: list[ast.stmt] = next(
        (item for name in ("body", "orelse", "finalbody") if statement in (item := getattr(parent, name, []))), []
    )
    return not isinstance(parent, ast.Module) and block[0] is statement and all(
        isinstance(item, ast.Assign) and any(_is_environment(module, target) for target in item.targets) for item in block
    )  # fmt: skip


def _options(context: Context) -> Iterator[Edit]:
    """`--local_rank`, which torch.distributed.launch gives and torchrun does not, is by default what torchrun says."""
    module, positions = context.module, context.positions
    for call in module.calls:
        if last_name(call.func) != "add_argument" or not any(text_of(item) in _LOCAL_RANK for item in call.args):
            continue
        default, required = keyword_of(call, "default"), keyword_of(call, "required")
        if required is not None:
            raise RejectedError(f"line {call.lineno} requires the option {text_of(call.args[0])}, which torchrun does not give")
        if default is None:
            end = positions.span(call)[1] - 1
            yield Edit(end, end, ', default=int(os.environ.get("LOCAL_RANK", 0))')
        elif not any("LOCAL_RANK" in str(text_of(node)) for node in ast.walk(default.value)):
            start, end = positions.span(default.value)
            yield Edit(start, end, f'int(os.environ.get("LOCAL_RANK", {positions.text[start:end]}))')


def _spawn(context: Context, call: ast.Call) -> Iterator[Edit]:
    """`mp.spawn(main, args=(a, b), nprocs=n)` becomes `main(int(os.environ["LOCAL_RANK"]), a, b)`."""
    module, positions = context.module, context.positions
    statement = module.statement_of(call)
    where = f"mp.spawn (line {call.lineno})"
    if not isinstance(statement, ast.Expr) or statement.value is not call or not positions.starts_line(statement):
        raise RejectedError(f"{where} is more than a statement of its own")
    values = [keyword_of(call, name) for name in ("args", "nprocs")]
    given = [item.value if item is not None else None for item in values]
    given = [own or (call.args[at] if len(call.args) > at else None) for at, own in enumerate(given, start=1)]
    arguments, count = given
    started = module.find_callee(call.args[0]) if call.args else None
    if started is None or not isinstance(started[1], Function) or count is None:
        raise RejectedError(f"{where} starts no function of this repository so many times")
    if arguments is not None and not isinstance(arguments, ast.Tuple | ast.List):
        raise RejectedError(f"{where} does not write out the arguments that it hands over")
    if len(call.args) > 3 or {item.arg for item in call.keywords} - {"fn", "args", "nprocs", "join", "daemon"}:
        raise RejectedError(f"{where} asks for more than to start the processes and to wait for them")
    join = keyword_of(call, "join")
    if join is not None and not (isinstance(join.value, ast.Constant) and join.value.value is True):
        raise RejectedError(f"{where} does not wait for the processes")
    texts = [_OWN]
    for item in arguments.elts if arguments is not None else ():
        same = ast.unparse(item) == ast.unparse(count)
        if same and isinstance(count, ast.Constant):
            raise RejectedError(
                f"{where}: whether {ast.unparse(item)} among the arguments is the number of processes is not clear"
            )
        start, end = positions.span(item)
        texts.append(RANKS if same else positions.text[start:end])
    name = dotted(count)
    text = f"{dotted(call.args[0])}({', '.join(texts)})"
    if name is not None:
        function = module.function_of(call)
        if "." not in name and function is not None and name not in module.names_of(function):
            raise RejectedError(f"{where} starts as many processes as the global {name} says, which torchrun decides now")
        newline, indent = positions.newline(statement.lineno), positions.indent(statement.lineno)
        text = f"{name} = {RANKS}{newline}{indent}{text.replace(RANKS, name)}"
    start, end = positions.span(statement)
    yield Edit(start, end, text)
