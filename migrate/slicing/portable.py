"""Make a slice portable: it runs alone, without a GPU, and imports what the script imports.

Only slices are treated so, never the user's files.
"""

import ast
import copy
import keyword
import posixpath
import re
from collections.abc import Iterable

from ..reading.nodes import inside, is_future_import, text_of
from ..reading.scopes import Module, Repository, bound_names, dotted, last_name
from .side_effects import MUTATING_METHODS

_CUDA = re.compile(r"^(cuda|mps|xpu)(:\d+)?$|^cuda:\{\}$|^cuda:%[ds]$")
_DEVICE = re.compile(r"^(cuda|mps|xpu):(%[ds])?$")
_DROPPED = ("torch.cuda.", "torch.distributed.", "torch.multiprocessing.", "torch.backends.", "matplotlib.", "wandb.")
_ALONE = {
    "torch.distributed.get_rank": 0,
    "torch.distributed.get_world_size": 1,
    "torch.distributed.is_initialized": False,
    "torch.distributed.is_available": False,
}
LIGHTNING = ("pytorch_lightning", "lightning")
_WRAPPERS = frozenset(["DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP"])


class CpuOnly(ast.NodeTransformer):
    """Devices become the CPU, loads map to it, distributed wrappers become DataParallel, which keeps their `module.`."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.needs_torch = False

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        expanded = (self.module.expand(node.value.func) or "") if isinstance(node.value, ast.Call) else ""
        if expanded.startswith(_DROPPED) or expanded in ("print", "breakpoint", "input"):
            assert isinstance(node.value, ast.Call)
            for value in node.value.args:  # print(model.load_state_dict(weights)) is there for the inner call
                if isinstance(value, ast.Call) and MUTATING_METHODS.search(last_name(value.func)):
                    return self.generic_visit(ast.copy_location(ast.Expr(value), node))
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = last_name(node.func)
        if isinstance(node.func, ast.Attribute) and name == "cuda" and self._is_object(node.func.value):
            return node.func.value
        expanded = self.module.expand(node.func) or ""
        if name == "seed_everything" and expanded.startswith(LIGHTNING) and node.args:
            self.needs_torch = True
            seed = ast.Attribute(ast.Name("torch", ast.Load()), "manual_seed", ast.Load())
            return ast.copy_location(ast.Call(seed, node.args[:1], []), node)
        if expanded in _ALONE:
            return ast.copy_location(ast.Constant(_ALONE[expanded]), node)
        if expanded == "torch.load":
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "map_location"]
            node.keywords.insert(0, ast.keyword("map_location", ast.Constant("cpu")))
            node.args = node.args[:1]
        elif expanded == "torch.device" and node.args and not isinstance(node.args[0], ast.Constant):
            if _mentions_cuda(node.args[0]):
                node.args = [ast.Constant("cpu")]
        elif name in _WRAPPERS and (node.args or node.keywords):
            self.needs_torch = True
            parallel = ast.Attribute(ast.Attribute(ast.Name("torch", ast.Load()), "nn", ast.Load()), "DataParallel", ast.Load())
            wrapped = node.args[0] if node.args else node.keywords[0].value
            return ast.copy_location(ast.Call(parallel, [wrapped], []), node)
        return node

    def _is_object(self, node: ast.expr) -> bool:
        root = dotted(node)
        return root is None or root.partition(".")[0] not in self.module.imports

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        # torch.cuda.FloatTensor and its like are types of a GPU's tensors
        of_cuda = node.attr.endswith("Tensor") and (self.module.expand(node) or "").startswith("torch.cuda.")
        if of_cuda and isinstance(node.value, ast.Attribute):
            node.value = node.value.value
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        return node  # `device == "cuda"` must stay the question that it is

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and _CUDA.match(node.value):
            return ast.copy_location(ast.Constant("cpu"), node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        # "cuda:%d" % index, "cuda:" + str(index): the index has no place behind "cpu"
        if isinstance(node.op, ast.Mod | ast.Add) and _starts_a_device(node.left):
            return ast.copy_location(ast.Constant("cpu"), node)
        return self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return ast.copy_location(ast.Constant("cpu"), node) if node.values and _starts_a_device(node.values[0]) else node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        # `"cuda" if torch.cuda.is_available() else "cpu"` is harmless and says what the author meant
        if isinstance(node.body, ast.Constant) and isinstance(node.orelse, ast.Constant):
            return node
        return self.generic_visit(node)


def _starts_a_device(node: ast.expr) -> bool:
    return bool(_DEVICE.match(text_of(node) or ""))


def _mentions_cuda(node: ast.AST) -> bool:
    return any("cuda" in (text_of(inner) or "") for inner in inside(node, ast.Constant))


class _Imports(ast.NodeTransformer):
    """Relative imports become absolute, as seen from the folder that stands first on the path.

    No statement imports from a folder called `Machine Learning` or `01-basics`: what lies in one is seen from there.
    """

    def __init__(self, module: Module, folder: str) -> None:
        self.module = module
        self.folder = folder
        self.outside: dict[str, None] = {}
        """The other folders from which something is seen, "" for the repository itself."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if not node.level:
            if (node.module or "").startswith(LIGHTNING):  # seeding is torch's own here
                node.names = [alias for alias in node.names if alias.name != "seed_everything"]
            return node if node.names else ast.copy_location(ast.Pass(), node)
        folder = posixpath.dirname(self.module.path).split("/")
        within = [part for part in folder[: len(folder) - node.level + 1] if part]
        unnamed = [index for index, part in enumerate(within) if not part.isidentifier() or keyword.iskeyword(part)]
        start = max(unnamed, default=-1) + 1
        name = [*within, *(node.module.split(".") if node.module else ())]
        own = [part for part in self.folder.split("/") if part]
        if name[: len(own)] == own and start <= len(own) < len(name):
            start = len(own)
        elif within[:start] != own:  # else it lies beside the script
            self.outside["/".join(within[:start])] = None
        made: ast.stmt = ast.ImportFrom(".".join(name[start:]), node.names, 0)
        if start == len(name):  # `from . import config`
            made = ast.Import(node.names)
        return ast.copy_location(made, node)


