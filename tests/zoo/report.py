"""docs/zoo.md and docs/zoo.json from the results: the score, and for every family that did not pass one line that says why.

Nothing here knows a family: causes are derived from what was recorded.
"""

from __future__ import annotations

import collections
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COMMAND = "make zoo"
_LIBRARIES = ("headrace", "torch", "torchvision", "timm", "onnx", "onnxscript", "onnxruntime", "openvino")
_MOST_LETTERS = 300
_STAGES = {
    "build": "the library",  # the model could not even be built and run eagerly
    "time": "limits of the run",
    "memory": "limits of the run",
    "crash": "crash",
}
_CAPTURE = {"PG100": "the model itself", "PG122": "torch.export"}
_NOT_WRITTEN = "cannot be written as ONNX"


def versions() -> dict[str, str]:
    """Of Headrace, and of what is installed of the libraries that it was tried with."""
    installed = {item.metadata["Name"].lower(): item.version for item in importlib.metadata.distributions()}
    return {name: installed[name] for name in _LIBRARIES if name in installed}


def commit() -> str:
    """Of Headrace's sources, marked where they differ from it; empty outside a git checkout."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:  # no git here
        return ""
    return done.stdout.strip()


def line(item: dict[str, Any]) -> str:
    """One family for the terminal."""
    why = "" if item["status"] == "passed" else f": {_short(item['why'])}"
    return f"{item['status']:7} {item['family']} ({item.get('variant', '-')}, {item.get('total_seconds', 0)} s){why}"


def score(items: Sequence[dict[str, Any]]) -> str:
    """The result in one sentence."""
    counts = collections.Counter(item["status"] for item in items)
    ran = counts["passed"] + counts["failed"]
    share = f" ({counts['passed'] / ran:.1%})" if ran else ""
    rest = f"; {counts['not run']} not run" if counts["not run"] else ""
    return f"{counts['passed']} of {ran} families pass{share}{rest}"


def cause(item: dict[str, Any]) -> str:
    """Who would have to change something: "the model's code", "torch.export", "ONNX exporter", a backend's name, "parity"..."""
    stage = item["stage"]
    if stage in _STAGES:
        return _STAGES[stage]
    if stage == "capture":
        codes = {obstacle["code"] for obstacle in item["obstacles"]}
        return next((name for code, name in _CAPTURE.items() if code in codes), "the model's code")
    outcomes = item["backends"]
    if any(_NOT_WRITTEN in outcome["why"] for outcome in outcomes.values()):
        return "ONNX exporter"
    if any(outcome["status"] == "refused" for outcome in outcomes.values()):
        return "parity"
    return ", ".join(outcomes)


def write(items: Sequence[dict[str, Any]], total: int, directory: Path) -> None:
    """Both files. `total` is how many families there are, so that an unfinished run says so."""
    directory.mkdir(parents=True, exist_ok=True)
    known = {"command": COMMAND, "python": platform.python_version(), "machine": platform.machine(), "score": score(items)}
    public = [_public(item) for item in items]
    (directory / "zoo.json").write_text(json.dumps({**known, "families": public}, indent=1) + "\n")
    (directory / "zoo.md").write_text(page(public, total))


def page(items: Sequence[dict[str, Any]], total: int) -> str:
    """The report as Markdown."""
    dates = sorted({item["date"] for item in items if "date" in item})
    seen = sorted({", ".join(f"{name} {number}" for name, number in item.get("versions", {}).items()) for item in items})
    commits = sorted({item["commit"] for item in items if item.get("commit")})
    seconds = sum(item.get("total_seconds", 0) for item in items)
    lines = [
        "# Zoo score",
        "",
        f"**{score(items)}.**" + (f" The run is not finished: {total - len(items)} remain." if len(items) < total else ""),
        "",
        "One family is one module of `torchvision.models` or `timm.models`; its smallest variant stands for it, with random",
        "weights from a seed, batch-norm statistics measured on noise, nothing left constant, and a small image.",
        "Passed: captured with a symbolic batch, and ONNX Runtime or OpenVINO computes in fp32 what the module computes, at",
        "batches 1, 2 and 3, within a tolerance set by the module's own rounding noise. Not run: no variant is small enough.",
        "",
        f"Measured by `{COMMAND}` on {' and '.join(dates)} with Python {platform.python_version()}, {'; '.join(seen)};",
        f"commit {', '.join(commits) or 'unknown'}. The families took {seconds / 60:.0f} minutes one by one.",
        "",
    ]
    lines += _table("Failed", ["family", "variant", "cause", "why"], _failed(items))
    lines += _table(
        "Not run", ["family", "why"], [[item["family"], _short(item["why"])] for item in items if item["status"] == "not run"]
    )
    lines += _table("One backend only", ["family", "backend", "why the other does not"], _half(items))
    passed = [item for item in items if item["status"] == "passed"]
    header = ["family", "variant", "parameters", "size", "passes applied", *_backends(passed)]
    return "\n".join(lines + _table("Passed", header, [_row(item, _backends(passed)) for item in passed])).rstrip() + "\n"


def _failed(items: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for item in items:
        if item["status"] == "failed":
            captured = " (captured; eager only)" if "backends" in item else ""
            rows.append([item["family"], item.get("variant", "-"), cause(item) + captured, _why(item)])
    return rows


def _half(items: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for item in items:
        if item["status"] == "passed":
            able = [name for name, outcome in item["backends"].items() if outcome["status"] == "passed"]
            others = [_short(outcome["why"]) for outcome in item["backends"].values() if outcome["status"] != "passed"]
            if others:
                rows.append([item["family"], ", ".join(able), "; ".join(others)])
    return rows


def _row(item: dict[str, Any], backends: Sequence[str]) -> list[str]:
    passes = ", ".join(name for name, status in item["passes"].items() if status == "applied") or "-"
    size, parameters = f"{item['size']}x{item['size']}", f"{item['parameters'] / 1e6:.1f} M"
    return [
        item["family"],
        item["variant"],
        parameters,
        size,
        passes,
        *(item["backends"].get(name, {}).get("status", "-") for name in backends),
    ]


def _backends(items: Sequence[dict[str, Any]]) -> list[str]:
    return sorted({name for item in items for name in item["backends"]})


def _why(item: dict[str, Any]) -> str:
    """The first obstacle at its line in the model's code, or the error."""
    obstacles = item.get("obstacles")
    if not obstacles:
        return _short(item["why"])
    first = obstacles[0]
    where = f"{first['path']}:{first['line']}: " if first["path"] else ""
    more = f" (and {len(obstacles) - 1} more)" if len(obstacles) > 1 else ""
    return _short(f"{where}{first['code']} {first['message']}") + more


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    body = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows]
    return [f"## {title}", "", "| " + " | ".join(header) + " |", "|---" * len(header) + "|", *body, ""]


def _short(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 3] + "..."


def _public(value: Any) -> Any:
    """The same without the places where this machine keeps things: only names below site-packages and the checkout stay."""
    if isinstance(value, dict):
        return {key: _public(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_public(item) for item in value]
    if not isinstance(value, str):
        return value
    value = re.sub(r"[^\s\"'(]*/(?:site|dist)-packages/", "", value)
    value = value.replace(f"{Path(__file__).parents[2]}{os.sep}", "").replace(f"{sys.prefix}{os.sep}", "")
    return re.sub(r"/tmp/[^\s\"':]*/", "", value)
