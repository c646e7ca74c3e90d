"""How fast a rank computes and the links of a mesh move data: measured, or given in a file for a mesh that is not there."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ....errors import InputError

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "point_to_point")
_KINDS = ("linear", "conv", "matmul", "memory", "operator")


@dataclass(frozen=True)
class Link:
    """The links along one axis of a mesh. `latency` is in seconds for one message, `bandwidth` in bytes per second of a rank.

    `measured` has, for a collective, its seconds with next to no data and the bytes per second beyond that, on as many ranks as
    the axis has; for the others the ring's formulas hold (Thakur et al. 2005, "Optimization of Collective Communication
    Operations in MPICH", section 4).
    """

    latency: float
    bandwidth: float
    measured: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def seconds(self, collective: str, size: float, ranks: int) -> float:
        """Of one collective over the axis; `size` is the bytes of the tensor as a whole."""
        if ranks == 1:
            return 0.0
        moved = volume(collective, ranks) * size
        if collective in self.measured:
            fixed, bandwidth = self.measured[collective]
            return fixed + moved / bandwidth
        rounds = {"all_reduce": 2 * (ranks - 1), "point_to_point": 1}.get(collective, ranks - 1)
        return rounds * self.latency + moved / self.bandwidth


def volume(collective: str, ranks: int) -> float:
    """What a rank sends in a ring, as a share of the tensor as a whole."""
    return {
        "all_reduce": 2 * (ranks - 1) / ranks,
        "all_gather": (ranks - 1) / ranks,
        "reduce_scatter": (ranks - 1) / ranks,
        "all_to_all": (ranks - 1) / ranks**2,
        "point_to_point": 1.0,
    }[collective]


@dataclass(frozen=True)
class Rates:
    """Of one rank while all compute: operations per second of `linear` layers, convolutions (`conv`) and matrix products
    (`matmul`), bytes per second of what only reads and writes (`memory`), each over a forward and a backward pass, and the
    seconds that any `operator` takes at least. `links` has one for each axis of the mesh, or one for all.

    `operators` has measured seconds, forward and backward, of operators by their names, on `share` of the batch. `crowding` is
    how many times as long a rank computes while all do as it does while the others wait: above 1 where ranks share cores.
    """

    linear: float
    conv: float
    matmul: float
    memory: float
    operator: float
    links: tuple[Link, ...]
    operators: Mapping[str, float] = field(default_factory=dict)
    share: float = 1.0
    update: float = 0.0
    """Bytes of parameters that Adam updates in a second; 0: as many as seven times those can be read and written."""
    crowding: float = 1.0
    source: str = "given"

    def link(self, axis: int) -> Link:
        return self.links[axis if len(self.links) > 1 else 0]

    def seconds(self, kind: str, work: float, traffic: float, *, training: bool, name: str = "", share: float = 1.0) -> float:
        """Of an operator of which a rank does this `work` and `traffic` (of its forward pass), a `share` of the whole. The
        backward pass does twice what the forward pass does."""
        times = 3.0 if training else 1.0
        if name in self.operators:
            whole = self.operators[name] / self.share
            return (max(whole * share, self.operator) if share < self.share else whole * share) * times / 3
        if not work and not traffic:
            return 0.0
        rate = {"linear": self.linear, "conv": self.conv}.get(kind, self.matmul)
        return times * max(self.operator / 3, work / rate, traffic / self.memory)

    @property
    def updates(self) -> float:
        return self.update or self.memory / 7

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any, axes: int) -> Rates:
        """Raises InputError saying what is missing or can be no rate; `axes` is how many the mesh has."""
        try:
            numbers = {name: float(data[name]) for name in _KINDS}
            links = []
            for item in data["links"]:
                measured = {name: (float(pair[0]), float(pair[1])) for name, pair in item.get("measured", {}).items()}
                if unknown := measured.keys() - set(COLLECTIVES):
                    raise InputError(f"rates: {', '.join(sorted(unknown))} is none of {', '.join(COLLECTIVES)}")
                links.append(Link(float(item["latency"]), float(item["bandwidth"]), measured))
            operators = {str(name): float(value) for name, value in data.get("operators", {}).items()}
            made = cls(
                linear=numbers["linear"],
                conv=numbers["conv"],
                matmul=numbers["matmul"],
                memory=numbers["memory"],
                operator=numbers["operator"],
                links=tuple(links),
                operators=operators,
                share=float(data.get("share", 1.0)),
                update=float(data.get("update", 0.0)),
                crowding=float(data.get("crowding", 1.0)),
            )
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise InputError(
                f"rates: {error!r}; they are an object with {', '.join(_KINDS)} and links, a list of objects with latency and "
                "bandwidth; docs/parallel.md has an example"
            ) from None
        rates = [numbers[name] for name in _KINDS[:4]] + [link.bandwidth for link in links] + [made.share]
        rates += [pair[1] for link in links for pair in link.measured.values()]
        times = [made.operator, made.update, *(link.latency for link in links), *operators.values()]
        times += [pair[0] for link in links for pair in link.measured.values()]
        if not all(0 < rate < math.inf for rate in rates) or not all(0 <= seconds < math.inf for seconds in times):
            raise InputError("rates: operations and bytes per second must be above 0, and seconds 0 or more")
        if not 1 <= made.crowding < math.inf:
            raise InputError("rates: crowding is how many times longer a rank computes while all do, 1 at least")
        if len(links) not in (1, axes):
            raise InputError(
                f"rates: there are {len(links)} links, and the mesh has {axes} axes; give one for each, or one for all"
            )
        return made


def read_rates(path: Path, axes: int) -> Rates:
    """The rates in a file of JSON. Raises InputError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"--rates {path}: {error}") from None
    return Rates.from_json(data, axes)
