"""A program whose convolutions take and give 8-bit levels, by the kernels: static int8 for GPUs.

A convolution goes with the sum and the ReLU after it, which the kernel's epilogue computes from its 32-bit sums. Between two
such convolutions values stay levels; whatever else reads one gets floats in the program's own precision. Weights are signed and
per output channel, activations per tensor with a zero point, ranges are the least and largest values that the calibration
images reach. What a convolution with padding reads has no zero point, because around an image the kernel reads level 0; all
others are folded into the biases. Stems read floats:
an instruction of tensor cores multiplies 32 levels of the depth at once (PTX ISA, mma.m16n8k32), so that three channels would
cost as much as 32; what they give are levels where nobody reads anything else, and the largest of levels is taken of levels.
Floats stay convolutions of several groups, for which there is no kernel, and as many more as the precision asks
for, those that lose most in 8 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.fx import Node

from ...errors import BackendError
from ...specs import INT8, Precision
from ..base.calibration import Calibration, Observer, layers_in_floats, worst_first
from ..base.passes import Pass
from ..capture.rewrite import ProgramEditor
from .kernel_sites import CONVOLUTIONS, Site, find_sites

_LEAST_CHANNELS = 32
_ROWS_PER_RUN = 8

Layer = tuple[torch.Tensor, torch.Tensor | None]


def stored_layers(program: ExportedProgram) -> dict[str, Layer]:
    """Weight and bias of each convolution that has them stored, by the node's name: for `in_int8`, from before another pass
    rounds them."""
    editor = ProgramEditor(program)
    found = {}
    for node in editor.graph.nodes:
        if node.op == "call_function" and node.target in CONVOLUTIONS:
            weight, bias = editor.tensor(node.args[1]), node.args[2] if len(node.args) > 2 else None
            if weight is not None and (bias is None or editor.tensor(bias) is not None):
                found[node.name] = weight, editor.tensor(bias)
    return found


def int8_convolutions(layers: Mapping[str, Layer], calibration: Calibration, precision: Precision) -> Pass:
    """The pass `in_int8`."""
    return Pass("int8", lambda program: in_int8(program, layers, calibration, precision))


def in_int8(
    program: ExportedProgram, layers: Mapping[str, Layer], calibration: Calibration, precision: Precision = INT8
) -> ExportedProgram:
    """The program, which must be `functional`, with the convolutions in `layers` in int8 where that can be.

    Runs the calibration images, on the program's device, unless `calibration.of_program` knows their ranges. Raises
    BackendError when no convolution fits, or an image makes a value NaN or infinite.
    """
    editor = ProgramEditor(program)
    sites = _quantizable(editor, layers)
    if not sites:
        least = f"one group and at least {_LEAST_CHANNELS} input channels"
        raise BackendError(f"the graph has no convolution with stored weights, {least}, so int8 gains nothing")
    if not calibration.of_program:
        calibration.of_program.update(_observers(editor, sites, calibration.inputs))
    observers = calibration.of_program
    sites = _without_layers_in_floats(sites, layers, observers, precision)
    rewriting = _Rewriting(editor, layers, observers, sites)
    for site in sites:
        rewriting.put(site)
    return editor.finish()


def _quantizable(editor: ProgramEditor, layers: Mapping[str, Layer]) -> list[Site]:
    """Sites of convolutions, each the largest that overlaps none before it, in the order in which they compute."""
    taken: set[Node] = set()
    chosen = []
    for site in find_sites(editor):
        node = site.nodes[0]
        wide = node.name in layers and layers[node.name][0].shape[1] >= _LEAST_CHANNELS
        if site.operator == "conv2d" and wide and taken.isdisjoint(site.nodes):
            taken.update(site.nodes)
            chosen.append(site)
    order = {node: place for place, node in enumerate(editor.graph.nodes)}
    return sorted(chosen, key=lambda site: order[site.at])


def _without_layers_in_floats(
    sites: Sequence[Site], layers: Mapping[str, Layer], observers: Mapping[str, Observer], precision: Precision
) -> list[Site]:
    squares = [layers[site.nodes[0].name][0].double().square().sum((1, 2, 3)).cpu().numpy() for site in sites]
    seen = [(observers[_read(site)[0].name], observers[_given(site).name]) for site in sites]
    order = worst_first([(read, given, sums) for (read, given), sums in zip(seen, squares, strict=True)])
    worst = {sites[place].at for place in order[: layers_in_floats(precision, len(sites))]}
    return [site for site in sites if site.at not in worst]


def _may_make_levels(site: Site, layers: Mapping[str, Layer]) -> bool:
    """Whether a site can give levels in place of floats: a pooling, and a convolution that reads floats, with a known bias."""
    if site.operator == "max_pool2d":
        return True
    return site.operator == "conv2d" and site.nodes[0].name in layers and site.inputs[3] is None


def _read(site: Site) -> list[Node]:
    """The activations that a site reads: what is convolved, and what is added, if anything is."""
    x, _, _, residual = site.inputs
    assert x is not None, "a convolution reads something"
    return [x] if residual is None else [x, residual]


def _given(site: Site) -> Node:
    (result,) = site.outputs
    assert result is not None, "a convolution that nothing reads is no site"
    return result


def _observers(editor: ProgramEditor, sites: Sequence[Site], inputs: Sequence[np.ndarray[Any, Any]]) -> dict[str, Observer]:
    """What all calibration rows, a few at a time, make of the values that sites read and give, by the nodes' names."""
    found = {node.name: Observer() for site in sites for node in (*_read(site), _given(site))}

    def see(node: Node, value: Any) -> None:
        if node.name in found:
            _add(found[node.name], value, node.name)

    tensors = (editor.tensor(node) for node in editor.graph.nodes)
    device = next((item.device for item in tensors if item is not None), torch.device("cpu"))
    for start in range(0, len(inputs[0]), _ROWS_PER_RUN):
        rows = (torch.from_numpy(np.ascontiguousarray(item[start : start + _ROWS_PER_RUN])) for item in inputs)
        editor.watch((item.to(device) for item in rows), see)
    return found


