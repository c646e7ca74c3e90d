"""A model as the planner sees it: the operators of its captured graph with their shapes, parameters and work, as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from ....errors import CaptureError
from ...tuning.prediction import depth

_KINDS = {
    "linear": {"linear"},
    "conv": {"conv1d", "conv2d", "conv3d", "convolution"},
    "embedding": {"embedding"},
    "matmul": {"matmul", "bmm", "mm", "addmm", "baddbmm"},
    "attention": {"scaled_dot_product_attention"},
    "batch_norm": {"batch_norm", "_native_batch_norm_legit_functional", "native_batch_norm", "_native_batch_norm_legit"},
    "last_dim": {"layer_norm", "native_layer_norm", "rms_norm", "softmax", "_softmax", "log_softmax"},
    "view": {"view", "reshape", "flatten", "unflatten", "_unsafe_view", "squeeze", "unsqueeze"},
    "permute": {"permute", "transpose", "t", "movedim"},
    "cut": {"chunk", "split", "unbind", "split_with_sizes", "select", "slice", "cat"},
    "pool": {
        "adaptive_avg_pool2d", "max_pool2d", "avg_pool2d", "mean", "max_pool2d_with_indices", "adaptive_max_pool2d", "pad",
        "_adaptive_avg_pool2d", "upsample_bilinear2d", "upsample_nearest2d",
    },
    "dropout": {"dropout", "native_dropout"},
    "pointwise": {
        "relu", "relu_", "gelu", "silu", "silu_", "sigmoid", "tanh", "hardswish", "hardswish_", "hardsigmoid", "hardtanh",
        "hardtanh_", "leaky_relu", "elu", "mish", "add", "add_", "sub", "mul", "mul_", "div", "neg", "exp", "clone",
        "contiguous", "to", "clamp", "pow", "rsqrt", "sqrt", "prelu", "relu6", "identity", "alias", "detach",
    },
    "item": {"getitem"},
}  # fmt: skip
KINDS = {name: kind for kind, names in _KINDS.items() for name in names}
"""What an operator is, by its name in torch; those that are not here are \"other\"."""
NO_COPY = ("view", "permute", "item", "cut")


@dataclass(frozen=True)
class Operator:
    """One operator. `inputs` are the numbers of those whose results it takes, of what depends on the model's input alone; its
    `shape` is that of its result, whose elements take `itemsize` bytes. `weights` are parameters that it reads, those of a
    linear layer or a convolution with the one that may be split first. `work` is in floating-point operations and `traffic` in
    bytes, of the forward pass. `dims` are the dimensions that a permutation, a cut, a pooling and the like name.
    `call` has what is needed to run it by itself."""

    name: str
    kind: str
    module: str
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    itemsize: int
    weights: tuple[str, ...] = ()
    direct: bool = False
    """Whether the first of `weights` is its weight itself, not something computed from it."""
    work: float = 0.0
    traffic: float = 0.0
    dims: tuple[int, ...] = ()
    call: Mapping[str, Any] | None = None

    @property
    def bytes(self) -> float:
        return math.prod(self.shape) * self.itemsize


