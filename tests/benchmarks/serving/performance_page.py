"""docs/performance.md out of the recorded figures: every number in it comes from the record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.serving.bench.reporting.report import number

__all__ = ["markdown"]


def markdown(record: Mapping[str, Any]) -> str:
    """The page."""
    machine = record["environment"]["fingerprint"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    where = f"{machine['cores']} cores of {machine['cpu']}" + (f", {', '.join(machine['gpus'])}" if machine["gpus"] else "")
    anew = ", for each of which the services were started anew" if record["restart"] else ""
    parts = [
        "# How fast it is\n",
        f"Written by `{record['command']}` on {record['environment']['time'][:10]}: {where}; {versions}. "
        f"Model `{record['model']}`, {record['images']}; load generator and server on the same cores. Figures are medians of "
        f"{record['rounds']} interleaved rounds of {record['seconds']:g} s{anew}, in brackets the lowest and the highest; "
        "ratios are taken within a round. How it is measured: [measuring.md](measuring.md). `make bench-check` measures the "
        "ratios again and fails where one fell.\n",
        "## From a PyTorch service to Headrace\n",
        f"One change at a time, {record['concurrency']} requests at a time. Every step keeps the changes above it.\n",
        *_waterfall(record["waterfall"]),
    ]
    if "sweep" in record:
        parts += ["## Concurrency, batch size, and the machine's limits\n", *_sweep(record["sweep"])]
    if "peers" in record:
        parts += ["## Beside others\n", *_peers(record["peers"])]
    if record["warnings"]:
        parts += ["## Notes of the run\n", "".join(f"- {warning}\n" for warning in record["warnings"])]
    return "\n".join(parts)


def _waterfall(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = []
    for step in steps:
        if step["requests_per_second"] is None:
            continue
        shared = "" if step["pss_bytes"] is None else f"{number(step['pss_bytes'] / 2**20)} MB"
        same = f"{100 * step['agreed'] / step['compared']:.4g} % of {step['compared']}" if step["compared"] else "-"
        rate = f"{_spread(step['requests_per_second'])}/s"
        ratios = [_spread(step[key], "x", 2) for key in ("to_previous", "to_start")]
        rows.append([f"{step['title']} ({step['runs']})", rate, _median(step["p99_ms"]), *ratios, same, shared])
    head = ["step", "requests", "p99, ms", "to the one before", "to the start", "same top-1", "memory (PSS)"]
    absent = [step for step in steps if step["requests_per_second"] is None]
    said = "".join(f"- {step['title']}: {step['why']}\n" for step in absent)
    return [_table(head, rows), *(["Steps that are not there:\n", said] if said else [])]


def _sweep(sweep: Mapping[str, Any]) -> list[str]:
    machine = sweep["machine"]
    levels = [
        [
            str(item["concurrency"]),
            f"{_spread(item['requests_per_second'])}/s",
            _median(item["p50_ms"]),
            _median(item["p99_ms"]),
        ]
        for item in sweep["levels"]
    ]
    batches = [[str(item["batch"]), f"{_spread(item['rows_per_second'])}/s", item["runs"]] for item in machine["batches"]]
    peaks = [
        [name, f"{number(peak['operations_per_second'] / 1e9)} GOP/s ({peak['by']})", _roofs(machine["roofs"].get(name, {}))]
        for name, peak in machine["peaks"].items()
    ]
    peaks.append(["copy", f"{number(machine['copy_bytes_per_second'] / 1e9)} GB/s", ""])
    said = [f"The knee is at {sweep['knee']} requests at a time."] if sweep["knee"] else []
    if sweep["roof"] is not None:
        roof, shares = sweep["roof"], sweep["shares"]
        said.append(
            f"The roof in {roof['precision']} is {number(roof['rows_per_second'])} images/s. The session alone reaches "
            f"{shares['session']:.0%} of it, the server {shares['served']:.0%}: what separates the two is decoding, HTTP and "
            "the load generator on the same cores; what separates the session from the roof is everything in the model that "
            "is no large matrix product."
        )
    return [
        " ".join(said) + "\n",
        _table(["at a time", "requests", "p50, ms", "p99, ms"], levels),
        _table(["batch, session alone", "images", "runs"], batches),
        _table(["", "measured peak", "roof of this model"], peaks),
    ]


def _peers(peers: Mapping[str, Any]) -> list[str]:
    rows = [
        [
            name,
            f"{_spread(figures['requests_per_second'])}/s",
            _median(figures["p99_ms"]),
            _spread(peers["headrace_is_faster"].get(name), "x", 2),
        ]
        for name, figures in peers["services"].items()
    ]
    head = ["service", "requests", "p99, ms", "Headrace is faster"]
    left_out = "".join(f"- {name} is left out: {why}\n" for name, why in peers["left_out"].items())
    return [
        f"{peers['concurrency']} requests at a time. The services run the model's fp32 graph in ONNX Runtime, as "
        "examples/peers writes them after their documentation; frameworks without a server's name stand in the PyTorch "
        "service of the first row.\n",
        _table(head, rows),
        *([left_out] if left_out else []),
    ]


def _roofs(roofs: Mapping[str, float]) -> str:
    ends = list(roofs.items())[:: max(1, len(roofs) - 1)]
    return ", ".join(f"{number(roof)}/s at batch {batch}" for batch, roof in ends)


def _spread(spread: Mapping[str, float] | None, unit: str = "", digits: int | None = None) -> str:
    if spread is None:
        return ""
    if digits is None:
        digits = 0 if spread["median"] >= 100 else 1
    median, low, high = (f"{spread[key]:,.{digits}f}" for key in ("median", "low", "high"))
    return f"{median}{unit} ({low}-{high})"


def _median(spread: Mapping[str, float] | None) -> str:
    return "-" if spread is None else number(spread["median"])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)
