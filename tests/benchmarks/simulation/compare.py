"""The policy beside those of other servers, over kinds of traffic: how much load each carries within a latency target.

    python -m tests.benchmarks.simulation --out docs/batching

The rivals' settings (a window, a size, a time-out, an objective) are chosen for each kind of traffic after the fact, the
best of those tried; Headrace's policy has the same settings everywhere. For all alike, a request whose deadline passes while
it waits is dropped then, and the client counts it as lost.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace.serving.batching.latency_table import LatencyTable
from headrace.serving.batching.policy import BatchPolicy

from .engine import Policy
from .rivals import AdditiveIncrease, EarlyDrop, FixedWindow
from .simulate import Machine, Simulation, simulate
from .traffic import Arrival, bursts, diurnal, mixed, poisson, rescaled

__all__ = ["MACHINES", "TRAFFIC", "Candidate", "Kind", "Outcome", "candidates", "compare", "sustainable", "trace_kind"]

WINDOWS = (0.0, 0.001, 0.002)
_STEPS = 9  # halvings of the interval in which the sustainable rate lies


def _affine(fixed: float, per_row: float, buckets: Sequence[int]) -> dict[int, float]:
    return {bucket: fixed + per_row * bucket for bucket in buckets}


# Two devices, each as two numbers: what a batch costs, and what a row adds. "wide" runs 13 times as many rows per second in
# full batches as alone, as accelerators do; "narrow" a quarter more, as int8 models do on CPU cores.
MACHINES: dict[str, Machine] = {
    "wide": Machine(
        profile=_affine(0.002, 0.0001, (1, 2, 4, 8, 16, 32)), slowdown=1.1, noise=0.05, decode_seconds=0.001, max_queue=1024
    ),
    "narrow": Machine(
        profile=_affine(0.00035, 0.00135, (1, 2, 4, 8, 16)), slowdown=1.1, noise=0.05, decode_seconds=0.001, max_queue=1024
    ),
}

# (rate, seconds, timeout, seed) -> arrivals
Kind = Callable[[float, float, float, int], list[Arrival]]


def _plain(times: Callable[..., list[float]], rate: float, seconds: float, timeout: float, seed: int) -> list[Arrival]:
    return mixed(times(rate, seconds, seed=seed), timeouts={timeout: 1.0})


def _varied(rate: float, seconds: float, timeout: float, seed: int) -> list[Arrival]:
    """A third of the requests allow four times as long; some carry two or four rows; one in ten is urgent."""
    return mixed(
        poisson(rate, seconds, seed=seed),
        rows={1: 0.8, 2: 0.12, 4: 0.08},
        timeouts={timeout: 2.0, 4 * timeout: 1.0},
        priorities={0: 0.9, 1: 0.1},
        seed=seed,
    )


TRAFFIC: dict[str, Kind] = {
    "poisson": partial(_plain, poisson),
    "bursts": partial(_plain, bursts),
    "diurnal": partial(_plain, diurnal),
    "varied": _varied,
}


def trace_kind(recorded: Sequence[Arrival]) -> Kind:
    """Recorded traffic as a kind: its rhythm, repeated for as long as asked, at the rate and with the timeout asked for."""
    return partial(_replayed, tuple(recorded))


def _replayed(recorded: Sequence[Arrival], rate: float, seconds: float, timeout: float, seed: int) -> list[Arrival]:
    once = rescaled(recorded, rate)
    length = len(once) / rate
    shift = random.Random(seed).random() * length
    turned = sorted(((one.at + shift) % length, one.rows) for one in once)
    repeats = max(1, round(seconds / length))
    return [Arrival(at + length * number, rows, timeout) for number in range(repeats) for at, rows in turned]


@dataclass(frozen=True)
class Candidate:
    """One policy with one setting; `make` gives a fresh one."""

    name: str
    setting: str
    make: Callable[[], Policy]

    def run(self, arrivals: Sequence[Arrival], machine: Machine, *, seed: int) -> Simulation:
        policy = self.make()
        ran = policy.ran if isinstance(policy, AdditiveIncrease) else None
        return simulate(policy, arrivals, machine, seed=seed, ran=ran)


def candidates(machine: Machine, target: float) -> list[Candidate]:
    """Headrace's policy, and every rival with every setting to try for a latency target in seconds."""
    table = LatencyTable(machine.profile)
    sizes = [bucket for bucket in table.buckets if table.seconds(bucket) <= target][-3:]
    return [
        Candidate("headrace", "", BatchPolicy),
        *_windows(table, target),
        *(
            Candidate("AIMD", f"{1e3 * objective:g} ms", partial(AdditiveIncrease, objective=objective))
            for objective in (target / 3, target / 2, target)
        ),
        *(Candidate("early drop", f"{size} rows", partial(EarlyDrop, size=size)) for size in sizes),
    ]


