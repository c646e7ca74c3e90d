"""One model of each open case through the whole of `headrace migrate`: scripts run, package proved, served and measured.

    python tests/open_cases/whole.py --cases DIR [CASE ...] [--out docs/migration-scores]

Adds to the results of `run.py` what `headrace migrate REPO --entry ENTRY --model NAME [--data DIR] --out OUT` reports of the
choice that stands in `cases.json`, with `--unsafe` where it says so. Where the repository reads folders of images, DIR is a
small one of made-up images, so that its scripts can run. Compare times on a quiet machine only. `--scripts` runs the scripts
alone, and what an earlier run said of packages, proofs and times stays.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import table
from PIL import Image
from rich.console import Console

from headrace.errors import HeadraceError
from headrace.migrate.api import migrate

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="CASE")
    parser.add_argument("--cases", type=Path, default=Path("build/open-cases"), help="folder with the checked-out repositories")
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "docs" / "migration-scores", help="without a suffix")
    parser.add_argument("--scripts", action="store_true", help="run the scripts; package nothing that has no weights here")
    arguments = parser.parse_args()
    cases = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))
    kept = arguments.out.with_suffix(".json")
    results = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    with tempfile.TemporaryDirectory(prefix="headrace-whole-", ignore_cleanup_errors=True) as scratch:
        data = image_folder(Path(scratch) / "data")
        for case in cases:
            root = arguments.cases / case["id"]
            if (arguments.names and case["id"] not in arguments.names) or not root.is_dir():
                continue
            whole = judge(case["whole"], root, data, Path(scratch) / case["id"], packages=not arguments.scripts)
            result = results.setdefault(case["id"], {"scores": {}, "why": []})
            if arguments.scripts and "executed" in whole:
                whole |= {name: result.get("whole", {}).get(name) for name in ("parity", "faster", "served", "speed")}
            result["whole"] = whole
            print(f"{case['id']}: {json.dumps(whole)}", flush=True)
            results = {item["id"]: results[item["id"]] for item in cases if item["id"] in results}
            kept.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            arguments.out.with_suffix(".md").write_text(table.page(cases, results), encoding="utf-8")


def judge(choice: dict[str, Any], root: Path, data: Path, out: Path, *, packages: bool = True) -> dict[str, Any]:
    """What the report says, as pairs (achieved, of how many), with the reason of a script that was not executed."""
    try:
        report = migrate(
            root, out=out, entry=choice["entry"], model=choice.get("model"), data=data if choice.get("data") else None,
            unsafe=choice.get("unsafe", False), random_weights=packages,  # few have weights
            console=Console(stderr=True),
        )  # fmt: skip
    except HeadraceError as error:
        return {"why": table.without_paths(str(error).replace(str(root), "."))}
    scores = report.scores()
    served = [model.served for model in report.models if model.artifact is not None]
    reasons = "; ".join(dict.fromkeys(script.why for script in report.scripts if script.why))
    why = table.without_paths(reasons.replace(str(root), "."))[:300]
    speed = ", ".join(f"{item.ratio:.2f}x at {item.batch}" for model in report.models for item in model.speed)
    executed = [script for script in report.scripts if script.executed == "passed"]
    return {
        "executed": scores["executed"], "on": sorted({_on(script.executed_on, choice) for script in executed}),
        "partly": [script.up_to for script in executed if script.up_to], "parity": scores["parity_passed"],
        "faster": scores["faster"],
        "served": [sum(served), len(served)], "speed": speed or None, "why": why or None,
    }  # fmt: skip


def _on(data: str | None, choice: dict[str, Any]) -> str:
    """Whose data a script read: what the migrator takes for the user's is here the folder of made-up images."""
    return "made-up images" if choice.get("data") and data == "your data" else str(data)


def image_folder(place: Path) -> Path:
    """Colored noise, smooth enough for JPEG: train/ and val/ with four classes."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 40), ("val", 6)):
        for label in range(4):
            folder = place / part / f"n{label:04d}"
            folder.mkdir(parents=True)
            for index in range(count):
                height, width = (int(side) for side in rng.integers(200, 420, 2))
                image = Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8))
                image.resize((width, height), Image.Resampling.BICUBIC).save(folder / f"{index}.jpg", quality=90)
    return place


if __name__ == "__main__":
    main()
