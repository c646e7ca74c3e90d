"""A program in fp8: wide linear layers multiply in float8_e4m3fn, and everything else computes in bf16.

Each row of what comes in is scaled by its own largest magnitude, when it comes, and each output channel's weights by theirs,
ahead; `torch._scaled_mm` multiplies the 8-bit values, puts both scales back and gives bf16. So nothing needs calibration, and
no row suffers from another row's outlier. The scaling is plain operators, for inductor to fuse with what stands before.

What `_scaled_mm` takes with a scale per row is by its source (aten/src/ATen/native/cuda/ScaledBlas.cpp) and by the checks of
torch/_meta_registrations.py in torch 2.13: sizes in multiples of 16, rows one after another times columns one after another,
scales [rows, 1] and [1, columns] in float32, a bias in bf16, and a GPU of compute capability 8.9 or newer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from ...errors import BackendError
from ..base.passes import Pass
from ..capture.rewrite import ProgramEditor

_aten = torch.ops.aten
_FP8 = torch.float8_e4m3fn
_LARGEST = torch.finfo(_FP8).max  # 448
_LEAST = 2.0**-100  # a row's largest magnitude counts as at least this, so that no scale is 0 and zeros stay zeros
_MULTIPLE = 16
# A bf16 layer does in * out / (in + out) operations for each byte of its rows, and GPUs that have fp8 can do 160 to 420 by
# their data sheets: narrower layers wait for memory, and scaling the rows costs what smaller operands save. Estimated, not
# measured.
_LEAST_FEATURES = 256


def in_fp8(program: ExportedProgram) -> ExportedProgram:
    """The program, which must be in bf16 already, with its wide linear layers in fp8.

    Layers after which no other linear layer comes stay in bf16: their rounding goes into the class scores as it is, where a
    near tie is decided, and with one row per image they are a small part of the work. NaN or infinity in a row comes out as
    NaN in that row and no other, because the row's scale is then NaN. Raises BackendError where no layer is wide enough.
    """
    editor = ProgramEditor(program)
    layers = _layers(editor)
    if not layers:
        raise BackendError(
            f"fp8 gains nothing here: before the last linear layer there is none with at least {_LEAST_FEATURES} features "
            f"in and out, both multiples of {_MULTIPLE}; use bf16"
        )
    rows: dict[Node, tuple[Node, Node]] = {}
    weights: dict[Node, tuple[Node, Node]] = {}
    for node in layers:
        x, weight, bias = _operands(node)
        if x not in rows:
            rows[x] = editor.put(node, _flat_rows, x, weight.meta["val"].shape[1])
        if weight not in weights:
            weights[weight] = _stored(editor, weight)
        (left, left_scale), (right, right_scale) = rows[x], weights[weight]
        sizes = [*_leading_sizes(x), weight.meta["val"].shape[0]]
        result = editor.put(node, _product, left, right, left_scale, right_scale, bias, sizes)
        node.replace_all_uses_with(result)
    return editor.finish()


FP8 = Pass("fp8", in_fp8)


def _layers(editor: ProgramEditor) -> list[Node]:
    """The linear layers that gain from fp8, in the program's order."""
    found: list[Node] = []
    leading: set[Node] = set()  # to a linear layer
    for node in reversed(list(editor.graph.nodes)):
        linear = node.target is _aten.linear.default
        if linear and node in leading and _gains(editor, node):
            found.append(node)
        if linear or node in leading:
            leading.update(node.all_input_nodes)
    return found[::-1]


def _gains(editor: ProgramEditor, node: Node) -> bool:
    x, weight, bias = _operands(node)
    stored = editor.tensor(weight)
    low = all(item is None or item.meta["val"].dtype is torch.bfloat16 for item in (x, weight, bias))
    if stored is None or stored.ndim != 2 or not low or node.kwargs:
        return False
    if bias is not None and (bias.meta["val"].ndim != 1 or not bias.meta["val"].is_contiguous()):
        return False
    return (
        all(size >= _LEAST_FEATURES and size % _MULTIPLE == 0 for size in stored.shape)
        and x.meta["val"].ndim >= 2
        and _leading_sizes(x).count(-1) <= 1
    )


def _operands(node: Node) -> tuple[Node, Node, Node | None]:
    x, weight, *rest = node.args
    return x, weight, rest[0] if rest else None  # type: ignore[return-value]


def _leading_sizes(x: Node) -> list[int]:
    """All sizes but the last, -1 for one that the batch decides."""
    return [size if isinstance(size, int) else -1 for size in x.meta["val"].shape[:-1]]


def _stored(editor: ProgramEditor, weight: Node) -> tuple[Node, Node]:
    """The weight [out, in] as new graph inputs: values [in, out] with columns one after another, and scales [1, out]."""
    tensor = editor.tensor(weight)
    assert tensor is not None
    values, scales = _scaled(tensor)
    name = weight.name.removeprefix("p_").removesuffix("_low")
    return editor.add_parameter(f"{name}_fp8", values.t()), editor.add_parameter(f"{name}_scales", scales.reshape(1, -1))


def _flat_rows(x: Any, features: int) -> tuple[Any, Any]:
    """`_scaled` of a value [..., features]."""
    return _scaled(_aten.reshape.default(x, [-1, features]))


def _scaled(rows: Any) -> tuple[Any, Any]:
    """Rows [rows, features] in fp8, and the float32 scales [rows, 1] that multiply them back."""
    largest = _aten.to.dtype(_aten.amax.default(_aten.abs.default(rows), [-1], True), torch.float32)
    scales = _aten.div.Tensor(_aten.clamp_min.default(largest, _LEAST), _LARGEST)
    scales = _aten.add.Tensor(scales, _aten.sub.Tensor(largest, largest))  # 0, but NaN for NaN and infinity
    # Beyond 448 some versions of torch give NaN and others 448, so no value is left beyond it.
    within = _aten.clamp.default(_aten.div.Tensor(rows, scales), -_LARGEST, _LARGEST)
    return _aten.to.dtype(within, _FP8, memory_format=torch.contiguous_format), scales


def _product(left: Any, right: Any, left_scale: Any, right_scale: Any, bias: Any, sizes: list[int]) -> Any:
    args = (left, right, left_scale, right_scale, bias, None, torch.bfloat16, True)
    product = _aten._scaled_mm.default(*args)
    return _aten.reshape.default(product, sizes)
