"""Where an operator of the kernels can stand in a program, and what computes there then.

A site is a few nodes of torch's that one operator replaces: a convolution with the sum and the ReLU after it, a sum and its
ReLU, the largest of each window, a linear layer and its GELU, a layer norm with the sum and the conversions around it, a
softmax and the top-k of it. Between them nothing else may use a result, unless the operator gives that too. The program must
write to no value (see `functional`), so that a site may compute at any one place between what it reads and who reads it. Sites
may overlap.

Where a convolution ends in a ReLU, cuDNN's own fused operator (cudnn.py) has a site of the same nodes, also with several
groups, for which there is no kernel.

A convolution in int8 (see integers.py) is its own site, in which the operator stands already and only the tile is chosen.
The other operators find nothing here: captured programs are in floats, and begin after preprocessing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg

from ... import kernels
from ..base.silence import silence
from ..capture.rewrite import ProgramEditor
from . import cudnn

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""What the operators take; float64 they leave to their references."""

_aten = torch.ops.aten
CONVOLUTIONS = (_aten.conv2d.default, _aten.conv2d.padding)


@dataclass(frozen=True, eq=False, kw_only=True)
class Site:
    """`operator` can replace `nodes`, computing from `inputs` (None where the layer has none) and `numbers` what `outputs` are.

    The operator is put before the node `at`. An output that nothing reads is None. `scales` are further numbers, on which no
    time depends.
    """

    operator: str
    nodes: tuple[Node, ...] = field(repr=False)
    inputs: tuple[Node | None, ...]
    outputs: tuple[Node | None, ...]
    at: Node
    numbers: Mapping[str, Any] = field(default_factory=dict)
    scales: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tiled(self) -> bool:
        """Whether the operator takes a tile (kernels/_tiles.py)."""
        return self.operator in ("conv2d", "conv2d_int8")

    @property
    def by_cudnn(self) -> bool:
        """Whether the operator is cuDNN's, of which nothing is compiled here."""
        return self.operator in cudnn.NAMES

    @property
    def names(self) -> tuple[str, ...]:
        """The operators that it replaces, in their order, such as ("conv2d", "relu")."""
        return tuple(str(getattr(node.target, "__name__", node.target)).partition(".")[0] for node in self.nodes)

    def by_torch(self, *values: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        """The outputs of these values in place of `inputs`, by the program's own nodes."""
        known = {node: value for node, value in zip(self.inputs, values, strict=True) if node is not None}
        for node in self.nodes:
            args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        return tuple(known[node] for node in self.outputs if node is not None)

    def by_kernel(self, *values: torch.Tensor | None, tile: list[int] | None = None) -> tuple[torch.Tensor, ...]:
        """The same by the operator; `tile` is for what is `tiled`, None its own choice."""
        results = self.results(*values, tile=tile)
        return tuple(result for node, result in zip(self.outputs, results, strict=True) if node is not None)

    def results(self, *values: Any, tile: list[int] | None = None) -> tuple[Any, ...]:
        """One for each of `outputs`, of tensors or of proxies for nodes."""
        tiled = {"tile": tile} if self.tiled else {}
        return _COMPUTED[self.operator](*values, **self.numbers, **self.scales, **tiled)


def functional(program: ExportedProgram) -> ExportedProgram:
    """The program without writes to values, and with reshapes for views, so that operators may choose their results' layout."""
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    if any(getattr(getattr(node.target, "_schema", None), "is_mutable", False) for node in nodes):
        with silence("torch"):
            program = program.run_decompositions({})
    editor = ProgramEditor(program)
    for node in editor.graph.nodes:
        if node.target is _aten.view.default:
            node.target = _aten.reshape.default
    return editor.finish()


def find_sites(editor: ProgramEditor) -> list[Site]:
    """Every site of a program in its order. None where the program names strides, which operators do not keep."""
    kernels.discover()
    nodes = [node for node in editor.graph.nodes if node.op == "call_function"]
    if any("stride" in str(node.target) for node in nodes):
        return []
    found = {**_FOUND, torch.ops.headrace.conv2d_int8.default: (_integer_convolutions,)}
    return [site for node in nodes for find in found.get(node.target, ()) for site in find(editor, node)]


def put_kernels(editor: ProgramEditor, chosen: Sequence[tuple[Site, list[int] | None]]) -> None:
    """Put the operators of sites that do not overlap in place of torch's nodes, each with its tile."""
    replaced: dict[Node, Node] = {}
    for site, tile in chosen:
        values = [None if node is None else replaced.get(node, node) for node in site.inputs]
        results = editor.put(site.at, partial(site.results, tile=tile), *values)
        for old, new in zip(site.outputs, results, strict=True):
            if old is not None:
                old.replace_all_uses_with(new)
                replaced[old] = new


def _convolutions(editor: ProgramEditor, node: Node) -> Iterator[Site]:
    x, weight, bias = (_argument(node, place) for place in range(3))
    stride, padding, dilation = (_pair(_argument(node, place, default)) for place, default in ((3, 1), (4, 0), (5, 1)))
    if node.target is _aten.conv2d.padding:
        padding = _named_padding(_argument(node, 4, "valid"), weight, dilation)
    groups = _argument(node, 6, 1)
    if stride is None or padding is None or dilation is None or node.kwargs:
        return
    if not (_is_float(x) and _like(x, weight) and len(_shape(x)) == 4) or (bias is not None and not _is_float(bias)):
        return
    numbers = {"stride": stride, "padding": padding, "dilation": dilation}

    def sites(*nodes: Node, residual: Node | None = None, relu: bool = False) -> Iterator[Site]:
        places = {"nodes": nodes, "inputs": (x, weight, bias, residual), "outputs": nodes[-1:], "at": nodes[-1]}
        if groups == 1:
            yield Site(operator="conv2d", numbers={**numbers, "relu": relu}, **places)
        if relu and (bias is None or _like(x, bias)):
            fused = cudnn.NAMES[0 if residual is None else 1]
            yield Site(operator=fused, numbers={**numbers, "groups": groups}, **places)

    after = _only_user(node)
    operands = _sum_of(after)
    if operands is not None and operands[0] is not operands[1]:
        (residual,) = (item for item in operands if item is not node)
        if (last := _only_user(after)) is not None and last.target is _aten.relu.default:
            yield from sites(node, after, last, residual=residual, relu=True)
        yield from sites(node, after, residual=residual)
    if after is not None and after.target is _aten.relu.default:
        yield from sites(node, after, relu=True)
    yield from sites(node)


def _integer_convolutions(editor: ProgramEditor, node: Node) -> Iterator[Site]:
    inputs, given = node.args[:5], dict(zip(_INTEGER_NUMBERS, node.args[5:], strict=False))
    yield Site(
        operator="conv2d_int8",
        nodes=(node,),
        inputs=inputs,  # type: ignore[arg-type]
        outputs=(node,),
        at=node,
        numbers={name: value for name, value in given.items() if name != "residual_scale"},
        scales={"residual_scale": given["residual_scale"]},
    )


def _sums_with_relu(editor: ProgramEditor, relu: Node) -> Iterator[Site]:
    total = relu.args[0]
    operands = _sum_of(total)
    if operands is not None and _alone_reads(relu, total):
        yield Site(operator="add_relu", nodes=(total, relu), inputs=operands, outputs=(relu,), at=relu)


def _max_pools(editor: ProgramEditor, pool: Node) -> Iterator[Site]:
    x, window = (_argument(pool, place) for place in range(2))
    stride = _argument(pool, 2) or window
    pairs = [_pair(item) for item in (window, stride, _argument(pool, 3, 0), _argument(pool, 4, 1))]
    ceil = _argument(pool, 5, False)
    if _is_float(x) and len(_shape(x)) == 4 and not ceil and not pool.kwargs and None not in pairs:
        numbers = dict(zip(("window", "stride", "padding", "dilation"), pairs, strict=True))
        yield Site(operator="max_pool2d", nodes=(pool,), inputs=(x,), outputs=(pool,), at=pool, numbers=numbers)


def _linears_with_gelu(editor: ProgramEditor, gelu: Node) -> Iterator[Site]:
    linear = gelu.args[0]
    if not isinstance(linear, Node) or linear.target is not _aten.linear.default or not _alone_reads(gelu, linear):
        return
    inputs = tuple(_argument(linear, place) for place in range(3))
    if all(_is_float(item) for item in inputs) and _like(inputs[0], linear) and len(_shape(inputs[2])) == 1:
        numbers = {"approximate": gelu.kwargs.get("approximate", "none")}
        yield Site(operator="bias_gelu", nodes=(linear, gelu), inputs=inputs, outputs=(gelu,), at=gelu, numbers=numbers)


def _layer_norms(editor: ProgramEditor, norm: Node) -> Iterator[Site]:
    x, sizes, weight, bias = (_argument(norm, place) for place in range(4))
    # A weight that is a constant is there before the sum is.
    stored = all(item is None or (_is_float(item) and editor.tensor(item) is not None) for item in (weight, bias))
    if len(sizes) != 1 or not _is_float(x) or not stored or norm.kwargs:
        return
    numbers = {"eps": _argument(norm, 4, 1e-5)}
    forms: list[tuple[Node, tuple[Node, ...]]] = [(x, (norm,))]
    low, after = _converted(x), _only_user(norm)
    if low is not None and _alone_reads(norm, x) and _converted(after) is norm and _dtype(after) is _dtype(low):
        assert after is not None
        forms.insert(0, (low, (x, norm, after)))  # the kernel reads and writes bf16, and computes in float32 as they do
    for value, nodes in forms:
        operands = _sum_of(value)
        if operands is not None:
            inputs, outputs = (*operands, weight, bias), (nodes[-1], value)
            yield Site(
                operator="add_layer_norm", nodes=(value, *nodes), inputs=inputs, outputs=outputs, at=value, numbers=numbers
            )
        given = {"inputs": (value, weight, bias), "outputs": nodes[-1:], "at": nodes[-1], "numbers": numbers}
        yield Site(operator="layer_norm", nodes=nodes, **given)


def _softmax_with_topk(editor: ProgramEditor, topk: Node) -> Iterator[Site]:
    softmax, k, dim, largest = (_argument(topk, place, default) for place, default in enumerate((None, None, -1, True)))
    if softmax.target is not _aten.softmax.int or not _alone_reads(topk, softmax) or topk.kwargs:
        return
    scores, parts = softmax.args[0], list(topk.users)
    places = [item.args[1] for item in parts if item.target is operator.getitem]
    flat = _is_float(scores) and len(_shape(scores)) == 2 and dim in (-1, 1) and softmax.args[1] in (-1, 1)
    if not flat or not isinstance(k, int) or not largest or _dtype(softmax) is not torch.float32:
        return
    if len(places) == len(parts) and sorted(places) in ([0], [1], [0, 1]):
        outputs = tuple(next((item for item in parts if item.args[1] == place), None) for place in range(2))
        inputs, nodes = (scores,), (softmax, topk, *parts)
        yield Site(operator="softmax_topk", nodes=nodes, inputs=inputs, outputs=outputs, at=topk, numbers={"k": k})


_FOUND: dict[Any, tuple[Callable[[ProgramEditor, Node], Iterator[Site]], ...]] = {
    **dict.fromkeys(CONVOLUTIONS, (_convolutions,)),
    _aten.relu.default: (_sums_with_relu,),
    _aten.max_pool2d.default: (_max_pools,),
    _aten.gelu.default: (_linears_with_gelu,),
    _aten.layer_norm.default: (_layer_norms,),
    _aten.topk.default: (_softmax_with_topk,),
}


def _argument(node: Node, place: int, default: Any = None) -> Any:
    return node.args[place] if len(node.args) > place else default


def _only_user(node: object) -> Node | None:
    """Who alone reads a value; None where several do, or it is a result of the program."""
    users = list(node.users) if isinstance(node, Node) else []
    return users[0] if len(users) == 1 and users[0].op == "call_function" else None


def _alone_reads(user: Node, value: object) -> bool:
    return _only_user(value) is user


def _sum_of(node: object) -> tuple[Node, Node] | None:
    """The operands of a plain sum of two values of one shape and dtype; None for any other node."""
    if not isinstance(node, Node) or node.target is not _aten.add.Tensor or node.kwargs.get("alpha", 1) != 1:
        return None
    a, b = node.args if len(node.args) == 2 else (None, None)
    same = _is_float(a) and _like(a, b) and _shape(a) == _shape(b)
    return (a, b) if same else None  # type: ignore[return-value]


def _converted(node: object) -> Node | None:
    """What a node does nothing but convert to another of the dtypes; None for any other node."""
    if not isinstance(node, Node) or node.target is not _aten.to.dtype or len(node.args) != 2 or node.kwargs:
        return None
    source = node.args[0]
    return source if _is_float(source) and _is_float(node) else None  # type: ignore[return-value]


def _dtype(node: object) -> torch.dtype | None:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None


def _is_float(node: object) -> bool:
    return _dtype(node) in DTYPES


def _like(a: object, b: object) -> bool:
    return _dtype(a) is not None and _dtype(a) is _dtype(b)


def _shape(node: Any) -> list[str]:
    """As text: to compare a symbolic size with a number would bind the symbol."""
    return [str(size) for size in node.meta["val"].shape]


def _pair(value: Any) -> list[int] | None:
    values = [value, value] if isinstance(value, int) else list(value) if isinstance(value, Sequence) else []
    values = values * 2 if len(values) == 1 else values
    return values if len(values) == 2 and all(isinstance(item, int) for item in values) else None


def _named_padding(name: Any, weight: Any, dilation: list[int] | None) -> list[int] | None:
    """What "valid" and "same" mean; None where "same" is not the same on both sides."""
    if name == "valid":
        return [0, 0]
    totals = [step * (taps - 1) for step, taps in zip(dilation or (), weight.meta["val"].shape[2:], strict=False)]
    return [total // 2 for total in totals] if totals and all(total % 2 == 0 for total in totals) else None


def _linear_gelu(x: Any, weight: Any, bias: Any, *, approximate: str) -> tuple[Any, ...]:
    return (torch.ops.headrace.bias_gelu.default(_aten.linear.default(x, weight), bias, approximate),)


_INTEGER_NUMBERS = ("residual_scale", "stride", "padding", "dilation", "least")  # of conv2d_int8, in its order


def _conv2d_int8(*values: Any, tile: Any, **given: Any) -> tuple[Any]:
    numbers = (given[name] for name in _INTEGER_NUMBERS)
    return (torch.ops.headrace.conv2d_int8.default(*values, *numbers, tile),)


def _pair_of(result: Any) -> tuple[Any, Any]:
    return result[0], result[1]  # of a proxy, two nodes


_COMPUTED: dict[str, Callable[..., tuple[Any, ...]]] = {
    "conv2d": lambda *values, stride, padding, dilation, relu, tile: (
        torch.ops.headrace.conv2d.default(*values, stride, padding, dilation, relu, tile),
    ),
    "conv2d_int8": _conv2d_int8,
    **dict.fromkeys(cudnn.NAMES, cudnn.convolved),
    "add_relu": lambda a, b: (torch.ops.headrace.add_relu.default(a, b),),
    "max_pool2d": lambda x, *, window, stride, padding, dilation: (
        torch.ops.headrace.max_pool2d.default(x, window, stride, padding, dilation),
    ),
    "bias_gelu": _linear_gelu,
    "layer_norm": lambda *values, eps: (torch.ops.headrace.layer_norm.default(*values, eps),),
    "add_layer_norm": lambda *values, eps: _pair_of(torch.ops.headrace.add_layer_norm.default(*values, eps)),
    "softmax_topk": lambda scores, *, k: _pair_of(torch.ops.headrace.softmax_topk.default(scores, k)),
}
