"""Rates measured on the ranks of a job: what each computes while all do, and what the links of every axis move.

`python -m headrace.runtime.parallel.planner.measure MESH DEVICE MODEL.json RATES.json` under torchrun
does this for a job of its own.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from ....errors import InputError
from ....scratch import ScratchFolder
from ..mesh import world
from .operators import KINDS, NO_COPY, Model, Operator
from .rates import COLLECTIVES, Link, Rates, volume

_SMALL, _LARGE = 1 << 10, 1 << 20  # numbers of four bytes
_SECONDS = 0.1
"""How long each measurement goes on, but for five runs at least."""
_PAIRS, _SECONDS_OF_PAIR = 3, 0.05
_MOST_UPDATED = 1 << 24  # numbers of parameters
MOST_LOCAL = 16
_TURNS = 8  # of ranks that compute alone, at most
_CALLS_ALONE = 10


def measure(mesh: tuple[int, ...], device: str, model: Model | None = None) -> Rates:
    """The rates of this job, whose ranks make up the mesh and all call this alike; they get the same.

    With a model each of its operators is measured at its own shapes, on the batch's share of one rank. Raises InputError where
    the job has another number of ranks.
    """
    placed = world(device, mesh)
    share = 1 / placed.size()
    return Rates(
        linear=3 * 2 * 256 * 1024 * 1024 / _computed(device, torch.nn.functional.linear, (256, 1024), (1024, 1024)),
        conv=3 * 2 * 4 * 64 * 64 * 9 * 56 * 56 / _computed(device, _convolved, (4, 64, 56, 56), (64, 64, 3, 3)),
        matmul=3 * 2 * 16 * 128 * 128 * 128 / _computed(device, torch.matmul, (16, 128, 128), (16, 128, 128)),
        memory=3 * 3 * 4 * (1 << 22) / _computed(device, torch.add, (1 << 22,), (1 << 22,)),
        update=_updated(device, [] if model is None else model.shapes.values()),
        operator=_computed(device, torch.add, (8,), (8,)),
        links=tuple(_link(placed, axis, device) for axis in range(len(mesh))),
        operators={} if model is None else _operators(model, placed.size(), device),
        share=share,
        crowding=_crowding(device),
        source=f"measured on {placed.size()} ranks, {device}",
    )


def check_apart(mesh: tuple[int, ...], device: str) -> None:
    """Raises InputError where a job of that mesh cannot be started on this machine."""
    ranks = math.prod(mesh)
    if ranks > MOST_LOCAL:
        raise InputError(
            f"a mesh of {ranks} ranks is not measured on one machine (at most {MOST_LOCAL}): start this command on all of them "
            "with torchrun, or give --rates FILE.json"
        )
    if device == "cuda" and torch.cuda.device_count() < ranks:
        raise InputError(
            f"this machine has {torch.cuda.device_count()} GPUs, and the mesh has {ranks} ranks; give --rates FILE.json"
        )


def _why(said: str) -> str:
    """What stopped a rank, of all that it and torchrun said: its own error, or the signal of which only torchrun knows."""
    lines = [line for line in said.splitlines() if "ChildFailedError" not in line]
    told = (
        line.strip() for word in (r"\w*Error\b", r"\bSignal \d+ ", r"exitcode +: ") for line in lines if re.search(word, line)
    )
    return next(told, "no answer")


def measured_apart(mesh: tuple[int, ...], device: str, model: Model) -> dict[str, Any]:
    """`measure` by a job of its own on this machine, as JSON. Raises InputError where it cannot be."""
    check_apart(mesh, device)
    ranks = math.prod(mesh)
    with ScratchFolder() as folder:
        asked, answered = Path(folder, "model.json"), Path(folder, "rates.json")
        asked.write_text(json.dumps(model.to_json()), encoding="utf-8")
        job = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(ranks)]
        job += ["--log-dir", str(folder)]  # else it leaves one among the temporary files for ever
        program = ["-m", __name__, "x".join(map(str, mesh)), device, str(asked), str(answered)]
        env = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        if sys.platform == "linux" and device == "cpu":
            env.setdefault("GLOO_SOCKET_IFNAME", "lo")
        done = subprocess.run([sys.executable, *job, *program], env=env, capture_output=True, text=True, check=False)
        if done.returncode or not answered.is_file():
            raise InputError(f"the rates could not be measured ({_why(done.stderr)[:300]}); give --rates FILE.json")
        found: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
        return found


def _convolved(images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(images, weight, padding=1)


def _normalized(values: torch.Tensor) -> torch.Tensor:
    """A batch normalization as it is computed on several ranks, without what they exchange; see `batch_norm.py`."""
    dims = [dim for dim in range(values.ndim) if dim != 1]
    shape = [-1 if dim == 1 else 1 for dim in range(values.ndim)]
    count = values.numel() // values.shape[1]
    mean = values.sum(dims) / count
    centered = values - mean.view(shape)
    variance = (centered * centered).sum(dims) / count
    scaled = centered * torch.rsqrt(variance + 1e-5).view(shape)
    return scaled * torch.ones_like(mean).view(shape) + torch.zeros_like(mean).view(shape)


def _updated(device: str, shapes: Iterable[Sequence[int]]) -> float:
    """Bytes of parameters that Adam updates in a second, of the model's sizes: a small one stays in a cache from one of its
    operators to the next, and is updated three times as fast as one that does not."""
    values, left = [], _MOST_UPDATED
    for size in sorted(map(math.prod, shapes), reverse=True) or [1 << 20]:
        if (size := min(size, left)) > 0:
            values.append(torch.nn.Parameter(torch.ones(size, device=device)))
            left -= size
    if not values:  # a model without parameters
        values = [torch.nn.Parameter(torch.ones(1, device=device))]
    for value in values:
        value.grad = torch.ones_like(value)
    return 4 * sum(value.numel() for value in values) / timed(torch.optim.Adam(values).step)


def _computed(device: str, function: Callable[..., Any], *shapes: Sequence[int]) -> float:
    """Seconds of a forward and a backward pass of a function of tensors of these shapes."""
    given = [torch.randn(tuple(shape), device=device, requires_grad=True) for shape in shapes]
    return _both_ways(lambda: function(*given), given)


def _both_ways(run: Callable[[], Any], given: Sequence[torch.Tensor]) -> float:
    gradient: list[torch.Tensor] = []

    def step() -> None:
        result = run()
        result = result[0] if isinstance(result, tuple | list) else result
        if not isinstance(result, torch.Tensor) or not result.requires_grad:
            return
        if not gradient:
            gradient.append(torch.ones_like(result))
        for value in given:
            value.grad = None
        result.backward(gradient[0])

    others = torch.ones(1 << 21, device=given[0].device if given else None)
    return timed(step, between=lambda: others.add_(1))  # what other operators left in the caches of a core


def timed(step: Callable[[], Any], seconds: float = _SECONDS, between: Callable[[], Any] | None = None) -> float:
    """The mean of the seconds that it takes while all ranks do it, on the slowest rank, for which a step waits; `between` is
    done before each, and not timed."""
    first = min(_once(step) for _ in range(4))
    count = torch.tensor([max(5.0, min(200.0, seconds / max(first, 1e-6)))])
    _all(count, dist.ReduceOp.MAX)
    dist.barrier()
    seconds_each = []
    for _ in range(int(count)):
        if between is not None:
            between()
        seconds_each.append(_once(step))
    taken = torch.tensor([statistics.mean(seconds_each)], dtype=torch.float64)
    _all(taken, dist.ReduceOp.MAX)
    return float(taken)


def _crowding(device: str) -> float:
    """How many times as long a product takes while all ranks compute as while one does and the others wait."""
    rows, weight = torch.ones(256, 1024, device=device), torch.ones(1024, 1024, device=device)

    def compute() -> None:
        torch.mm(rows, weight)

    together = statistics.median([timed(compute, _SECONDS_OF_PAIR) for _ in range(_PAIRS)])
    alone = torch.zeros(1, dtype=torch.float64)
    for turn in range(0, dist.get_world_size(), -(-dist.get_world_size() // _TURNS)):
        dist.barrier()
        if dist.get_rank() == turn:
            means = [statistics.mean(_once(compute) for _ in range(_CALLS_ALONE)) for _ in range(_PAIRS)]
            alone = torch.tensor([statistics.median(means)], dtype=torch.float64)
    _all(alone, dist.ReduceOp.MAX)
    return max(1.0, together / float(alone))


def _all(value: torch.Tensor, operation: Any) -> None:
    """Reduce a plain value over all ranks, in place."""
    if dist.get_backend() == "nccl":
        moved = value.cuda()
        dist.all_reduce(moved, operation)
        value.copy_(moved)
    else:
        dist.all_reduce(value, operation)


def _once(step: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def _link(placed: DeviceMesh, axis: int, device: str) -> Link:
    """Collectives as they come in a step, between computations: ranks wait for each other, whose times are never alike."""
    group, ranks = placed.get_group(axis), placed.size(axis)
    if ranks == 1:
        return Link(0.0, 1e12)
    measured = {}
    rows, weight = torch.ones(96, 1024, device=device), torch.ones(1024, 1024, device=device)

    def compute() -> None:
        torch.mm(rows, weight)

    for name in COLLECTIVES:
        try:
            small, large = (
                _added(_moving(name, count - count % ranks, group, ranks, device), compute) for count in (_SMALL, _LARGE)
            )
        except (RuntimeError, NotImplementedError):  # what this backend has not, alike on all ranks
            continue
        measured[name] = (small, volume(name, ranks) * 4 * (_LARGE - _SMALL) / max(large - small, 1e-7))
    if dist.get_backend(group) == "gloo" and "all_gather" in measured:  # DTensor gathers and cuts there
        fixed, speed = measured["all_gather"]
        measured["all_to_all"] = (fixed, speed / ranks)
    latency, bandwidth = measured["point_to_point"]
    return Link(latency, bandwidth, measured)


def _added(move: Callable[[], Any], compute: Callable[[], Any]) -> float:
    """Seconds that moving data adds to a computation before it, the median of some pairs: a difference of two means drowns in
    what else a machine does."""

    def both() -> None:
        compute()
        move()

    move()
    pairs = [timed(both, _SECONDS_OF_PAIR) - timed(compute, _SECONDS_OF_PAIR) for _ in range(_PAIRS)]
    return max(statistics.median(pairs), 1e-7)


def _moving(name: str, count: int, group: Any, ranks: int, device: str) -> Callable[[], Any]:
    """One collective of so many float32 numbers as a whole."""
    whole, part = torch.ones(count, device=device), torch.ones(count // ranks, device=device)
    if name == "all_reduce":
        return lambda: dist.all_reduce(whole, group=group)
    if name == "all_gather":
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # its name before torch 2.13
        return lambda: gather(whole, part, group=group)
    if name == "reduce_scatter":
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        return lambda: scatter(part, whole, group=group)
    if name == "all_to_all":
        other = torch.empty_like(part[: len(part) - len(part) % ranks])
        return lambda: dist.all_to_all_single(other, part[: len(other)], group=group)
    own = dist.get_rank(group)
    ahead, behind = (dist.get_global_rank(group, (own + step) % ranks) for step in (1, -1))
    received = torch.empty_like(whole)

    def pass_on() -> None:
        sent = dist.isend(whole, ahead, group=group)
        dist.recv(received, behind, group=group)
        if sent is not None:
            sent.wait()

    return pass_on


def _operators(model: Model, ranks: int, device: str) -> dict[str, float]:
    """Seconds of each operator that computes, forward and backward, on a share of the rows; what is alike is measured once."""
    known: dict[str, float | None] = {}
    found = {}
    for operator in model.operators:
        if operator.call is None or operator.kind in NO_COPY or model.rows % ranks:
            continue
        key = json.dumps(operator.call)
        if key not in known:
            known[key] = _alone(operator, model.rows, ranks, device)
        if (seconds := known[key]) is not None:
            found[operator.name] = seconds
    return found


def _alone(operator: Operator, rows: int, ranks: int, device: str) -> float | None:
    """None where the operator does not run by itself."""
    assert operator.call is not None
    tensors: list[torch.Tensor] = []

    def made(value: Any) -> Any:
        if isinstance(value, Mapping):
            shape = list(value["shape"])
            if value["rows"] and shape and shape[0] % rows == 0:
                shape[0] //= ranks
            dtype = getattr(torch, value["dtype"])
            if not dtype.is_floating_point:
                return torch.zeros(shape, dtype=dtype, device=device)
            tensors.append(torch.randn(shape, dtype=dtype, device=device).requires_grad_())
            return tensors[-1]
        return [made(item) for item in value] if isinstance(value, list | tuple) else value

    try:
        library, name, overload = operator.call["target"].split(".")
        # The description is of a stranger's code: of torch's operators those alone run that compute.
        if library != "aten" or KINDS.get(name) != operator.kind or name.endswith("_"):
            return None
        target = getattr(getattr(torch.ops.aten, name), overload)
        args = [made(value) for value in operator.call["args"]]
        kwargs = {key: made(value) for key, value in operator.call["kwargs"].items()}
        if operator.kind == "batch_norm":
            return _both_ways(lambda: _normalized(args[0]), tensors[:1])
        target(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError):
        return None
    return _both_ways(lambda: target(*args, **kwargs), tensors)


def main(mesh: str, device: str, asked: str, answered: str) -> None:
    model = Model.from_json(json.loads(Path(asked).read_text(encoding="utf-8")))
    rates = measure(tuple(map(int, mesh.split("x"))), device, model)
    if dist.get_rank() == 0:
        Path(answered).write_text(json.dumps(rates.to_json()), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
