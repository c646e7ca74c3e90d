"""What a model's classes draw at random, as far as they stand in the repository: global tensors take no dropout."""

import ast

from ...reading.names import meaning
from ...reading.nodes import inside
from ...reading.scopes import Definition, Module
from ..rule import Context

_DRAWS = ("torch.nn.Dropout", "torch.nn.AlphaDropout", "torch.nn.FeatureAlphaDropout", "torch.nn.RReLU")
_DRAWING = frozenset(
    f"torch.nn.functional.{name}" for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "rrelu")
)
_MOST = 500


def what_draws(context: Context, function_or_value: ast.AST) -> str | None:
    """Where something that draws random numbers stands among what an expression makes, as "nn.Dropout (net.py:12)"."""
    seen: set[ast.AST] = set()
    waiting: list[tuple[Module, ast.AST]] = [(context.module, function_or_value)]
    while waiting and len(seen) < _MOST:
        module, node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        for call in inside(node, ast.Call):
            name = meaning(module, call.func)
            if name is not None and (name.startswith(_DRAWS) or name in _DRAWING) and not _never(call):
                return f"{ast.unparse(call.func)} ({module.path}:{call.lineno})"
            found: tuple[Module, Definition] | None = module.find_callee(call.func)
            if found is not None:
                waiting.append(found)
        bases = [module.find_callee(base) for base in getattr(node, "bases", [])]
        waiting += [found for found in bases if found is not None]
    return None


def _never(call: ast.Call) -> bool:
    """Whether a layer drops out nothing: `nn.Dropout(0.0)`."""
    given = [*call.args[:1], *(item.value for item in call.keywords if item.arg == "p")]
    return bool(given) and isinstance(given[0], ast.Constant) and given[0].value == 0
