"""Which kernels replace torch's nodes in a program: those that were measured faster, on the device and the shapes at hand.

Sites that compute the same from values of the same shapes, strides and dtypes are measured once, cuDNN's first, for which
nothing is compiled, then those on which torch spends most, each against torch's own nodes in turns. A kernel must win by 3 %
and agree with torch. Of sites that overlap, the one that saves most stands; of equals, the larger.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from ...kernels._ahead import compile_ahead
from ...kernels.conv import tiles_for
from ..base.numerics import largest_difference
from ..base.passes import Pass
from ..capture.rewrite import ProgramEditor
from .kernel_sites import Site, find_sites, put_kernels

_LEAST_GAIN = 1.03
_HOPE = 1.5  # times torch's or cuDNN's, up to which other tiles are tried
# Largest difference from torch's result as a share of its range: no proof, which the plan's parity is, but a sign of a kernel
# that fails on this GPU. torch itself may compute float32 in TF32.
_AGREES = {torch.float32: 1e-2, torch.float16: 1e-2, torch.bfloat16: 5e-2, torch.int8: 1e-2}


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A way to compute a site, on values that stay the same: by torch's own nodes, or by `operator`, with a tile of its own."""

    names: tuple[str, ...]
    operator: str = "torch"
    tile: list[int] | None = None
    run: Callable[[], Sequence[torch.Tensor]] = field(repr=False)

    def __call__(self) -> Sequence[torch.Tensor]:
        return self.run()


Timer = Callable[[Sequence[Contender]], Sequence[float]]
"""Median milliseconds of each, measured in turns."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured for sites of one kind, of which a program has `places`, and in how many of them the kernel stands.

    `operator` names the contender: a kernel of ours, or cuDNN's fused operator. `names` are torch's operators, `inputs` their
    shapes, strides and dtypes (None where the layer has none). Times are median milliseconds; that of the contender, with
    `tile`, is None where there is none, and `why` says why it stands nowhere.
    """

    operator: str
    names: tuple[str, ...]
    inputs: tuple[Mapping[str, Any] | None, ...]
    numbers: Mapping[str, Any]
    places: int
    torch_ms: float
    kernel_ms: float | None = None
    tile: list[int] | None = None
    chosen: int = 0
    why: str = ""

    @property
    def saved_ms(self) -> float:
        """What each place gains; 0 where the kernel does not win clearly."""
        wins = self.kernel_ms is not None and not self.why and self.kernel_ms * _LEAST_GAIN <= self.torch_ms
        return self.torch_ms - self.kernel_ms if wins and self.kernel_ms is not None else 0.0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "names": list(self.names), "inputs": list(self.inputs)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measured:
        """Read what `to_json` wrote; raises KeyError, TypeError or ValueError on anything else."""
        found = cls(**{**data, "names": tuple(data["names"]), "inputs": tuple(data["inputs"])})
        counts = (found.places, found.chosen)
        if not all(type(count) is int for count in counts) or not 0 <= found.chosen <= found.places:
            raise ValueError(f"a kernel cannot stand in {found.chosen!r} of {found.places!r} places")
        return found


def with_faster_kernels(
    program: ExportedProgram, inputs: Sequence[torch.Tensor], timer: Timer, *, seconds: float
) -> tuple[ExportedProgram, list[Measured]]:
    """The program with the kernels that are faster than torch on inputs like these, and what was measured.

    The program must be `functional`, and the inputs on its device. After about `seconds` no further kernel is compiled and
    measured.
    """
    editor = ProgramEditor(program)
    sites = find_sites(editor)
    if not sites:
        return program, []
    layouts = _layouts(editor, inputs)
    kinds: dict[str, list[Site]] = {}
    for site in sites:
        kinds.setdefault(_kind(site, layouts), []).append(site)
    race = _Autotuner(timer, layouts, inputs[0].device, time.monotonic() + seconds, seconds)
    measured = race.run(kinds)
    chosen = _without_overlaps(sites, {site: measured[kind] for kind, group in kinds.items() for site in group})
    put_kernels(editor, [(site, measured[_kind(site, layouts)].tile) for site in chosen])
    record = [_counted(item, sum(site in chosen for site in kinds[kind])) for kind, item in measured.items()]
    return editor.finish() if chosen else program, record


def faster_kernels(inputs: Sequence[torch.Tensor], timer: Timer, *, seconds: float, measured: list[Measured]) -> Pass:
    """The pass `with_faster_kernels`, which adds what it measured to `measured`."""

    def rewrite(program: ExportedProgram) -> ExportedProgram:
        program, found = with_faster_kernels(program, inputs, timer, seconds=seconds)
        measured.extend(found)
        return program

    return Pass("kernels", rewrite)


