"""How long a candidate will take, before it is built: by the work of the graph, what this machine reached in plain products of
each precision, and how far earlier plans found each backend from that.

Only the order counts, and how many times longer one takes than another. After S. Williams, A. Waterman and D. Patterson,
"Roofline", Communications of the ACM 52 (2009), layer by layer.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...specs import Precision
from ..base.cache_folder import cache_folder
from ..base.fingerprint import fingerprint

if TYPE_CHECKING:
    from torch.export import ExportedProgram

log = logging.getLogger("headrace.cache")

_SIDE, _CHANNELS, _PIXELS, _COPIED, _CALLS = 384, 128, 30, 1 << 23, 5
_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "int8": 1.0, "fp8": 1.0}
_NEW = 0.5  # how much the latest plan counts beside all before it
_SMALL = 2e-4  # seconds: of smaller graphs the calls between layers take most
_FOR_ALL = "all but small graphs"
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "convolution")


@dataclass(frozen=True)
class Layer:
    """One convolution or matrix product: operations of a row (a product and a sum each), elements that it reads and writes for
    a row, and elements of its weights."""

    operations: int
    elements: int
    weights: int
    convolution: bool = True


@dataclass(frozen=True)
class Work:
    """What a graph has to compute. `kind` is what earlier plans of like graphs are told by."""

    layers: tuple[Layer, ...]

    @property
    def kind(self) -> str:
        """ "dense", "products" where most is matrix products, as in transformers, of which ONNX Runtime's int8 makes less than
        of convolutions, or "sparse" where there are few operations for each element that is moved, as in depthwise ones."""
        operations = sum(layer.operations for layer in self.layers)
        moved = sum(layer.elements + layer.weights for layer in self.layers)
        convolved = sum(layer.operations for layer in self.layers if layer.convolution)
        if operations <= 100 * moved:
            return "sparse"
        return "dense" if 2 * convolved >= operations else "products"


@dataclass
class Machine:
    """Operations and bytes per second of one core, and how many times longer than those say graphs take, by kind and form."""

    operations: dict[str, float]
    bytes: float
    slowness: dict[str, float] = field(default_factory=dict)

    @classmethod
    def here(cls) -> Machine:
        """This one: measured once, then as the cache keeps it."""
        path = _path()
        try:
            if path is not None:
                known = json.loads(path.read_text(encoding="utf-8"))
                return cls(dict(known["operations"]), float(known["bytes"]), dict(known["slowness"]))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("what was learned of this machine cannot be read and is measured anew: %s: %s", path, error)
        operations, moved = _peaks()
        return cls(dict(operations), moved)

    def keep(self) -> None:
        """For later processes. A cache that cannot be written costs time, never an answer."""
        path = _path()
        if path is None:
            return
        facts = {"operations": self.operations, "bytes": self.bytes, "slowness": self.slowness}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_suffix(f".{os.getpid()}")
            aside.write_text(json.dumps(facts, indent=1), encoding="utf-8")
            aside.replace(path)
        except OSError as error:
            log.warning("what was learned of this machine is not kept: %s", error)


class Prediction:
    """Of one graph on one machine. Forms are named by backend and precision, such as "openvino int8+bf16"."""

    def __init__(self, work: Work, machine: Machine) -> None:
        self.work, self.machine = work, machine

    def seconds(self, backend: str, precision: Precision, rows: int, *, efficiency: float) -> float:
        """Of one call on one core; `efficiency` is the share of the machine's peak that the backend is thought to reach where
        nothing was learned."""
        return self._bound(precision, rows) * self._slowness(f"{backend} {precision}", 1 / efficiency)

    def learn(self, found: Mapping[tuple[str, Precision], float], rows: int, efficiencies: Mapping[str, float]) -> None:
        """Take in what was measured: seconds by backend and precision, at so many rows, interleaved.

        Only ratios count: a machine that was busy was so for all of them.
        """
        if len(found) < 2:
            return
        known, now = {}, {}
        for (backend, precision), seconds in found.items():
            form = f"{backend} {precision}"
            known[form] = self._slowness(form, 1 / efficiencies[backend])
            now[form] = seconds / self._bound(precision, rows)
        common = statistics.median(math.log(now[form] / known[form]) for form in now)
        for form, slow in now.items():
            # Between small layers it is calls that take the time, which says nothing of a large graph.
            for kind in (self._kind,) if self.small else (self._kind, _FOR_ALL):
                before = self.machine.slowness.get(f"{kind}: {form}", known[form])
                weight = _NEW if f"{kind}: {form}" in self.machine.slowness else 1.0
                self.machine.slowness[f"{kind}: {form}"] = math.exp(
                    (1 - weight) * math.log(before) + weight * (math.log(slow) - common)
                )

    @property
    def small(self) -> bool:
        """Whether the graph is so small that its work does not tell much."""
        return self._bound(Precision("fp32"), 1) < _SMALL

    @property
    def _kind(self) -> str:
        return "small" if self.small else self.work.kind

    def _slowness(self, form: str, otherwise: float) -> float:
        known = self.machine.slowness
        return known.get(f"{self._kind}: {form}", known.get(f"{_FOR_ALL}: {form}", otherwise))

    def _bound(self, precision: Precision, rows: int) -> float:
        """Seconds that the machine needs at least, by its own peaks."""
        peak = self.machine.operations.get(precision.dtype, self.machine.operations["fp32"])
        if precision.dtype == "int8":
            # Torch's product is plain code on processors without instructions for int8. OpenVINO and ONNX Runtime have others
            # there, which are at worst about as fast as fp32.
            peak = max(peak, self.machine.operations["fp32"])
        size = _BYTES[precision.dtype]
        return 1e-9 + sum(
            max(rows * layer.operations / peak, size * (rows * layer.elements + layer.weights) / self.machine.bytes)
            for layer in self.work.layers
        )


def work_of(program: ExportedProgram) -> Work:
    """Of a captured program. Sizes that depend on the batch are those of its example, divided by its rows."""
    import torch

    def shape(node: Any) -> tuple[int, ...]:
        value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
        if not isinstance(value, torch.Tensor):
            return ()
        return tuple(size if isinstance(size, int) else size.node.hint or 1 for size in value.shape)

    nodes = list(program.graph.nodes)
    inputs = [shape(node) for node in nodes if node.op == "placeholder" and node.name in program.graph_signature.user_inputs]
    rows = next((size[0] for size in inputs if size), 1)
    fixed = {node.name for node in nodes if node.op == "placeholder"} - set(program.graph_signature.user_inputs)
    layers = []
    for node in nodes:
        name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
        given = [item for item in node.args if isinstance(item, torch.fx.Node)]
        shapes = [shape(item) for item in given]
        if (made := shape(node)) and (deep := depth(name, shapes)):
            sizes = [math.prod(size) for size in shapes]
            weights = sum(size for size, item in zip(sizes, given, strict=True) if item.name in fixed)
            moved = sum(sizes) - weights + math.prod(made)
            layers.append(Layer(2 * math.prod(made) * deep // rows, moved // rows, weights, name in _CONVOLUTIONS))
    return Work(tuple(layers))


def work_of_portable(path: Path) -> Work:
    """Of an ONNX graph, whose symbolic sizes count as one row."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False)).graph
    weights = {item.name: tuple(item.dims) for item in graph.initializer}
    values = (*graph.input, *graph.output, *graph.value_info)
    shapes = {value.name: tuple(size.dim_value or 1 for size in value.type.tensor_type.shape.dim) for value in values}
    layers = []
    for node in graph.node:
        given = [weights.get(name) or shapes.get(name, ()) for name in node.input]
        deep = depth({"Conv": "conv2d", "Gemm": "linear", "MatMul": "matmul"}.get(node.op_type, ""), given)
        if deep and (made := shapes.get(node.output[0])):
            own = sum(math.prod(weights[name]) for name in node.input if name in weights)
            moved = sum(math.prod(size) for size, name in zip(given, node.input, strict=True) if name not in weights)
            layers.append(Layer(2 * math.prod(made) * deep, moved + math.prod(made), own, node.op_type == "Conv"))
    return Work(tuple(layers))


