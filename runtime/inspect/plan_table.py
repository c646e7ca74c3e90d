"""A plan as people read it: every candidate a row, with its speed per batch size, memory and parity, and why it lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..artifact.parity import AGREEMENTS

if TYPE_CHECKING:
    from rich.console import RenderableType

_Item = Mapping[str, Any]


def plan_table(plan: Mapping[str, Any]) -> RenderableType:
    """The table of `Plan.to_json()`, winners bold, and below it a line for each candidate that never came into question, and
    one for what the time did not allow.

    Speeds are rows per second, with the interquartile range in per cent; latency is that of the smallest batch.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    batches = sorted(map(int, plan["choices"]))
    table = Table(title="images per second (spread), by batch size", title_justify="left", box=None, pad_edge=False)
    table.add_column("candidate")
    for batch in batches:
        table.add_column(f"batch {batch}", justify="right")
    table.add_column("latency", justify="right")
    table.add_column("memory", justify="right")
    table.add_column("parity")
    table.add_column("")
    rows: dict[str, dict[int, _Item]] = {}
    for item in plan["measurements"]:
        name = ", ".join(filter(None, [f"{item['backend']} {item['precision']}", item.get("variant", "")]))
        rows.setdefault(name, {})[item["bucket"]] = item
    notes = []
    for name, measured in sorted(rows.items(), key=lambda row: _best(row[1])):
        items = [item for _, item in sorted(measured.items())]
        why = next((item["why"] for item in items if item["status"] not in ("won", "lost")), "")
        if why:
            notes.append(Text(f"{name}: {why}", style="dim"))
        if not any(item["median_ms"] for item in items):
            continue
        first = next(item["median_ms"] for item in items if item["median_ms"])
        memory = next((item["memory_mb"] for item in items if item.get("memory_mb") is not None), None)
        table.add_row(
            name,
            *(_cell(measured.get(batch)) for batch in batches),
            f"{first:.3g} ms",
            f"{memory:.0f} MB" if memory is not None else "-",
            _parity(items),
            _outcome(items, plan),
            style="bold green" if any(item["status"] == "won" for item in items) else None,
        )
    if cut := plan.get("cut"):
        notes.append(Text(cut, style="yellow"))
    return Group(table, *([Text("")] if notes else []), *notes)


def _best(measured: Mapping[int, _Item]) -> float:
    """Sorts by time per row at the largest batch that was measured; what was not measured comes last."""
    times = [item["median_ms"] / bucket for bucket, item in sorted(measured.items()) if item["median_ms"]]
    return float(times[-1]) if times else float("inf")


def _cell(item: _Item | None) -> str:
    if item is None or not item["median_ms"]:
        return "-"
    spread = f" ±{100 * item['spread_ms'] / item['median_ms']:.0f}%" if item["spread_ms"] is not None else ""
    return f"{'* ' if item['status'] == 'won' else ''}{1000 * item['bucket'] / item['median_ms']:.4g}{spread}"


def _parity(items: Sequence[_Item]) -> str:
    record = next((item["parity"] for item in items if item["parity"] is not None), None)
    if record is None:
        return "not judged"
    shares = (record.get(name) for name in AGREEMENTS)
    agreement = next((f" {share:.1%}" for share in shares if share is not None), "")
    difference = "" if record["max_abs"] is None else f" ({record['max_abs']:.0e})"
    return f"{record['status']}{agreement}{difference}"


def _outcome(items: Sequence[_Item], plan: Mapping[str, Any]) -> str:
    if any(item["status"] == "won" for item in items):
        return "won"
    if any(item["status"] not in ("won", "lost") for item in items):
        return next(item["status"] for item in items if item["status"] not in ("won", "lost"))
    best = {item["bucket"]: item["median_ms"] for item in plan["measurements"] if item["status"] == "won"}
    ratios = [item["median_ms"] / best[item["bucket"]] for item in items if item["median_ms"] and best.get(item["bucket"])]
    if not ratios:
        return ""
    if min(ratios) < 1:
        return "no clear gain"
    low, high = min(ratios), max(ratios)
    return f"{low:.2f}x slower" if high - low < 0.01 else f"{low:.2f}-{high:.2f}x slower"
