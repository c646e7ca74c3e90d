"""Every operator of kernels/ on shapes that models have: right against float64, then timed beside torch's own.

Arguments are copied until they together exceed the cache several times, and a recorded graph calls the operator once on each
copy: so memory is read from memory, and the time holds no Python. The share of the roofline is the time that the bytes moved
(or, if longer, the operations) need at the measured peaks, over the time taken. What takes less than a few microseconds even
at the roof is not judged by it: starting a kernel takes as long.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from gpu.bench import described, lost
from gpu.roofline import cache_bytes
from gpu.timing import in_turns, replayed

if TYPE_CHECKING:
    import torch
    from gpu.bench import Bench
    from gpu.cases import Arguments, Bound, Case

MEMORY_TARGET, CUDNN_TARGET = 0.8, 0.7
_LEAST_SECONDS = 4e-6
_MOST_COPIES = 24


def section(bench: Bench, name: str) -> None:
    import torch
    from gpu.cases import cases

    from headrace import kernels
    from headrace.kernels import _launch

    operators = {name: operator for kernel in kernels.discover().values() for name, operator in kernel.operators.items()}
    wanted = list({(case.operator, case.shape): case for case in cases(quick=bench.quick)}.values())  # small ones are the same
    wanted = [case for case in wanted if not bench.arguments.operators or case.operator in bench.arguments.operators]
    found = bench.found[name]
    found["runs"] = "Triton" if bench.device == "cuda" else "Triton's interpreter" if _launch.INTERPRETED else "the references"
    if bench.device == "cuda" and _launch.triton is None:
        found["runs"] = "the references"
        bench.failed("kernels: Triton is not installed, so the references are measured")
    found["targets"] = {"share of the measured copy bandwidth": MEMORY_TARGET, "share of cuDNN's speed": CUDNN_TARGET}
    found["without a case"] = sorted({*operators} - {case.operator for case in cases(quick=True)})
    lines = found.setdefault("cases", [])
    done = {(line["operator"], line["shape"]) for line in lines}  # by a process that this one continues
    for case in [case for case in _spread(wanted) if (case.operator, case.shape) not in done]:
        line: dict[str, Any] = {"operator": case.operator, "shape": case.shape}
        lines.append(line)
        if not bench.quick and bench.here < 3:
            line["status"] = "skipped: no time left"
            continue
        try:
            with torch.no_grad():
                _measured(bench, case, operators[case.operator], line)
        except Exception as error:  # noqa: BLE001 - one kernel's failure is a result; the others are measured
            line["status"] = f"failed: {described(error)}"
        if line["status"] != "right":
            bench.failed(f"kernel {case.operator} {case.shape}: {line['status']} {line.get('errors', '')}")
            if lost(bench.device):
                break
        else:
            bench.say(_said(line))
    judged = [line for line in lines if line.get("reached") is not None]
    missed = [f"{line['operator']} {line['shape']}" for line in judged if not line["reached"]]
    found["reached"], found["missed"] = len(judged) - len(missed), missed
    skipped = sum(line["status"].startswith("skipped") for line in lines)
    bench.say(f"{found['reached']} of {len(judged)} kernels reach their target; {skipped} are skipped")


def _spread(wanted: Iterable[Case]) -> Iterator[Case]:
    """The first case of every operator, then the second of each: where time ends, none is left out whole."""
    by_operator: dict[str, list[Case]] = {}
    for case in wanted:
        by_operator.setdefault(case.operator, []).append(case)
    for row in zip_longest(*by_operator.values()):
        yield from (case for case in row if case is not None)


def _measured(bench: Bench, case: Case, operator: Any, line: dict[str, Any]) -> None:
    given = case.make(bench.device)
    got = _tuple(operator.run(*given))
    exact = _tuple(case.expected(operator.reference, given, got))
    line["errors"] = [_error(one, wanted, bound) for one, wanted, bound in zip(got, exact, case.bounds, strict=True)]
    line["status"] = "right" if all(item["right"] for item in line["errors"]) else "wrong"
    del got, exact
    line["bytes"], line["operations"] = operator.bytes_moved(*given), case.operations
    beyond = 4 * cache_bytes(bench.device)
    count = 1 if bench.device == "cpu" else max(1, min(_MOST_COPIES, -(-beyond // line["bytes"])))
    copies = [given, *(_copied(given) for _ in range(count - 1))]
    ours, line["timed"] = replayed(operator.run, copies, bench.device)
    with _fastest_convolutions():
        theirs, line["peer_timed"] = replayed(case.peer, [case.peer_arguments(one) for one in copies], bench.device)
        rounds = 2 if bench.quick else 7
        taken = in_turns({"kernel": ours, "peer": theirs}, bench.device, 1.0 if bench.quick else 12.0, rounds=rounds)
    each = {what: {key: item[key] / count for key in ("ms", "spread_ms")} for what, item in taken.items()}
    seconds = each["kernel"]["ms"] / 1e3
    line |= {
        "copies": count,
        "us": 1e6 * seconds,
        "spread_us": 1e3 * each["kernel"]["spread_ms"],
        "bytes_per_second": line["bytes"] / seconds,
        "peer": case.peer_is,
        "peer_us": 1e3 * each["peer"]["ms"],
        "peer_spread_us": 1e3 * each["peer"]["spread_ms"],
        "times_as_fast": each["peer"]["ms"] / each["kernel"]["ms"],
    }
    if case.operations:
        line["operations_per_second"] = case.operations / seconds
    _judge(bench, case, line, seconds)


@contextlib.contextmanager
def _fastest_convolutions() -> Iterator[None]:
    """cuDNN tries what it has and takes the fastest. Not for the references: in float64 trying takes seconds."""
    import torch

    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _judge(bench: Bench, case: Case, line: dict[str, Any], seconds: float) -> None:
    """The share of the roofline, and whether the target is reached; None where nothing can be said."""
    roof = bench.found["roofline"]
    bandwidth, peak = roof.get("copy_bytes_per_second"), roof.get("operations_per_second", {}).get(case.precision)
    line["share_of_roofline"] = line["reached"] = None
    least = 0.0
    if bandwidth and (peak or not case.operations):
        least = max(line["bytes"] / bandwidth, case.operations / peak if case.operations else 0.0)
        line["share_of_roofline"] = least / seconds
    if bench.device == "cpu" or bench.quick:
        line["not_judged"] = "a trial"
    elif case.operations:
        line["reached"] = line["times_as_fast"] >= CUDNN_TARGET
    elif least >= _LEAST_SECONDS:
        line["reached"] = line["share_of_roofline"] >= MEMORY_TARGET
    elif bandwidth:
        line["not_judged"] = f"{1e6 * least:.2g} us at the roof: starting it takes as long"


def _error(got: torch.Tensor, wanted: torch.Tensor, bound: Bound) -> dict[str, Any]:
    """The largest difference, and the share of elements that lie further from float64 than the bound."""
    if got.shape != wanted.shape:
        return {"right": False, "why": f"the shape is {list(got.shape)}, not {list(wanted.shape)}"}
    apart = (got.double() - wanted.double()).abs()
    beyond = ~(apart <= bound.relative * wanted.double().abs() + bound.absolute)  # which NaN is
    share = beyond.double().mean().item()
    largest = apart.max().item()
    right = share == 0 or (share <= bound.share and largest <= bound.most)
    return {"right": right, "largest": largest, "share_beyond": share, "bound": vars(bound)}


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _copied(given: Arguments) -> Arguments:
    return tuple(value.clone() if hasattr(value, "clone") else value for value in given)


def _said(line: dict[str, Any]) -> str:
    share = line["share_of_roofline"]
    parts = [f"{line['operator']} {line['shape']}: {line['us']:.4g} us"]
    if "operations_per_second" in line:
        parts.append(f"{line['operations_per_second'] / 1e12:.3g} TFLOP/s, {line['times_as_fast']:.2f}x {line['peer'][:17]}")
    else:
        parts.append(f"{line['bytes_per_second'] / 1e9:.4g} GB/s, {line['times_as_fast']:.2f}x {line['peer']}")
    parts.append("" if share is None else f"{share:.0%} of the roofline")
    verdict = {True: "target reached", False: "TARGET MISSED", None: line.get("not_judged", "")}[line["reached"]]
    return ", ".join(part for part in [*parts, verdict] if part)