@dataclass(frozen=True)
class Model:
    """Operators in the order of execution, the first of which is the input, and the bytes of each parameter by name.

    `uncuttable` names layers with statistics or random numbers of their own, which a pipeline does not take; `shapes` are those
    of the parameters, and `called` are the modules that the forward pass calls, but for the model itself.
    """

    operators: tuple[Operator, ...]
    weights: Mapping[str, int]
    uncuttable: tuple[str, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    called: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return self.operators[0].shape[0]

    @cached_property
    def uses(self) -> dict[str, list[int]]:
        """The operators that read each parameter, in order."""
        found: dict[str, list[int]] = {}
        for at, operator in enumerate(self.operators):
            for name in operator.weights:
                found.setdefault(name, []).append(at)
        return found

    @cached_property
    def inside(self) -> dict[str, list[int]]:
        """The operators that each module, "" for the model itself, or one in it computes, in order."""
        found: dict[str, list[int]] = {}
        for at, operator in enumerate(self.operators[1:], 1):
            parts = operator.module.split(".") if operator.module else []
            for length in range(len(parts) + 1):
                found.setdefault(".".join(parts[:length]), []).append(at)
        return found

    @cached_property
    def last(self) -> dict[int, int]:
        """The last operator that takes the result of each."""
        return {source: at for at, operator in enumerate(self.operators) for source in operator.inputs}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Model:
        """Raises ValueError where it is not what `to_json` gives, since a stranger's code may have made it."""
        try:
            operators = []
            for at, item in enumerate(data["operators"]):
                made: dict[str, Any] = {
                    key: tuple(value) if isinstance(value, list | tuple) else value for key, value in item.items()
                }
                made["work"], made["traffic"] = float(made["work"]), float(made["traffic"])
                one = Operator(**made)
                numbers = (*one.inputs, *one.shape, *one.dims, one.itemsize)
                if not all(type(n) is int for n in numbers) or any(not 0 <= n < at for n in one.inputs):
                    raise ValueError(f"operator {one.name} has numbers that cannot be")
                operators.append(one)
            weights = {str(name): int(size) for name, size in data["weights"].items()}
            missing = {name for one in operators for name in one.weights} - weights.keys()
            if not operators or missing:
                raise ValueError(f"nothing says how large {', '.join(missing) or 'the operators'} are")
            shapes = {str(name): tuple(map(int, shape)) for name, shape in data.get("shapes", {}).items()}
            uncuttable, called = (tuple(map(str, data.get(key, ()))) for key in ("uncuttable", "called"))
            return cls(tuple(operators), weights, uncuttable, shapes, called)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no description of a model: {error!r}") from None


def described(build: Callable[[], Any], shape: Sequence[int]) -> dict[str, Any]:
    """`read_model` as JSON, for who asks from another process; the model is built without memory for its weights where its code
    lets it be."""
    return read_model(build(), shape).to_json()


def read_model(module: Any, shape: Sequence[int]) -> Model:
    """The operators of a torch module in training mode for an input of that shape, [rows, ...], and of the parameters' dtype;
    nothing is run.

    The module is taken to the meta device, so it is of no use afterwards. Raises CaptureError where there is no such graph.
    """
    import torch

    names: dict[int, str] = {}
    called = {name: names.setdefault(id(value), name) for name, value in module.named_parameters(remove_duplicate=False)}
    module = module.to("meta").train()  # which makes of shared parameters several
    dtype = next((value.dtype for value in module.parameters() if value.is_floating_point()), torch.float32)
    example = torch.empty(tuple(shape), dtype=dtype, device="meta")
    try:
        program = torch.export.export(module, (example,), strict=False)
    except Exception as error:  # noqa: BLE001 - the model's code may raise anything
        lines = [line for line in str(error).splitlines() if line.strip()] or [""]
        raise CaptureError(
            f"the model has no graph for an input of shape {tuple(shape)}, and only a graph can be planned "
            f"({type(error).__name__}: {lines[0][:300]}); see that --input-size fits, and take Python that depends on "
            "values out of its forward pass; headrace compile names the lines"
        ) from None
    specs = program.graph_signature.input_specs
    reads = {spec.arg.name: called[spec.target] for spec in specs if spec.target in called}
    uncuttable = tuple(
        f"{name} ({type(part).__name__})"
        for name, part in module.named_modules()
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
        or (isinstance(part, torch.nn.modules.dropout._DropoutNd) and part.p > 0)
    )
    own = {name: value for name, value in module.named_parameters(remove_duplicate=False) if called[name] == name}
    nodes = program.graph_module.graph.nodes
    entered = [_entered(node) for node in nodes]
    return Model(
        tuple(_operators(program.graph_module.graph, reads)),
        {name: value.numel() * value.element_size() for name, value in own.items()},
        uncuttable,
        {name: tuple(value.shape) for name, value in own.items()},
        tuple(dict.fromkeys(name for names in entered for name in names if name)),
    )


def _entered(node: Any) -> list[str]:
    """The modules whose calls a node stands in, the innermost last."""
    stack = (node.meta.get("nn_module_stack") or {}).values()
    return [path.removeprefix("L['self'].").removeprefix("L__self___") for path, _ in stack]


def _operators(graph: Any, reads: Mapping[str, str]) -> list[Operator]:
    import torch

    users = [node for node in graph.nodes if node.op == "placeholder"]
    image = users[-1]
    made: dict[Any, int] = {image: 0}
    constant: dict[Any, tuple[str, ...]] = {node: (reads[node.name],) if node.name in reads else () for node in users[:-1]}
    found = [Operator("input", "input", "", (), tuple(image.meta["val"].shape), image.meta["val"].element_size())]
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        inputs = tuple(made[item] for item in node.all_input_nodes if item in made)
        weights = tuple(dict.fromkeys(name for item in node.all_input_nodes for name in constant.get(item, ())))
        if not inputs:
            constant[node] = weights
            continue
        value = node.meta["val"]
        first = next((item for item in _flat(value) if isinstance(item, torch.Tensor)), None)
        if first is None:
            constant[node] = ()
            continue
        name = getattr(node.target, "overloadpacket", node.target).__name__
        kind = KINDS.get(name, "other")
        direct = False
        given = [item.meta["val"] for item in node.args if isinstance(item, torch.fx.Node)]
        work = 2.0 * first.numel() * depth(name, [tuple(item.shape) for item in given if isinstance(item, torch.Tensor)])
        tensors = [item.meta["val"] for item in node.all_input_nodes if isinstance(item.meta.get("val"), torch.Tensor)]
        if kind in ("linear", "conv"):
            weight = node.args[1]
            own = constant.get(weight, ())
            weights = (*own, *(item for item in weights if item not in own))
            direct = weight.op == "placeholder" and bool(own) and node.args[0] in made
            if weight in made or node.args[0] not in made:  # a weight that is computed from the input
                kind, direct = "other", False
        sizes = sum(item.numel() * item.element_size() for item in tensors)
        outputs = sum(item.numel() * item.element_size() for item in _flat(value) if isinstance(item, torch.Tensor))
        if kind == "batch_norm":  # `batch_norm.py` writes it out: six operators that read and write
            sizes, outputs = 5 * sizes, 5 * outputs
        shape = tuple(int(size) for size in first.shape)
        found.append(
            Operator(
                node.name,
                kind,
                (_entered(node) or [""])[-1],
                inputs,
                shape,
                first.element_size(),
                weights,
                direct,
                work,
                0.0 if kind in NO_COPY and name != "cat" else float(sizes + outputs),
                _dims(name, node, first),
                _call(node, made),
            )
        )
        made[node] = len(found) - 1
    return found


def _flat(value: Any) -> list[Any]:
    return [item for part in value for item in _flat(part)] if isinstance(value, list | tuple) else [value]


def _dims(name: str, node: Any, value: Any) -> tuple[int, ...]:
    """Of a permutation where each dimension of the result is from; of others those that are not passed on one by one."""
    source = next(item.meta["val"] for item in node.all_input_nodes if "val" in item.meta)
    if isinstance(source, list | tuple):
        return ()
    rank = source.ndim
    args = [item for item in node.args[1:] if not hasattr(item, "meta")]
    if name in ("permute", "transpose", "t", "movedim"):
        order = list(range(rank))
        if name == "permute":
            order = [dim % rank for dim in args[0]]
        elif name == "movedim":
            return ()
        else:
            one, other = (args[0] % rank, args[1] % rank) if name == "transpose" else (0, rank - 1)
            order[one], order[other] = order[other], order[one]
        return tuple(order)
    if name in ("unbind", "select"):
        return ((args[0] if args else 0) % rank,)
    if name in ("chunk", "split", "split_with_sizes"):
        return ((args[1] if len(args) > 1 else node.kwargs.get("dim", 0)) % rank,)
    if name == "cat":
        return ((args[0] if args and type(args[0]) is int else 0) % value.ndim,)
    if name == "slice":
        return ((args[0] if args else 0) % rank,)
    if name == "mean":
        given = args[0] if args else list(range(rank))
        return tuple(dim % rank for dim in (given if isinstance(given, list | tuple) else [given]))
    if name in ("softmax", "_softmax", "log_softmax"):
        return (args[0] % rank,)
    if name in ("layer_norm", "native_layer_norm", "rms_norm"):
        return tuple(range(rank - len(args[0]), rank))
    return tuple(range(2, rank)) if KINDS.get(name) == "pool" else ()


def _call(node: Any, made: Mapping[Any, int]) -> Mapping[str, Any] | None:
    """The call as JSON, of tensors the shape, the dtype and whether they depend on the input; None where it cannot be."""
    import torch

    def plain(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            inner = value.meta.get("val")
            if not isinstance(inner, torch.Tensor):
                raise TypeError
            dtype = str(inner.dtype).removeprefix("torch.")
            return {"shape": list(inner.shape), "dtype": dtype, "rows": value in made}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise TypeError

    try:
        if not hasattr(node.target, "_schema"):
            return None
        return {
            "target": str(node.target),
            "args": plain(node.args),
            "kwargs": {key: plain(value) for key, value in node.kwargs.items()},
        }
    except TypeError:
        return None
