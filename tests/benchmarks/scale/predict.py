"""What the simulation says of many machines: how much one carries, how many it takes, and what a failure does to p99."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..simulation.traffic import poisson
from .balancer import Balancing, Failure
from .gpu import GpuFigures
from .model import Distribution, ServerSpec, Speeds, constant
from .simulation import Cluster, Result, opened, sustainable
from .sizing import Demand, Node, machines
from .stages import Recorded

__all__ = ["FRONT_ENDS", "HOST", "NODES", "Episode", "gpu_node", "gpu_server", "predict"]

# A usual machine of eight GPUs: 112 cores (two processors of 56, as in NVIDIA's DGX H200), of which each GPU's server has an
# eighth, and 200 Gbit/s of network for requests, an assumption: its cards could do more, its place in the network may do less.
HOST: Mapping[str, Any] = {"gpus": 8, "cores": 112, "network": 200e9 / 8}
# Event loops per GPU's server (`headrace serve --frontends`).
FRONT_ENDS = 4
# Targets for p99 in seconds: of the machine that was measured, and of GPUs.
CPU_LIMIT, GPU_LIMITS = 0.25, (0.015, 0.025, 0.05)
# A failure begins and ends at these seconds of a simulation of so many.
_FAILS, _BACK, _LENGTH = 5.0, 10.0, 15.0
# Machines of 400 GPUs.
NODES = 50


@dataclass(frozen=True, kw_only=True)
class Episode:
    """A cluster at one rate, in which some servers fail together; `before`, `during` and `after` are parts of one run."""

    what: str
    servers: int
    failing: int
    rate: float
    outcomes: Mapping[str, int]
    before: Mapping[str, Any]
    during: Mapping[str, Any]
    after: Mapping[str, Any]
    p99_ms: Sequence[tuple[float, float | None]]

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "outcomes": dict(self.outcomes), "p99_ms": [list(pair) for pair in self.p99_ms]}


def gpu_server(recorded: Recorded, gpu: GpuFigures) -> ServerSpec:
    """One GPU with its part of the host: stages of the cores as measured here with all of them busy, batches of the GPU."""
    spec = recorded.spec
    slower = 1 / spec.speeds.together[-1]
    cores = HOST["cores"] // HOST["gpus"]
    return ServerSpec(
        speeds=Speeds.ideal(cores),
        batch={bucket: constant(seconds) for bucket, seconds in gpu.seconds.items()},
        decode=Distribution(tuple(slower * value for value in spec.decode.quantiles)),
        handling=slower * spec.handling,
        handing_over=spec.handing_over,
        front_ends=FRONT_ENDS,
        decoders=cores,
        max_queue=4096,
        gpu=True,
    )


def gpu_node(recorded: Recorded, gpu: GpuFigures, *, gpu_decoding: float = 0.0) -> Node:
    """Eight of them as one machine."""
    server = gpu_server(recorded, gpu)
    return Node(
        gpus=HOST["gpus"],
        cores=HOST["cores"],
        gpu_rate=gpu.online,
        decode=server.decode.mean,
        handling=server.handling,
        network=HOST["network"],
        gpu_decoding=gpu_decoding,
    )


def predict(recorded: Recorded, gpu: GpuFigures, demand: Demand, *, requests: int = 8000, seed: int = 0) -> dict[str, Any]:
    """All that docs/scale.md says of clusters, as plain values. Rates are searched with so many `requests` each."""
    peak = demand.peak_rate
    alone = Cluster(spec=recorded.spec)
    best = max(run["requests_per_second"]["median"] for run in recorded.closed)
    carried = sustainable(alone, limit=CPU_LIMIT, requests=requests, start=best / 2, seed=seed)
    tight = machines(peak, carried, utilization=1.0, spare=0)
    roomy = machines(peak, carried)
    server = gpu_server(recorded, gpu)
    host_rate = gpu_node(recorded, gpu).host_rate() / HOST["gpus"]
    per_limit = {
        limit: sustainable(Cluster(spec=server), limit=limit, requests=requests, start=host_rate / 2, seed=seed)
        for limit in GPU_LIMITS
    }
    carried_by_gpu = per_limit[GPU_LIMITS[-1]]
    few = machines(peak, carried_by_gpu) if carried_by_gpu else 0
    of_machine = tuple(range(HOST["gpus"]))
    episodes = [
        _episode("measured machines, none to spare", recorded.spec, tight, (0,), peak, CPU_LIMIT, seed),
        _episode("measured machines, at 70 % and one to spare", recorded.spec, roomy, (0,), peak, CPU_LIMIT, seed),
    ]
    if few:
        episodes.append(_episode("machines of one GPU", server, few, (0,), peak, GPU_LIMITS[-1], seed))
    episodes.append(
        _episode(f"{8 * NODES} GPUs, eight to a machine", server, 8 * NODES, of_machine, peak, GPU_LIMITS[-1], seed)
    )
    return {
        "cpu": {"limit_ms": 1e3 * CPU_LIMIT, "per_machine": round(carried, 1), "tight": tight, "machines": roomy},
        "gpu": {
            "per_gpu": [{"limit_ms": 1e3 * limit, "rate": round(rate, 1)} for limit, rate in per_limit.items()],
            "machines": few,
        },
        "episodes": [episode.to_json() for episode in episodes],
    }


def _episode(
    what: str, spec: ServerSpec, servers: int, failing: tuple[int, ...], rate: float, limit: float, seed: int
) -> Episode:
    """A run with one failure; every request allows `limit` seconds."""
    failure = Failure(_FAILS, failing, _BACK - _FAILS)
    cluster = Cluster(spec=spec, servers=servers, balancing=Balancing(), failures=(failure,))
    result = opened(cluster, poisson(rate, _LENGTH, seed=seed), timeout=limit, warm_up=1.0, seed=seed)
    half = [index / 2 for index in range(2, int(2 * _LENGTH))]
    return Episode(
        what=what,
        servers=servers,
        failing=len(failing),
        rate=rate,
        outcomes=dict(result.outcomes),
        before=_part(result, 1.0, _FAILS, limit),
        during=_part(result, _FAILS, _BACK, limit),
        after=_part(result, _BACK + 1.0, _LENGTH, limit),
        p99_ms=[(begin, _part(result, begin, begin + 0.5, limit)["p99_ms"]) for begin in half],
    )


def _part(result: Result, begin: float, end: float, limit: float) -> dict[str, Any]:
    part = result.between(begin, end)
    latency = part.latency(0.99)
    in_time = part.in_time(limit)
    return {
        "p99_ms": None if math.isnan(latency) else round(1e3 * latency, 2),
        "in_time": None if math.isnan(in_time) else round(in_time, 5),
    }