def _windows(table: LatencyTable, target: float) -> Iterator[Candidate]:
    """Fixed windows as an operator would set them.

    With all batch sizes, or those that leave time to wait for another batch; without a time-out, or with the longest wait
    after which a request may still be answered in time.
    """
    half = max((bucket for bucket in table.buckets if table.seconds(bucket) <= target / 2), default=table.buckets[0])
    for largest in sorted({half, table.largest}):
        last_call = target - table.seconds(largest)
        for timeout in (math.inf, last_call) if last_call > 0 else (math.inf,):
            for delay in WINDOWS:
                setting = f"{1e3 * delay:g} ms, {largest} rows" + (f", {1e3 * timeout:.3g} ms" if timeout < math.inf else "")
                yield Candidate(
                    "fixed window",
                    setting,
                    partial(FixedWindow, delay=delay, preferred=(largest,), largest=largest, queue_timeout=timeout),
                )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one policy carried, in requests per second.

    `sustainable` is the highest rate at which 99 % of all requests were answered in time; `overloaded` how many were answered
    in time when twice as many came as the device could run with full batches.
    """

    machine: str
    traffic: str
    policy: str
    setting: str
    sustainable: float
    overloaded_setting: str
    overloaded: float

    def to_json(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "traffic": self.traffic,
            "policy": self.policy,
            "setting": self.setting,
            "sustainable_per_second": round(self.sustainable, 1),
            "overloaded_setting": self.overloaded_setting,
            "overloaded_goodput_per_second": round(self.overloaded, 1),
        }


def sustainable(
    candidate: Candidate, kind: Kind, machine: Machine, *, target: float, requests: int, seed: int, share: float = 0.99
) -> float:
    """The highest mean rate at which that share of the requests is answered in time, to half a percent of the device's rate.

    Traffic of the same seed has the same shape at every rate, so that candidates meet the same bursts.
    """
    low, high = 0.0, 1.1 * machine.rows_per_second
    for _ in range(_STEPS):
        rate = (low + high) / 2
        done = candidate.run(kind(rate, requests / rate, target, seed), machine, seed=seed)
        low, high = (rate, high) if done.on_time_share >= share else (low, rate)
    return low


def _measured(
    job: tuple[str, str, Kind, Candidate], target: float, requests: int, seed: int
) -> tuple[str, str, str, str, float, float]:
    machine_name, traffic, kind, candidate = job
    machine = MACHINES[machine_name]
    rate = sustainable(candidate, kind, machine, target=target, requests=requests, seed=seed)
    double = 2 * machine.rows_per_second
    overloaded = candidate.run(kind(double, requests / double, target, seed), machine, seed=seed).goodput
    return machine_name, traffic, candidate.name, candidate.setting, rate, overloaded


def compare(
    pool: Executor,
    *,
    target: float = 0.015,
    requests: int = 20_000,
    seed: int = 0,
    machines: Sequence[str] = tuple(MACHINES),
    traffic: Mapping[str, Kind] = TRAFFIC,
) -> Iterator[Outcome]:
    """Every policy on every machine under every kind of traffic, with its best setting. The pool's processes share the work."""
    jobs = [
        (machine, name, kind, candidate)
        for machine in machines
        for name, kind in traffic.items()
        for candidate in candidates(MACHINES[machine], target)
    ]
    found: dict[tuple[str, str, str], list[tuple[str, float, float]]] = {}
    for machine, name, policy, setting, rate, overloaded in pool.map(
        partial(_measured, target=target, requests=requests, seed=seed), jobs
    ):
        found.setdefault((machine, name, policy), []).append((setting, rate, overloaded))
    for (machine, name, policy), tried in found.items():
        best = max(tried, key=lambda one: one[1])
        most = max(tried, key=lambda one: one[2])
        yield Outcome(
            machine=machine,
            traffic=name,
            policy=policy,
            setting=best[0],
            sustainable=best[1],
            overloaded_setting=most[0],
            overloaded=most[2],
        )