def _counted(item: Measured, chosen: int) -> Measured:
    if item.why or chosen:
        return replace(item, chosen=chosen)
    return replace(item, why="another kernel stands there" if item.saved_ms else "no clear gain over torch")


def _without_overlaps(sites: Sequence[Site], measured: Mapping[Site, Measured]) -> list[Site]:
    """The sites whose kernels win, in the program's order."""
    winning = [site for site in sites if measured[site].saved_ms > 0]
    taken: set[Node] = set()
    chosen = set()
    for site in sorted(winning, key=lambda site: (-measured[site].saved_ms, -len(site.nodes))):
        if taken.isdisjoint(site.nodes):
            taken.update(site.nodes)
            chosen.add(site)
    return [site for site in sites if site in chosen]


@dataclass
class _Autotuner:
    """Measures each kind of site. A convolution begins with its usual tile; where it comes near torch, others are tried in what
    time is left, and the best of them serves that convolution with every epilogue."""

    timer: Timer
    layouts: Mapping[Node, Mapping[str, Any]]
    device: torch.device
    deadline: float
    seconds: float
    tuned: dict[str, list[int]] = field(default_factory=dict)

    def run(self, kinds: Mapping[str, Sequence[Site]]) -> dict[str, Measured]:
        found = {kind: self._by_torch(sites) for kind, sites in kinds.items()}
        order = sorted(kinds, key=lambda kind: (not kinds[kind][0].by_cudnn, -found[kind].torch_ms * found[kind].places))
        self._compile((site, self._tiles(site)[:1]) for site in (kinds[kind][0] for kind in order))
        measured, cudnns = [], {}
        for kind in order:
            if time.monotonic() < self.deadline:
                found[kind] = self._by_kernel(kinds[kind][0], found[kind], self._tiles(kinds[kind][0])[:1])
                measured.append(kind)
                if kinds[kind][0].by_cudnn:
                    cudnns[kinds[kind][0].nodes] = found[kind].kernel_ms
            else:
                found[kind] = replace(found[kind], why=f"not measured: the {self.seconds:g} s for it were over")
        hopeful = {
            kind: kinds[kind][0]
            for kind in measured
            if kinds[kind][0].tiled and _is_hopeful(found[kind], cudnns.get(kinds[kind][0].nodes))
        }
        firsts = {self._convolution(site): site for site in reversed(hopeful.values())}  # the others take the tile of these
        self._compile((site, self._tiles(site)) for site in reversed(firsts.values()))
        for kind, site in hopeful.items():
            if time.monotonic() < self.deadline:
                found[kind] = self._tuned(site, found[kind])
        return found

    def _compile(self, wanted: Iterable[tuple[Site, Sequence[list[int] | None]]]) -> None:
        """Compile sites' kernels at once, in half the time that is left, which else would be spent on one after the other."""
        if self.device.type != "cuda":
            return
        contenders = (
            self._contender(site, self._values(site), operator=site.operator, tile=tile)
            for site, tiles in wanted
            if not site.by_cudnn
            for tile in tiles
        )
        compile_ahead(contenders, seconds=(self.deadline - time.monotonic()) / 2)

    def _tuned(self, site: Site, usual: Measured) -> Measured:
        convolution = self._convolution(site)
        known = self.tuned.get(convolution)
        again = self._by_kernel(site, replace(usual, why=""), self._tiles(site) if known is None else [known])
        if again.tile is not None:
            self.tuned[convolution] = again.tile
        return usual if again.why or (usual.tile == again.tile and not usual.why) else again

    def _by_torch(self, sites: Sequence[Site]) -> Measured:
        site = sites[0]
        (milliseconds,) = self.timer([self._contender(site, self._values(site))])
        return Measured(
            operator=site.operator,
            names=site.names,
            inputs=tuple(None if node is None else self.layouts[node] for node in site.inputs),
            numbers=site.numbers,
            places=len(sites),
            torch_ms=milliseconds,
        )

    def _by_kernel(self, site: Site, measured: Measured, tiles: Sequence[list[int] | None]) -> Measured:
        values = self._values(site)
        torchs = self._contender(site, values)
        wanted = torchs()
        contenders = [self._contender(site, values, operator=site.operator, tile=tile) for tile in tiles]
        reasons = [_disagreement(contender, wanted) for contender in contenders]
        able = [contender for contender, why in zip(contenders, reasons, strict=True) if not why]
        if not able:
            return replace(measured, why=reasons[0])
        try:
            times = self.timer(able) if len(able) > 1 else [0.0]
            best = able[min(range(len(able)), key=times.__getitem__)]
            of_torch, of_kernel = self.timer([torchs, best])
        except RuntimeError as error:  # it ran once, but cannot be recorded, or not beside torch's own
            return replace(measured, why=f"{site.operator} cannot be measured: {' '.join(str(error).split())[:300]}")
        return replace(measured, torch_ms=of_torch, kernel_ms=of_kernel, tile=best.tile)

    def _tiles(self, site: Site) -> list[list[int] | None]:
        if not site.tiled:
            return [None]
        (x, weight), result = site.inputs[:2], self.layouts[site.nodes[0]]["shape"]
        shape = self.layouts[weight]["shape"]  # type: ignore[index]
        element_bytes = getattr(torch, self.layouts[x]["dtype"]).itemsize  # type: ignore[index]
        stride, padding, dilation = (site.numbers[name] for name in ("stride", "padding", "dilation"))
        return [*tiles_for(result[0] * result[2] * result[3], shape, stride, padding, dilation, element_bytes)]

    def _convolution(self, site: Site) -> str:
        numbers = {name: value for name, value in site.numbers.items() if name != "relu"}
        return json.dumps([[self.layouts[node] for node in site.inputs[:2] if node is not None], numbers])

    def _contender(
        self, site: Site, values: Sequence[torch.Tensor | None], *, operator: str = "torch", tile: list[int] | None = None
    ) -> Contender:
        def run() -> Sequence[torch.Tensor]:
            return site.by_torch(*values) if operator == "torch" else site.by_kernel(*values, tile=tile)

        return Contender(names=site.names, operator=operator, tile=tile, run=run)

    def _values(self, site: Site) -> list[torch.Tensor | None]:
        """Random ones that lie in memory as those of the program do."""
        drawn = {node: _drawn(self.layouts[node], self.device) for node in site.inputs if node is not None}
        return [None if node is None else drawn[node] for node in site.inputs]


