"""`make zoo`: one small variant of every classification family of torchvision and timm, through Penstock's runtime.

Results go line by line into build/zoo/results.jsonl, so that a run that was ended goes on where it was. The report is
docs/zoo.md.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COMMAND = "make zoo"
_SECONDS = 240  # one family


def run(
    wanted: Iterable[dict],
    results: Path,
    *,
    command: Callable[[Path, Path], list[str]] | None = None,
    seconds: float = _SECONDS,
    most_parameters: int | None = None,
    console: Console | None = None,
) -> list[dict]:
    """Check each family that has no result yet, in a process of its own; returns all results, in the order asked for."""
    wanted = list(wanted)
    known = read(results)
    results.parent.mkdir(parents=True, exist_ok=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("zoo", total=len(wanted))
        for item in wanted:
            key = _key(item)
            progress.update(task, description=f"{item['source']} {item['model']}")
            if key not in known:
                if most_parameters is not None and item["parameters"] > most_parameters:
                    outcome = {"stage": "not run", "why": f"its smallest variant has {item['parameters']:,} parameters"}
                else:
                    outcome = _in_a_process(item, command or _command, seconds)
                known[key] = {**item, **outcome}
                with results.open("a") as file:
                    file.write(json.dumps(known[key]) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
            progress.advance(task)
    return [known[_key(item)] for item in wanted]


def read(results: Path) -> dict[str, dict]:
    """What earlier runs found; a line that was cut off when a run was killed does not count."""
    found = {}
    for line in results.read_text().splitlines() if results.exists() else ():
        try:
            item = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[_key(item)] = item
    return found


def _key(item: dict) -> str:
    return f"{item['source']} {item['model']}"


def _command(request: Path, response: Path) -> list[str]:
    return [sys.executable, str(HERE / "check.py"), str(request), str(response)]


def _in_a_process(item: dict, command: Callable[[Path, Path], list[str]], seconds: float) -> dict:
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        request, response, log = (Path(folder) / name for name in ("request.json", "response.json", "log.txt"))
        request.write_text(json.dumps(item))
        with log.open("wb") as output:
            process = subprocess.Popen(
                command(request, response), stdout=output, stderr=output, cwd=ROOT, start_new_session=True
            )
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _end(process)
        spent = {"seconds": round(time.monotonic() - begin, 1)}
        if response.exists():
            return {**json.loads(response.read_text()), **spent}
        if status is None:
            return {"stage": "time", "why": f"not done after {seconds:.0f} s", **spent}
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
        return {"stage": "crash", "why": f"ended with status {status}: {last[0][:300] if last else ''}", **spent}


def _end(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def report(results: list[dict], versions: dict[str, str]) -> str:
    """The page: the score, then each family with what passed or why not."""
    ran = [item for item in results if item["stage"] != "not run"]
    passed = [item for item in ran if item["stage"] == "passed"]
    lines = [
        "# The zoo: which families Penstock compiles",
        "",
        "One small variant of every image-classification family of torchvision and timm, weights drawn at random with measured",
        "batch-norm statistics: captured with a symbolic batch, rewritten by the passes, written as a portable graph, run by",
        "ONNX Runtime and OpenVINO in fp32, and compared with the module at batches 1, 2, 3 and 5, within its own rounding",
        "noise.",
        "A family passes when at least one of the two agrees at all of them.",
        "",
        f"**{len(passed)} of {len(ran)} families pass ({len(passed) / max(1, len(ran)):.0%})**"
        + (f"; {len(results) - len(ran)} were not run." if len(ran) < len(results) else "."),
        "",
        f"Measured {datetime.date.today().isoformat()} by `{COMMAND}` with "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + f" on Python {platform.python_version()}.",
    ]
    for source in sorted({item["source"] for item in results}):
        lines += [
            "",
            f"## {source}",
            "",
            "| family | model | image | result | onnxruntime | openvino |",
            "|---|---|---|---|---|---|",
        ]
        for item in (item for item in results if item["source"] == source):
            outcomes = item.get("backends", {})
            cells = [_cell(outcomes.get(name, "-"), 90) for name in ("onnxruntime", "openvino")]
            stage = "passed" if item["stage"] == "passed" else f"**{item['stage']}**: {_cell(item['why'], 240)}"
            lines.append(
                f"| {item['family']} | {item['model']} | {item.get('size', '-')} | {stage} | {cells[0]} | {cells[1]} |"
            )
    return "\n".join([*lines, ""])


def _cell(text: str, most: int) -> str:
    """Fit for a table, and without the paths of this machine."""
    words = " ".join(str(text).split()).replace("|", "\\|")
    for known in (str(ROOT), sys.prefix, str(Path.home())):
        words = words.replace(known + "/", "")
    words = words.split("site-packages/")[-1] if "site-packages/" in words and words.startswith("/") else words
    return words if len(words) <= most else words[: most - 3] + "..."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="families or models; all without it")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "zoo")
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    parser.add_argument("--fresh", action="store_true", help="forget the results of earlier runs")
    arguments = parser.parse_args()
    sys.path.insert(0, str(HERE))
    from families import MOST_PARAMETERS, families, make_torchvision_importable

    console = Console()
    results = arguments.build / "results.jsonl"
    if arguments.fresh:
        results.unlink(missing_ok=True)
    console.print("counting parameters (once) ...")
    wanted = families(arguments.build / "families.json")
    if arguments.only:
        wanted = [item for item in wanted if item["family"] in arguments.only or item["model"] in arguments.only]
    found = run(wanted, results, most_parameters=MOST_PARAMETERS, console=console)
    make_torchvision_importable()
    versions = {name: _version(name) for name in ("torch", "torchvision", "timm", "onnxruntime", "openvino")}
    text = report(found, versions)
    if not arguments.only:
        (arguments.out / "zoo.md").write_text(text)
        console.print(f"written to {arguments.out / 'zoo.md'}")
    for item in found:
        if item["stage"] not in ("passed", "not run"):
            console.print(f"{item['source']} {item['model']}: {item['stage']}: {item['why'][:300]}", markup=False)
    console.print(next(line for line in text.splitlines() if line.startswith("**")), markup=False)


def _version(name: str) -> str:
    import importlib.metadata

    return importlib.metadata.version(name)


if __name__ == "__main__":
    main()
