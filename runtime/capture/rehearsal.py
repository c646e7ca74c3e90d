"""Run a module to hear of everything that a capture would stop at: as it is, then with a symbolic batch.

torch.export gives up at the first value that leaves its tensors for numpy, and takes the batch size for a constant once one
line has fixed it, so that later lines are not heard of. Here nothing gives up. The first run notes each value that leaves a
tensor (`if`, `float()`, `.item()`, `.numpy()`) and whether it came from an input; the second hands the same values back, so
that it takes the same path, and notes each line that wants the batch size as a number.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .source_locations import NOWHERE, Place, innermost

_VALUES = ("__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__", "item", "tolist")
_ARRAYS = ("numpy", "__array__")
_TORCH = Path(torch.__file__).parent
_TENSOR = str(_TORCH / "_tensor.py")
_THROUGH = tuple(str(_TORCH / part) for part in ("__init__.py", "overrides.py", "fx/experimental"))

Heard = list[tuple[str, Place]]
"""What was heard, and where: "value", "array", or how the batch size is fixed, such as "Eq(batch, 2)"."""


def rehearse(module: torch.nn.Module, example: Sequence[torch.Tensor]) -> Heard:
    """Every line that takes a value out of the tensors or fixes the batch size, in the order of their execution.

    Modules that cannot run in pretence, without data, are heard as far as they come: this adds to what torch.export says.
    """
    values, batches = _heard(module, example)
    _, others = _heard(module, [torch.cat([value, value[:1]]) for value in example])
    # A line that compares the batch with another number when there is another row only uses what an earlier line gave it.
    elsewhere = {place for _, place in others}
    return list(dict.fromkeys([*values, *(item for item in batches if item in others or item[1] not in elsewhere)]))


def _heard(module: torch.nn.Module, example: Sequence[torch.Tensor]) -> tuple[Heard, Heard]:
    inputs = [value.clone() for value in example]
    noting = _Noting(module, inputs)
    with contextlib.suppress(Exception), noting:
        module(*inputs)
    listening = _Listening()
    pretence = FakeTensorMode(shape_env=listening, allow_non_fake_inputs=True)
    with contextlib.suppress(Exception):
        pretended = [pretence.from_tensor(value, symbolic_context=_symbolic(value)) for value in example]
        with pretence, _Repeating(noting.values):
            module(*pretended)
    return noting.heard, listening.heard


class _Noting(TorchFunctionMode):  # type: ignore[misc]
    """Passes every call on; notes the values that leave tensors, and the places of those that came from an input."""

    def __init__(self, module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.heard: Heard = []
        self.values: list[tuple[str, Any]] = []
        # By id, and held so that no id is used again: what depends on an input, and what does not.
        self._from_inputs = {id(value): value for value in inputs}
        self._others = {id(value): value for value in (*module.parameters(), *module.buffers())}

    def _is_derived(self, leaf: Any) -> bool:
        if not isinstance(leaf, torch.Tensor) or id(leaf) in self._others:
            return False
        # What no torch function gave was made from an array; numpy cannot be followed, so any array that left may be behind it.
        return id(leaf) in self._from_inputs or any(kind == "array" for kind, _ in self.heard)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        derived = any(self._is_derived(leaf) for leaf in pytree.tree_leaves((args, kwargs)))
        result = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", "")
        if name in (*_VALUES, *_ARRAYS):
            # A tensor in pretence makes its list of the elements' values.
            self.values += [("item", value) for value in pytree.tree_leaves(result)] if name == "tolist" else [(name, result)]
            direct, place = _caller()
            if derived and direct:  # torch.export knows its way where torch's own code takes a value
                self.heard.append(("array" if name in _ARRAYS else "value", place))
        else:
            known = self._from_inputs if derived else self._others
            known.update((id(leaf), leaf) for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor))
        return result


class _Repeating(TorchFunctionMode):  # type: ignore[misc]
    """Hands back the values that an earlier run noted, in their order."""

    def __init__(self, values: Sequence[tuple[str, Any]]) -> None:
        super().__init__()
        self._values = iter(values)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name in (*_VALUES, *_ARRAYS):
            noted, value = next(self._values)
            assert noted == name
            return value
        return function(*args, **(kwargs or {}))


class _Listening(ShapeEnv):  # type: ignore[misc]
    """Answers every question about the batch size with the example's, and goes on as if nothing were known."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: Heard = []

    def evaluate_expr(self, orig_expr: sympy.Basic, hint: Any = None, *args: Any, **options: Any) -> sympy.Basic:
        known = self._maybe_evaluate_static(orig_expr)
        if known is not None or hint is None:
            return known if known is not None else super().evaluate_expr(orig_expr, hint, *args, **options)
        boolean = isinstance(orig_expr, sympy.core.relational.Relational | sympy.logic.boolalg.BooleanFunction)
        fixes = isinstance(orig_expr, sympy.Eq) and bool(hint)
        direct, place = _caller()
        if fixes or direct:  # torch's own comparisons and conversions hold for other batches too
            text = str(orig_expr)
            for symbol in orig_expr.free_symbols:
                text = text.replace(str(symbol), "batch")
            self.heard.append((text if boolean else f"{text} as a number", place))
        return sympy.sympify(hint)


def _symbolic(value: torch.Tensor) -> StatelessSymbolicContext:
    return StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] + [DimDynamic.STATIC] * (value.ndim - 1))


def _caller() -> tuple[bool, Place]:
    """The module's innermost line that is the user's own, and whether that line itself asked, and not torch's code below it.

    A tensor's own methods (`len(x)`, `for row in x`) count as the user's line.
    """
    stack = traceback.extract_stack()
    runs = (index for index, frame in enumerate(stack) if frame.filename == __file__ and frame.name == _heard.__name__)
    start = max(runs, default=0)  # a thread of the module's own has no such frame
    frames = [(frame.filename, frame.lineno or 0) for frame in stack[start:]]
    place = innermost(frames)
    below = frames[max(index for index, frame in enumerate(frames) if frame == place) + 1 :] if place != NOWHERE else frames
    torchs_own = [path for path, _ in below if not path.startswith((__file__, *_THROUGH))]
    return place != NOWHERE and (not torchs_own or torchs_own[0] == _TENSOR), place