def _is_idle_import(statement: ast.stmt, program: Iterable[ast.stmt]) -> bool:
    """An import of Lightning that nothing reads any more."""
    if not isinstance(statement, ast.Import) or not all(alias.name.startswith(LIGHTNING) for alias in statement.names):
        return False
    read = {node.id for item in program for node in inside(item, ast.Name)}
    return not any((alias.asname or alias.name.partition(".")[0]) in read for alias in statement.names)


def make_portable(body: Iterable[ast.stmt], module: Module, folder: str, wrapped_from: Repository) -> ast.Module:
    """The statements, which come from `module`, as a module that runs alone with `folder` first on the import path."""
    statements: list[ast.stmt] = []
    needs_torch, outside = False, dict[str, None]()
    for statement in body:
        origin = wrapped_from.modules.get(getattr(statement, "path", module.path), module)
        clone = copy.deepcopy(statement)
        imports, neutral = _Imports(origin, folder), CpuOnly(origin)
        result = neutral.visit(imports.visit(clone))
        needs_torch |= neutral.needs_torch
        outside |= imports.outside
        statements += result if isinstance(result, list) else [result]
    start = 0
    while start < len(statements) and is_future_import(statements[start]):
        start += 1
    if outside:
        added = [posixpath.relpath(path or ".", folder or ".") for path in outside]
        added = [f"sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), {path!r}))" for path in added]
        statements[start:start] = ast.parse("\n".join(["import os, sys", *added])).body
    if needs_torch and not any("torch" in bound_names(statement) for statement in statements):
        statements.insert(start, ast.parse("import torch").body[0])
    for node in [inner for item in statements for inner in ast.walk(item)]:
        block = getattr(node, "body", None)
        if isinstance(block, list) and len(block) > 1:
            node.body = [item for item in block if not isinstance(item, ast.Pass)] or [ast.Pass()]  # type: ignore[attr-defined]
    cleaned = [item for item in statements if not isinstance(item, ast.Pass) and not _is_idle_import(item, statements)]
    return ast.fix_missing_locations(ast.Module(cleaned, type_ignores=[]))
