"""A program in bf16 or fp16: which operators compute in it, which stay in float32, and where values are converted.

The lists are those of torch.autocast (ATen/autocast_mode.h of torch 2.13: AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32 and
AT_FORALL_FP32_SET_OPT_DTYPE), with the reductions added that autocast leaves alone, since a sum over space in fp16 overflows.
Beyond autocast, weights are converted once and ahead, and whatever is no activation (positions, indices, sampling grids) keeps
its float32. bf16 has the range of float32, so there values go on in bf16 after a normalization and beside a weight in float32,
where autocast would promote the rest of a residual network; in fp16, which could overflow, they are promoted as autocast does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg

from ..base.passes import Pass
from ..base.silence import silence
from ..capture.rewrite import ProgramEditor

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

_aten = torch.ops.aten


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PRODUCTS = _names("""
    conv1d conv2d conv3d convolution _convolution conv_transpose1d conv_transpose2d conv_transpose3d prelu addmm addmv addr
    matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot scaled_dot_product_attention""")
_NORMALISATIONS = _names("layer_norm native_layer_norm group_norm native_group_norm rms_norm instance_norm")
_RESAMPLING = _names("""
    upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
    upsample_bicubic2d _upsample_bicubic2d_aa""")
_IN_FLOAT32 = _NORMALISATIONS.union(
    _RESAMPLING,
    _names("""
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus softmax log_softmax _softmax
    _log_softmax frobenius_norm nuclear_norm norm cosine_similarity dist pdist cdist renorm logsumexp prod cumprod cumsum
    linalg_vector_norm linalg_matrix_norm sum"""),
    _names("exp2 square mean var std var_mean std_mean logcumsumexp"),  # not in autocast's lists
)
# The input may be in a lower precision than the statistics, here and in autocast.
_STATISTICS_APART = _names("batch_norm _native_batch_norm_legit_no_training")
_GRID = {"grid_sampler": 1, "grid_sampler_2d": 1, "grid_sampler_3d": 1}  # which argument holds positions
_WHOLE = _names("floor ceil round trunc frac floor_divide fmod remainder bucketize searchsorted")


def half_precision(dtype: str) -> Pass:
    """The pass to "bf16" or "fp16"; to "fp32" it changes nothing."""
    return Pass("half_precision", lambda program: in_precision(program, dtype))


def in_precision(program: ExportedProgram, precision: str) -> ExportedProgram:
    """The program computing in "bf16" or "fp16" where that is safe, with the inputs and outputs that it had; "fp32" is itself.

    A weight that the precision cannot hold (fp16 rounds what is below 6e-8 to zero) keeps the operator that uses it in float32.
    """
    return program if precision == "fp32" else _Reduction(_without_shared_writes(program), DTYPES[precision]).run()


class _Reduction:
    """One pass over the graph in its order: what each operator gets is decided by the dtypes that its inputs have come to."""

    def __init__(self, program: ExportedProgram, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._promotes = dtype is torch.float16
        self._limits = torch.finfo(dtype)
        self._editor = ProgramEditor(program)
        self._graph = self._editor.graph
        inputs = set(program.graph_signature.user_inputs)
        given = [node for node in self._graph.nodes if node.name in inputs]
        self._live = _depending_on(given, self._graph.nodes)
        self._precise = _feeding_positions(self._graph.nodes)
        self._casts: dict[tuple[Node, torch.dtype], Node] = {}
        self._sources: dict[Node, Node] = {}  # of conversions, so that they can be taken back
        self._changed: set[Node] = set()
        self._fits: dict[Node, bool] = {}

    def run(self) -> ExportedProgram:
        for node in list(self._graph.nodes):
            if node.target is _aten._assert_tensor_metadata.default:
                self._graph.erase_node(node)  # it asserts the dtype that is being changed
            elif node.op == "call_function" and node in self._live:
                self._reduce(node)
            elif node.op == "output":
                with self._graph.inserting_before(node):
                    results = [
                        self._cast(item, torch.float32) if isinstance(item, Node) and item in self._changed else item
                        for item in node.args[0]
                    ]
                node.args = (tuple(results),)
        return self._editor.finish()

    def _reduce(self, node: Node) -> None:
        if node.target is _aten.view.default:
            node.target = _aten.reshape.default  # kernels of another precision may leave their results in another order
        wanted = self._wanted(node)
        first = next((item for item in node.all_input_nodes if _floating(item)), None)
        was_low = first is not None and _dtype(first) is self._dtype
        before = (node.args, dict(node.kwargs))
        if wanted is not None and not self._asked_for_dtype(node, wanted):
            with self._graph.inserting_before(node):
                node.args, node.kwargs = map_arg(
                    (node.args, dict(node.kwargs)), lambda item: self._cast(item, wanted) if _floating(item) else item
                )
        if (node.args, dict(node.kwargs)) == before and not self._changed.intersection(node.all_input_nodes):
            return
        old = node.meta["val"]
        if isinstance(node.target, torch._ops.OpOverload) or _name(node) == "getitem":
            self._editor.infer(node)
        if _dtypes(node.meta["val"]) != _dtypes(old):
            self._changed.add(node)
        returned = _name(node) in _NORMALISATIONS | _RESAMPLING and not self._promotes and node not in self._precise
        if returned and was_low and _dtype(node) is torch.float32:
            self._return(node)

    def _wanted(self, node: Node) -> torch.dtype | None:
        """What the operator's floating-point inputs are to be; None when they are right."""
        name = _name(node)
        operands = [item for item in node.all_input_nodes if _floating(item)]
        if name == "getitem" or not operands or any(_dtype(item) is torch.float64 for item in operands):
            return None
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
            return torch.float32  # what it was captured with; nothing is known of other libraries' kernels
        if node.target._schema.is_mutable:
            return _dtype(node.args[0]) if isinstance(node.args[0], Node) else None  # what is written to keeps its dtype
        if name in _STATISTICS_APART or name == "to":
            return None
        if name in _PRODUCTS:
            holds = node not in self._precise and all(self._holds(item) for item in operands)
            return self._dtype if holds else torch.float32
        if name in _IN_FLOAT32:
            return torch.float32
        found = {_dtype(item) for item in operands}
        if self._dtype not in found:
            return None
        if node in self._precise or not all(self._is_normal(value) for value in _scalars(node)):
            return torch.float32
        if torch.Tag.pointwise in node.target.tags:  # promotes as it should, and a scalar tensor promotes nothing
            wide = [item for item in operands if _dtype(item) is torch.float32 and _rank(item)]
        else:
            wide = [item for item in operands if _dtype(item) is torch.float32]
        if not wide:
            return None
        converts = not self._promotes and all(self._weight(item) is not None and self._holds(item) for item in wide)
        return self._dtype if converts else torch.float32

    def _asked_for_dtype(self, node: Node, wanted: torch.dtype) -> bool:
        """Whether a reduction could be told to give float32 of what it reads, which spares a copy of it."""
        if wanted is not torch.float32 or _name(node) not in _IN_FLOAT32:
            return False
        names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
        if "dtype" not in names:
            return False
        at = names.index("dtype")
        if len(node.args) > at:
            node.args = (*node.args[:at], node.args[at] or wanted, *node.args[at + 1 :])
        else:
            node.kwargs = {**node.kwargs, "dtype": node.kwargs.get("dtype") or wanted}
        return True

    def _return(self, node: Node) -> None:
        """Go on in the lower precision after an operator in float32; who needs float32 gets it unrounded."""
        with self._graph.inserting_after(node):
            low = self._convert(node, self._dtype)
        node.replace_all_uses_with(low, delete_user_cb=lambda user: user is not low)

    def _cast(self, node: Node, dtype: torch.dtype) -> Node:
        """The value in that dtype; weights and views of them are converted ahead. Back and forth is neither."""
        if _dtype(node) is dtype or _dtype(node) not in (torch.float32, self._dtype):
            return node
        source = self._sources.get(node)
        if source is not None and _dtype(source) is dtype:
            return source
        if (node, dtype) not in self._casts:
            weight = self._weight(node) if dtype is self._dtype else None
            self._casts[node, dtype] = self._convert(node, dtype) if weight is None else self._stored(node, weight)
        return self._casts[node, dtype]

    def _convert(self, node: Node, dtype: torch.dtype) -> Node:
        converted = self._graph.call_function(_aten.to.dtype, (node, dtype))
        self._editor.infer(converted)
        self._sources[converted] = node
        self._changed.add(converted)
        return converted

    def _stored(self, node: Node, weight: Node) -> Node:
        """A weight in the lower precision, or the views that were taken of it, taken again."""
        if node is weight:
            tensor = self._editor.tensor(weight)
            assert tensor is not None
            stored = self._editor.add_parameter(f"{weight.name.removeprefix('p_')}_low", tensor.to(self._dtype))
            self._changed.add(stored)
            return stored
        (source,) = (item for item in node.all_input_nodes if isinstance(item.meta["val"], torch.Tensor))
        with self._graph.inserting_after(node):
            view = self._graph.node_copy(node, lambda item: self._cast(item, self._dtype) if item is source else item)
        self._editor.infer(view)
        self._changed.add(view)
        return view

    def _weight(self, node: Node) -> Node | None:
        """The weight that a value is, or is a view of; None when it was computed."""
        while node.op == "call_function":
            sources = [item for item in node.all_input_nodes if isinstance(item.meta["val"], torch.Tensor)]
            if not getattr(node.target, "is_view", False) or len(sources) != 1:
                return None
            (node,) = sources
        return node if self._editor.tensor(node) is not None else None

    def _holds(self, node: Node) -> bool:
        """Whether the precision can hold a weight: finite elements stay finite, and are off by a rounding of the largest."""
        weight = self._weight(node)
        if weight is None:
            return True
        if weight not in self._fits:
            value = self._editor.tensor(weight)
            assert value is not None
            finite = torch.isfinite(value)
            rounded = value.to(self._dtype)
            errors, sizes = (torch.where(finite, item, 0).abs() for item in (value - rounded.to(value.dtype), value))
            fits = torch.equal(finite, torch.isfinite(rounded)) and bool((errors <= self._limits.eps * sizes.amax()).all())
            self._fits[weight] = fits if value.numel() else True
        return self._fits[weight]

    def _is_normal(self, value: float) -> bool:
        size = abs(value)
        return size == 0 or not size < float("inf") or self._limits.smallest_normal <= size <= self._limits.max