def depth(name: str, shapes: list[tuple[int, ...]]) -> int:
    """Products that are summed for one element of the result; 0 for what is no convolution or product."""
    if not shapes or not shapes[0]:
        return 0
    if name in _CONVOLUTIONS:
        return math.prod(shapes[1][1:])
    if name in ("addmm", "baddbmm"):
        return shapes[1][-1]
    if name in ("linear", "matmul", "mm", "bmm"):
        return shapes[0][-1]
    if name == "scaled_dot_product_attention":
        return 2 * shapes[1][-2]
    return 0


@functools.cache
def _peaks() -> tuple[Mapping[str, float], float]:
    """Operations per second by precision in plain products, and bytes per second in copies, of one thread by its own time:
    what else the machine does counts as little as can be."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        own = torch.Generator().manual_seed(0)  # a script that draws its own numbers goes on as if nothing had been drawn
        pair = torch.randn(2, _SIDE, _SIDE, generator=own)
        whole = torch.randint(-100, 100, (2, _SIDE, _SIDE), dtype=torch.int8, generator=own)
        low = pair.bfloat16()
        image = torch.randn(1, _CHANNELS, _PIXELS, _PIXELS, generator=own)
        kernel = torch.randn(_CHANNELS, _CHANNELS, 3, 3, generator=own)
        faint = image.bfloat16(), kernel.bfloat16()
        copied, target = torch.zeros(_COPIED), torch.zeros(_COPIED)
        square, convolved = 2 * _SIDE**3, 18 * (_CHANNELS * (_PIXELS - 2)) ** 2
        calls: list[tuple[str, int, Callable[[], object]]] = [
            ("fp32", square, lambda: pair[0] @ pair[1]),
            (
                "fp32",
                convolved,
                lambda: torch.conv2d(image, kernel),
            ),  # another library's, which on some processors is far ahead
            ("bf16", square, lambda: low[0] @ low[1]),
            ("bf16", convolved, lambda: torch.conv2d(*faint)),
            ("int8", square, lambda: torch._int_mm(whole[0], whole[1])),
        ]
        operations: dict[str, float] = {}
        for name, count, call in calls:
            operations[name] = max(operations.get(name, 0.0), count / _least(call))
        return operations, 8 * _COPIED / _least(lambda: target.copy_(copied))
    finally:
        torch.set_num_threads(before)


def _least(call: Callable[[], object]) -> float:
    call()
    return max(1e-6, min(_own_seconds(call) for _ in range(_CALLS)))


def _own_seconds(call: Callable[[], object]) -> float:
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def _path() -> Path | None:
    folder = cache_folder()
    facts = {name: value for name, value in fingerprint().items() if name != "gpus"}
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    return None if folder is None else folder / "machines" / f"{key}.json"
