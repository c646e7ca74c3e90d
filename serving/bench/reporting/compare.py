"""Two runs of a benchmark beside each other: what changed beyond the spread that both of them state."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from ....errors import BenchError
from .report import Figures, Report, shown_name, with_spread
from .result import WITHIN, Spread

# The versions and the machine decide what a rate means; the rest of the environment is told anew in every run.
_TELLING = ("cpu", "cores", "flags", "gpus", "versions", "headrace")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One figure in both runs. `verdict` is "higher" or "lower" where the spreads do not touch, else WITHIN."""

    what: str
    concurrency: int
    service: str
    old: Spread
    new: Spread

    @property
    def verdict(self) -> str:
        return self.new.against(self.old)

    @property
    def share(self) -> float:
        """The new median over the old."""
        return self.new.median / self.old.median if self.old.median else float("inf")


def read_result(path: Path) -> dict[str, Any]:
    """What `headrace bench` wrote as JSON. Raises BenchError for anything else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BenchError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise BenchError(f"{path} is not JSON: {error}; give the bench.json of an earlier run") from error
    if not isinstance(content, dict) or "summary" not in content or "contenders" not in content:
        raise BenchError(f"{path} is not what headrace bench writes; give the bench.json of an earlier run")
    return content


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Every figure that both runs have: requests per second of each service, and how many times the first one's they are.

    Ratios are taken within rounds, so they can be compared where rates cannot. Raises BenchError for different models.
    """
    if old["model"] != new["model"]:
        raise BenchError(f"the runs are of different models, {old['model']!r} and {new['model']!r}: nothing can be compared")
    before = dict(_figures(old))
    return [
        Change(what=key[0], concurrency=key[1], service=key[2], old=before[key], new=spread)
        for key, spread in _figures(new)
        if key in before
    ]


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs in the machine and the software, in words."""
    before, after = (run.get("environment", {}).get("fingerprint", {}) for run in (old, new))
    return [f"{key}: {before.get(key)} then, {after.get(key)} now" for key in _TELLING if before.get(key) != after.get(key)]


def changes_report(old: Mapping[str, Any], new: Mapping[str, Any]) -> Report:
    """The changes for people, those beyond the spread marked."""
    title = f"{new['model']}: then and now"
    table = Figures(title)
    table.column("at a\ntime")
    table.column("service", justify="left", overflow="fold")
    table.column("", justify="left")
    for column in ("then", "now", "now / then"):
        table.column(column)
    table.column("", justify="left")
    found = changes(old, new)
    for change in found:
        unit, digits, what = ("x", 2, "to the first") if change.what == "ratio" else ("/s", None, "")
        table.row(
            str(change.concurrency),
            shown_name(change.service),
            what,
            *(with_spread(one, unit, digits=digits) for one in (change.old, change.new)),
            f"{change.share:.2f}",
            Text(change.verdict, style="dim" if change.verdict == WITHIN else "bold"),
        )
    moved = sum(change.verdict != WITHIN for change in found)
    sentence = f"{moved} of {len(found)} figures changed beyond the spread of both runs."
    return Report(
        title=title,
        tables=[table],
        sentences=[sentence if found else "The runs have no service and concurrency in common."],
        caveats=[f"another environment: {text}" for text in differences(old, new)],
    )


def _figures(run: Mapping[str, Any]) -> Iterator[tuple[tuple[str, int, str], Spread]]:
    for entry in run["summary"]:
        for name, figures in entry["contenders"].items():
            if figures["requests_per_second"] is not None:
                yield ("rate", entry["concurrency"], name), Spread(**figures["requests_per_second"])
        for name, spread in entry.get("to_first", {}).items():
            if spread is not None:
                yield ("ratio", entry["concurrency"], name), Spread(**spread)
