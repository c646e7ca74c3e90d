"""Pretrained weights: the same construction without them (`pretrained=None`), for a machine that cannot download any.

None is what torchvision, timm and most hand-written factories take for "no weights"; some test `is not None`, so False will
not do.
"""

import ast
import copy

from ..reading.nodes import defaults_of
from ..reading.scopes import Function, Module, last_name, parameters
from .heads import is_zoo_constructor

SWITCHES = ("pretrained", "weights", "pretrain", "pre_trained", "use_pretrained", "imagenet_pretrained", "weights_backbone")
"""Parameters that ask for stored weights."""
_GIVEN_BY_CALLS = ("from_pretrained",)


def without_weights(source: str, module: Module) -> str:
    """The source with every request for stored weights withdrawn; `module` says what its names stand for."""
    tree = ast.parse(source)
    own = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return ast.unparse(ast.fix_missing_locations(_Withdraw(module, own).visit(tree))) + "\n"


def asks_for_weights(function: Function) -> str | None:
    """The parameter through which a function loads stored weights when called without arguments, or None."""
    defaults = defaults_of(function)
    for argument in parameters(function):
        default = defaults.get(argument.arg)
        if argument.arg in SWITCHES and default is not None and not (isinstance(default, ast.Constant) and not default.value):
            return argument.arg
    return None


class _Withdraw(ast.NodeTransformer):
    def __init__(self, module: Module, own: dict[str, ast.FunctionDef | ast.AsyncFunctionDef]) -> None:
        self.module = module
        self.own = own
        """The functions that the source itself defines, which may be reduced forms of the module's."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if last_name(node.func) in ("add_argument", "ArgumentParser", "Namespace", "dict"):
            return node
        of_loss = last_name(node.func).endswith("Loss") or "Sampler" in last_name(node.func)
        for keyword in node.keywords:
            if keyword.arg in SWITCHES and not of_loss:
                keyword.value = ast.copy_location(ast.Constant(None), keyword.value)
        if isinstance(node.func, ast.Name) and node.func.id in self.own:
            return node
        target = self.module.find_callee(node.func)
        if target is not None and isinstance(target[1], ast.FunctionDef | ast.AsyncFunctionDef):
            return self._own(node, target[1])
        expanded = self.module.expand(node.func) or ""
        if is_zoo_constructor(expanded) and not expanded.startswith("timm.create_model"):
            first = node.args[0] if node.args else None
            of_old = isinstance(first, ast.Constant) and first.value is True  # resnet18(True)
            if of_old and expanded.startswith("torchvision.models"):
                node.args = [ast.Constant(False), *node.args[1:]]
            if expanded.rpartition(".")[2] in _GIVEN_BY_CALLS and expanded.startswith("efficientnet_pytorch"):
                made = copy.deepcopy(node)
                assert isinstance(made.func, ast.Attribute)
                made.func.attr = "from_name"
                return made
        return node

    def _own(self, node: ast.Call, function: Function) -> ast.Call:
        """A factory of the repository: what it would be given by position or by its default."""
        names = [argument.arg for argument in parameters(function)]
        for index, value in enumerate(node.args):
            if isinstance(value, ast.Starred):
                return node
            if index < len(names) and names[index] in SWITCHES:
                node.args[index] = ast.Constant(None)
        asked = asks_for_weights(function)
        given = {keyword.arg for keyword in node.keywords} | set(names[: len(node.args)])
        if asked is not None and asked not in given and None not in given:
            node.keywords.append(ast.keyword(asked, ast.Constant(None)))
        return node
