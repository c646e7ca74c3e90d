"""What a script of one process takes to run on several ranks: its GPU is that of the rank, and rank 0 alone writes files."""

import ast
from collections.abc import Iterator

from ...reading.edits import Edit
from ...reading.names import meaning
from ...reading.nodes import is_docstring, keyword_of, text_of
from ...reading.scopes import Definition, last_name
from ..placement import RejectedError
from ..rule import Context
from .launch import RANKS, imported_at_top
from .uses import Wrapped

_WRITES = frozenset(
    [
        "torch.save", "os.mkdir", "os.makedirs", "os.remove", "os.rename", "shutil.copy", "shutil.copyfile", "shutil.copy2",
        "shutil.rmtree", "shutil.move", "numpy.save", "numpy.savez", "numpy.savetxt", "matplotlib.pyplot.savefig",
    ]
)  # fmt: skip
_WRITERS = ("torch.utils.tensorboard", "tensorboardX", "wandb", "mlflow", "logging.FileHandler")
_COUNT = "torch.cuda.device_count"


def one_process_edits(context: Context, wrapped: Wrapped) -> list[Edit]:
    """Raises RejectedError where the script names a GPU by its number, or writes files in a way that was not understood."""
    _check_devices(context)
    return [*_condition(context, wrapped), *_first(context, wrapped), *_writes(context)]


def _condition(context: Context, wrapped: Wrapped) -> Iterator[Edit]:
    """Whether there are several GPUs is whether there are several ranks."""
    module = context.module
    for node in module.ancestors(wrapped.statement):
        if isinstance(node, Definition):
            return
        for call in ast.walk(node.test) if isinstance(node, ast.If) else ():
            if isinstance(call, ast.Call) and meaning(module, call.func) == _COUNT and not call.args:
                yield Edit(*context.positions.span(call), RANKS)


def _first(context: Context, wrapped: Wrapped) -> Iterator[Edit]:
    """The rank has its GPU before anything is put on one, and loads what the others load."""
    module = context.module
    function = module.function_of(wrapped.statement)
    body = function.body if function is not None else module.tree.body
    plain = [
        item for item in body
        if not is_docstring(item) and not isinstance(item, ast.Import | ast.ImportFrom | Definition)
    ]  # fmt: skip
    text = 'headrace.parallel.same_start("cuda" if torch.cuda.is_available() else "cpu")'
    if not imported_at_top(module, "torch"):
        raise RejectedError("the file does not import torch by its name")
    if not plain or not context.positions.starts_line(plain[0]):
        raise RejectedError("several statements share the first line of the code that wraps the model")
    yield context.positions.insert_before(plain[0], text)


def _check_devices(context: Context) -> None:
    module = context.module
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("cuda:"):
            raise RejectedError(f"line {node.lineno} names one GPU, {node.value}, and each rank has another")
        if not isinstance(node, ast.Call):
            continue
        chosen = isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and node.args
        if chosen or meaning(module, node.func) == "torch.cuda.set_device":
            raise RejectedError(f"line {node.lineno} chooses a GPU, and each rank has its own")


def _writes(context: Context) -> Iterator[Edit]:
    """What writes files is done by rank 0."""
    module, positions = context.module, context.positions
    for name in {*module.imports.values()}:
        if name.startswith(_WRITERS):
            raise RejectedError(f"it writes by {name}, which each rank would do")
    imported = [found for name in module.imports.values() if (found := module.source_of(name)) is not None]
    for other in imported:
        for call in other.calls:
            if other is not module and meaning(other, call.func) in _WRITES:
                raise RejectedError(f"{other.path}:{call.lineno} writes files, which each rank would do")
    for call in module.calls:
        opened = isinstance(call.func, ast.Name) and call.func.id == "open"
        mode = keyword_of(call, "mode") if opened else None
        how = text_of(mode.value if mode is not None else call.args[1] if len(call.args) > 1 else None) if opened else None
        if opened and set(how or "") & set("wax+"):
            raise RejectedError(f"line {call.lineno} opens a file to write, which each rank would do")
        if meaning(module, call.func) not in _WRITES:
            continue
        statement = module.statement_of(call)
        if not isinstance(statement, ast.Expr) or statement.value is not call or not positions.starts_line(statement):
            raise RejectedError(f"line {call.lineno} calls {last_name(call.func)}, which each rank would do")
        indent, newline = positions.indent(statement.lineno), positions.newline(statement.lineno)
        deeper = indent + ("\t" if "\t" in indent else "    ")
        begin = positions.span(statement)[0]
        yield Edit(begin, begin, f"if headrace.parallel.rank() == 0:{newline}{deeper}")