def _is_hopeful(measured: Measured, cudnn_ms: float | None) -> bool:
    """Whether another tile may change what became of a convolution, which cuDNN's fused operator computes in `cudnn_ms`; one
    that failed may have wanted too much memory."""
    best = measured.torch_ms if cudnn_ms is None else min(cudnn_ms, measured.torch_ms)
    return measured.kernel_ms is None or measured.kernel_ms <= _HOPE * best


def _disagreement(contender: Contender, wanted: Sequence[torch.Tensor]) -> str:
    """Why a kernel cannot stand there; empty when it runs and computes what torch does."""
    try:
        # An allocator gives the memory of what was just freed: a kernel that reads what it is to write would give NaN.
        for expected in wanted:
            torch.full_like(expected, float("nan") if expected.is_floating_point() else 0)
        given = contender()
        differences = [
            largest_difference(expected, actual) / _AGREES[expected.dtype]
            for expected, actual in zip(wanted, given, strict=True)
            if expected.dtype in _AGREES  # classes of equal scores may change places
        ]
    except NotImplementedError:
        return f"{contender.operator} does not run on this device"
    except Exception as error:  # noqa: BLE001 - what a GPU cannot compile or hold costs speed only; the record says what
        return f"{contender.operator} fails: {' '.join(str(error).split())[:300] or type(error).__name__}"
    return "" if max(differences, default=0.0) <= 1 else f"{contender.operator} does not compute what torch does on this device"


def _kind(site: Site, layouts: Mapping[Node, Mapping[str, Any]]) -> str:
    inputs = [None if node is None else layouts[node] for node in site.inputs]
    # A result that is not read need not be written by torch, and one that is, must.
    return json.dumps([site.operator, site.names, inputs, site.numbers, [node is None for node in site.outputs]])


def _drawn(layout: Mapping[str, Any], device: torch.device) -> torch.Tensor:
    shape, strides = layout["shape"], layout["strides"]
    length = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    generator = torch.Generator(device).manual_seed(0)  # the caller's random numbers go on as if nothing had been drawn
    values = torch.randn(max(length, 0), device=device, generator=generator)
    values = (values * 32).clamp(-128, 127) if layout["dtype"] == "int8" else values  # most of the levels
    return values.to(getattr(torch, layout["dtype"])).as_strided(shape, strides)


def _layouts(editor: ProgramEditor, inputs: Sequence[torch.Tensor]) -> dict[Node, Mapping[str, Any]]:
    """Shape, strides and dtype of every tensor that the program computes from these inputs, by running it once."""
    found: dict[Node, Mapping[str, Any]] = {}

    def see(node: Node, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            dtype = str(value.dtype).removeprefix("torch.")
            found[node] = {"shape": list(value.shape), "strides": list(value.stride()), "dtype": dtype}

    editor.watch(inputs, see)
    return found
