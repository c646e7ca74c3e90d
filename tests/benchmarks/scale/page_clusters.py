"""The parts of docs/scale.md about many machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.serving.bench.reporting.report import number

from .gpu import JPEG_DECODING, GpuFigures
from .predict import FRONT_ENDS, HOST, NODES, gpu_node
from .sizing import Demand
from .stages import Recorded

__all__ = ["about", "failures", "gpus", "online", "table"]


def online(predicted: Mapping[str, Any], demand: Demand) -> list[str]:
    """Machines like the measured one."""
    cpu, arriving = predicted["cpu"], demand.bytes_per_second(demand.peak_rate)
    peak, each = number(demand.peak_rate), number(cpu["per_machine"])
    return [
        "## Online, on machines like the measured one\n",
        f"With clients elsewhere, one carries {each} requests a second with 99 % within {cpu['limit_ms']:g} ms (simulated). "
        f"The peak takes ceil({peak} / {each}) = {cpu['tight']} of them with none to spare, and "
        f"ceil({peak} / (0.7 x {each})) + 1 = {cpu['machines']} at 70 % and with one to spare. {number(arriving / 1e6)} MB a "
        f"second arrive then, {8 * arriving / 1e9:.2g} Gbit/s.\n",
    ]


def gpus(recorded: Recorded, predicted: Mapping[str, Any], gpu: GpuFigures, demand: Demand) -> list[str]:
    """Machines of eight GPUs: their limits, and what one GPU's server does within a p99."""
    size = recorded.image_bytes
    node = gpu_node(recorded, gpu)
    rows = []
    for what, one in (("", node), (", GPUs decode too", gpu_node(recorded, gpu, gpu_decoding=JPEG_DECODING))):
        busy = one.utilization(demand.peak_rate, size)
        rows += [
            [f"{stage}{what}", about(limit), f"{busy[stage]:.2%}"]
            for stage, limit in one.limits(size).items()
            if not what or limit != node.limits(size)[stage]
        ]
    targets = [
        [f"{one['limit_ms']:g} ms", about(one["rate"]), about(8 * NODES * one["rate"])] for one in predicted["gpu"]["per_gpu"]
    ]
    return [
        "## Online, on GPUs\n",
        f"A machine of {HOST['gpus']} GPUs and {HOST['cores']} cores as fast as those measured, {8 * HOST['network'] / 1e9:g} "
        "Gbit/s for requests. What each stage can do by itself, and how busy the whole peak keeps it on one such machine:\n",
        table(["stage of one machine", "images/s", "busy at the peak"], rows),
        f"One GPU at its {number(gpu.online)} images a second needs {number(node.cores_per_gpu())} cores for decoding and "
        f"HTTP, of which it has {HOST['cores'] // HOST['gpus']}, and {8 * gpu.online * size / 1e9:.3g} Gbit/s. So where images "
        "come as JPEGs, what is bought is cores, decoding engines and network. (An A100's decoding engines: "
        f"{number(JPEG_DECODING)} images a second, published.)\n",
        f"One GPU's server with its part of the cores and {FRONT_ENDS} event loops, simulated, at the highest rate at which "
        f"99 % are in time; {8 * NODES} of them do that many times as much, since a balancer divides what is independent:\n",
        table(["p99 within", "requests/s per GPU", f"{8 * NODES} GPUs"], targets),
    ]


def failures(predicted: Mapping[str, Any]) -> list[str]:
    """What the failure of a machine does."""
    rows = []
    for one in predicted["episodes"]:
        outcomes = one["outcomes"]
        refused = sum(outcomes.get(kind, 0) for kind in ("refused", "dropped", "expired"))
        parts = [_part(one[part]) for part in ("before", "during", "after")]
        what = f"{one['what']}: {one['servers']} servers, failing: {one['failing']}"
        rows.append([what, *parts, f"{refused:,}", f"{outcomes.get('failed', 0):,}", f"{sum(outcomes.values()):,}"])
    return [
        "## A failure\n",
        "Simulated at the peak rate: a machine fails at second 5 and serves again at second 10. The balancer sends each "
        "request to the server with the least under way, hears a second late who is down or up, and sends what was lost once "
        "more elsewhere. Cells: p99 in ms of the answers, and how many of all requests were in time.\n",
        table(["cluster", "before", "during", "after", "refused", "lost", "requests"], rows),
    ]


def about(value: float) -> str:
    """Two digits that mean something: what is only thought out has no more."""
    return f"{float(f'{value:.2g}'):,.0f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def _part(part: Mapping[str, Any]) -> str:
    latency, share = part["p99_ms"], part["in_time"]
    return f"{'-' if latency is None else number(latency)} ({'-' if share is None else f'{share:.1%}'})"