def _add(observer: Observer, value: torch.Tensor, name: str) -> None:
    """Take in a value [n, c, h, w], whose sums its device computes."""
    wide = value.double()
    low, high, totals, squares = (
        item.cpu() for item in (wide.amin(), wide.amax(), wide.sum((0, 2, 3)), wide.square().sum((0, 2, 3)))
    )
    if not (torch.isfinite(low) and torch.isfinite(high)):
        raise BackendError(f"the calibration images make {name} NaN or infinite, so it has no range")
    observer.take(float(low), float(high), value[:, 0].numel(), totals.numpy(), squares.numpy())


@dataclass(frozen=True, kw_only=True)
class _Levels:
    """A node whose value is the levels of another's: value = (level - zero_point) * scale."""

    node: Node
    scale: float
    zero_point: int


class _Rewriting:
    """Puts sites into int8, in the program's order, so that each finds the levels of those before it."""

    def __init__(
        self, editor: ProgramEditor, layers: Mapping[str, Layer], observers: Mapping[str, Observer], sites: Sequence[Site]
    ) -> None:
        self._editor, self._layers, self._observers = editor, layers, observers
        self._padded = {_read(site)[0] for site in sites if any(site.numbers["padding"])}
        self._reading = {node for site in sites for node in site.nodes}
        # The largest site comes first of those that give one value.
        self._makers = {_given(site): site for site in reversed(find_sites(editor)) if _may_make_levels(site, layers)}
        self._levels: dict[Node, _Levels] = {}  # of values by the program's own nodes, also where nothing reads these any more

    def put(self, site: Site) -> None:
        read = [self._quantized(node, site.at) for node in _read(site)]
        x, residual = read[0], read[1] if len(read) == 2 else None
        name, result, numbers = site.nodes[0].name, _given(site), site.numbers
        weight, bias = (None if item is None else item.double() for item in self._layers[name])
        assert weight is not None, "a site has its weight stored"
        sizes = weight.abs().amax((1, 2, 3)).clamp(min=torch.finfo(torch.float32).tiny) / 127
        levels = (weight / sizes.reshape(-1, 1, 1, 1)).round().to(torch.int8)
        scale, zero_point = self._scale(result)
        shift = -x.zero_point * x.scale * sizes * levels.sum((1, 2, 3), dtype=torch.float64) + (0.0 if bias is None else bias)
        shift = (shift - (0.0 if residual is None else residual.zero_point * residual.scale)) / scale + zero_point
        arguments = (
            x.node,
            self._stored(f"{name}_levels", levels.contiguous(memory_format=torch.channels_last)),
            self._stored(f"{name}_scales", (sizes * x.scale / scale).float()),
            self._stored(f"{name}_bias", shift.float()),
            None if residual is None else residual.node,
            1.0 if residual is None else residual.scale / scale,
            *(numbers[key] for key in ("stride", "padding", "dilation")),
            zero_point if numbers["relu"] else -128,
        )
        computed = self._editor.put(site.at, torch.ops.headrace.conv2d_int8.default, *arguments)
        self._levels[result] = _Levels(node=computed, scale=scale, zero_point=zero_point)
        floats = self._converted("dequantize", self._levels[result], computed, result.meta["val"].dtype, before=site.at)
        result.replace_all_uses_with(floats)

    def _scale(self, value: Node) -> tuple[float, int]:
        return (_symmetric if value in self._padded else _scale)(self._observers[value.name])

    def _quantized(self, value: Node, before: Node) -> _Levels:
        """The levels of a value, which are computed once."""
        if value not in self._levels:
            scale, zero_point = self._scale(value)
            form = _Levels(node=value, scale=scale, zero_point=zero_point)
            self._levels[value] = self._made(value, form, self._reading, before)
        return self._levels[value]

    def _gives_levels(self, value: Node | None, readers: Set[Node]) -> bool:
        """Whether what computes a value that has no levels yet can give them alone."""
        return value in self._makers and value is not None and value.users.keys() <= readers

    def _made(self, value: Node, form: _Levels, readers: Set[Node], before: Node) -> _Levels:
        """The levels of a value: by what computes it, if nothing but `readers` reads it, else by a step of its own. They are of
        that form, or of that in which the levels that a pooling reads are there."""
        site = self._makers.get(value)
        x = None if site is None else site.inputs[0]
        known = None if x is None else self._levels.get(x)
        apart = known is not None and known.zero_point and value in self._padded
        # Fewer values are left behind a pooling than before it.
        later = known is None and site is not None and site.operator == "max_pool2d" and not self._gives_levels(x, {value})
        if site is None or x is None or apart or later or not value.users.keys() <= readers:
            return replace(form, node=self._converted("quantize", form, value, torch.int8, before=before))
        numbers = site.numbers
        if site.operator == "max_pool2d":
            known = known or self._made(x, form, {value}, site.at)
            windows = (numbers[key] for key in ("window", "stride", "padding", "dilation"))
            return replace(known, node=self._editor.put(site.at, torch.ops.headrace.max_pool2d.default, known.node, *windows))
        name = site.nodes[0].name
        weight, bias = self._layers[name]
        shift = (torch.zeros(len(weight)) if bias is None else bias.double().cpu()) / form.scale + form.zero_point
        arguments = (
            *site.nodes[0].args[:2],  # as they are now: what gave levels before gives floats by a step of its own
            self._stored(f"{name}_scales", torch.full((len(weight),), 1 / form.scale)),
            self._stored(f"{name}_bias", shift.float()),
            None,
            1.0,
            *(numbers[key] for key in ("stride", "padding", "dilation")),
            form.zero_point if numbers["relu"] else -128,
        )
        return replace(form, node=self._editor.put(site.at, torch.ops.headrace.conv2d_int8.default, *arguments))

    def _converted(self, operator: str, form: _Levels, value: Node, dtype: torch.dtype, *, before: Node) -> Node:
        scale = self._stored(f"{value.name}_scale", torch.tensor([form.scale]))
        zero_point = self._stored(f"{value.name}_zero_point", torch.tensor([form.zero_point], dtype=torch.int32))
        target = getattr(torch.ops.headrace, operator).default
        node: Node = self._editor.put(before, target, value, scale, zero_point, 0, dtype)
        return node

    def _stored(self, name: str, value: torch.Tensor) -> Node:
        device = next(iter(self._layers.values()))[0].device
        return self._editor.add_parameter(name, value.to(device))


def _scale(observer: Observer) -> tuple[float, int]:
    """Scale and zero point of levels from -128 to 127 that reach from the least value to the largest, and to 0 in any case."""
    low, high = min(observer.low, 0.0), max(observer.high, 0.0)
    scale = _or_one((high - low) / 255)
    return scale, max(-128, min(127, round(-128 - low / scale)))


def _symmetric(observer: Observer) -> tuple[float, int]:
    """The value of one level, where 127 of them reach the largest absolute value, and 0 as the zero point."""
    return _or_one(max(-observer.low, observer.high) / 127), 0


def _or_one(scale: float) -> float:
    return scale if scale >= torch.finfo(torch.float32).tiny else 1.0  # nothing but zeros
