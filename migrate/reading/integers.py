"""Which expressions of a function are certainly integers, and which of them come from the batch dimension of a tensor."""

import ast
from functools import cached_property

from .nodes import inside
from .scopes import Function, Module, dotted, last_name, parameters

_DIMENSION_TAKERS = frozenset(["view", "reshape", "expand", "repeat", "new_zeros", "new_empty", "unflatten", "range"])


class Integers:
    """One function's names: which hold integers by what is assigned to them or by how they are used."""

    def __init__(self, module: Module, function: Function) -> None:
        self.module = module
        self.function = function

    @cached_property
    def _assigned(self) -> dict[str, list[tuple[ast.expr, int | None]]]:
        """Name -> the values assigned to it, with the index where it is one name of an unpacked tuple."""
        found: dict[str, list[tuple[ast.expr, int | None]]] = {}
        for node in inside(self.function, ast.Assign):
            for target in node.targets:
                unpacked = isinstance(target, ast.Tuple | ast.List)
                for index, element in enumerate(target.elts if isinstance(target, ast.Tuple | ast.List) else [target]):
                    if isinstance(element, ast.Name):
                        found.setdefault(element.id, []).append((node.value, index if unpacked else None))
        return found

    @cached_property
    def _as_dimension(self) -> set[str]:
        """Names and attributes that the function passes on as sizes, which only integers can be."""
        found: set[str] = set()
        for call in inside(self.function, ast.Call):
            if last_name(call.func) in _DIMENSION_TAKERS:
                found |= {text for value in call.args for item in _plain(value) if (text := dotted(item)) is not None}
        return found

    @cached_property
    def _annotated(self) -> set[str]:
        return {argument.arg for argument in parameters(self.function) if dotted(argument.annotation) == "int"}

    def certain(self, node: ast.expr, _seen: frozenset[str] = frozenset()) -> bool:
        """Whether the expression is an integer whenever the function runs through."""
        if isinstance(node, ast.Constant):
            return type(node.value) is int
        if isinstance(node, ast.BinOp):
            kept = isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.FloorDiv | ast.Mod)
            return kept and self.certain(node.left, _seen) and self.certain(node.right, _seen)
        if is_shape_item(node) or (isinstance(node, ast.Call) and dotted(node.func) in ("len", "int")):
            return True
        text = dotted(node)
        if text is None or text in _seen:
            return False
        if text in self._as_dimension or text in self._annotated:
            return True
        values = self._assigned.get(text, [])
        is_parameter = text in {argument.arg for argument in parameters(self.function)}
        inner = _seen | {text}
        return (
            bool(values)
            and not is_parameter
            and all(
                self.certain(value, inner) if index is None else is_shape(value) or self._item(value, index, inner)
                for value, index in values
            )
        )

    def _item(self, value: ast.expr, index: int, seen: frozenset[str]) -> bool:
        return isinstance(value, ast.Tuple) and index < len(value.elts) and self.certain(value.elts[index], seen)

    def of_batch(self, node: ast.expr) -> bool:
        """Whether it is computed from the first dimension of some tensor."""
        for item in ast.walk(node):
            if isinstance(item, ast.expr) and self._is_first(item):
                return True
            if isinstance(item, ast.Call) and dotted(item.func) == "len" and not any(map(self._has_no_rows, item.args)):
                return True
            if isinstance(item, ast.Name) and any(
                (index == 0 and is_shape(value)) or (index is None and value is not node and self._is_first(value))
                for value, index in self._assigned.get(item.id, [])
            ):
                return True
        return False

    def _has_no_rows(self, node: ast.expr) -> bool:
        """Whether it is a shape, whose length is how many dimensions there are, or what the module itself holds."""
        values = (
            [value for value, index in self._assigned.get(node.id, []) if index is None] if isinstance(node, ast.Name) else []
        )
        return is_shape(node) or (bool(values) and all(map(is_shape, values))) or (dotted(node) or "").startswith("self.")

    @staticmethod
    def _is_first(value: ast.expr) -> bool:
        return is_shape_item(value) and _first(value.slice if isinstance(value, ast.Subscript) else value.args[0])  # type: ignore[attr-defined]

    def of_shape(self, node: ast.expr) -> bool:
        """Whether it is computed from a dimension of some tensor, whichever."""
        return any(
            is_shape_item(item)
            or (
                isinstance(item, ast.Name)
                and any(
                    (index is not None and is_shape(value)) or (index is None and is_shape_item(value))
                    for value, index in self._assigned.get(item.id, [])
                )
            )
            for item in ast.walk(node)
            if isinstance(item, ast.expr)
        )


def is_shape(node: ast.expr) -> bool:
    """`x.shape`, `x.size()`, and slices of them."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return is_shape(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr == "shape"
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size" and not node.args


def is_shape_item(node: ast.expr) -> bool:
    """`x.shape[0]`, `x.size(0)`, `x.size()[0]`."""
    if isinstance(node, ast.Subscript):
        return not isinstance(node.slice, ast.Slice) and is_shape(node.value)
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size"
    return called and len(node.args) == 1  # type: ignore[attr-defined]


def _first(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _plain(node: ast.expr) -> list[ast.expr]:
    """The operands of integer arithmetic in a size: `H` and `window` of `H // window`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mult | ast.Add | ast.Sub | ast.Mod):
        return [*_plain(node.left), *_plain(node.right)]
    if isinstance(node, ast.Tuple | ast.List):
        return [item for element in node.elts for item in _plain(element)]
    return [node]