def _without_shared_writes(program: ExportedProgram) -> ExportedProgram:
    """A program that writes only into values which nothing else reads, so that a value converted once stays what it is."""
    for node in program.graph.nodes:
        if node.op != "call_function" or not getattr(getattr(node.target, "_schema", None), "is_mutable", False):
            continue
        written = node.args[0]
        assert isinstance(written, Node)
        apart = written.op == "call_function" and not getattr(written.target, "is_view", False) and _name(written) != "getitem"
        if not apart or len(written.users) > 1:
            with silence("torch"):
                return program.run_decompositions({})
    return program


def _depending_on(inputs: Iterable[Node], nodes: Iterable[Node]) -> set[Node]:
    """The nodes that read the values of the inputs, which sizes do not."""
    found = set(inputs)
    for node in nodes:
        if not found.isdisjoint(node.all_input_nodes) and _dtypes(node.meta.get("val")):
            found.add(node)
    return found


def _feeding_positions(nodes: Iterable[Node]) -> set[Node]:
    """What positions, indices and whole numbers are computed from, up to the products that are activations."""
    found: set[Node] = set()
    for node in reversed(list(nodes)):
        name = _name(node)
        if node in found and name not in _PRODUCTS:
            found.update(node.all_input_nodes)
        if name in _WHOLE or (name == "to" and not _floating(node)):
            found.update(item for item in node.all_input_nodes if _floating(item))
        if name in _GRID:
            grid = node.args[_GRID[name]]
            assert isinstance(grid, Node)
            found.add(grid)
    return {node for node in found if _name(node) not in _PRODUCTS}


def _name(node: Node) -> str:
    """The operator's name without its library and overload."""
    schema = getattr(node.target, "_schema", None)
    return schema.name.partition("::")[2] if schema is not None else getattr(node.target, "__name__", "")


def _scalars(node: Node) -> Iterator[float]:
    """Numbers that the operator computes with, sizes and dimensions aside."""
    schema = node.target._schema  # type: ignore[union-attr]
    for argument, value in zip(schema.arguments, node.args, strict=False):
        number = isinstance(value, float) or (type(value) is int and "number" in str(argument.type).lower())
        if number:
            yield float(value)  # type: ignore[arg-type]
    yield from (value for value in node.kwargs.values() if isinstance(value, float))


def _dtypes(value: Any) -> tuple[torch.dtype, ...]:
    parts = value if isinstance(value, tuple | list) else (value,)
    return tuple(part.dtype for part in parts if isinstance(part, torch.Tensor))


def _dtype(node: Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def _floating(node: Node) -> bool:
    dtype = _dtype(node)
    return dtype is not None and dtype.is_floating_point


def _rank(node: Node) -> int:
    return node.meta["val"].ndim
