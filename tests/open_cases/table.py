"""The page of scores, from the results of `run.py`."""

from __future__ import annotations

from typing import Any

COLUMNS = {
    "recognised": "recognised",
    "rewritten": "rewritten",
    "built": "built",
    "parity": "parity passed",
    "preprocessing": "preprocessing",
}
INTRODUCTION = """# Migration scores

What the migrator makes of ten public repositories, at the commits in `tests/open_cases/cases.json`. To reproduce:

    make zoo-setup
    .venv/bin/python tests/open_cases/run.py --list        # how to check them out
    .venv/bin/python tests/open_cases/run.py --cases DIR

- **recognised**: the model factories that the case states, found; beside it those that were found and are none.
- **rewritten**: scripts that the migration changes, of those that it should; each parses and takes the same options as before.
- **built**: models that a subprocess builds as the repository's own script does, without those that nobody can build.
- **parity passed**: of the built, those whose graph, with a dynamic batch and weights drawn anew, computes what the module
  does at batches 1, 2 and 5.
- **preprocessing**: models whose evaluation transform was recovered and proved equal on probe images.
- **executed** and **faster** need data and a quiet machine: `penstock migrate REPO --data DIR --entry SCRIPT` reports both, and
  where they stand at "not run" here, nothing is claimed.

"""


def cell(pair: list[int] | None) -> str:
    return f"{pair[0]} / {pair[1]}" if pair else "-"


def line(case: dict[str, Any], result: dict[str, Any]) -> str:
    """One case on the terminal."""
    scores = result["scores"]
    return f"{case['id']}: " + ", ".join(f"{title} {cell(scores.get(name))}" for name, title in COLUMNS.items())


def page(cases: list[dict[str, Any]], results: dict[str, dict[str, Any]]) -> str:
    """The whole page in Markdown."""
    rows = [f"| repository | {' | '.join(COLUMNS.values())} | executed | faster |", "|---" * (len(COLUMNS) + 3) + "|"]
    notes = []
    for case in cases:
        result = results.get(case["id"])
        if result is None:
            rows.append(f"| {case['repository']} |" + " not run |" * (len(COLUMNS) + 2))
            continue
        cells = [cell(result["scores"].get(name)) for name in COLUMNS]
        tried, every = result.get("sampled", (0, 0))
        if tried < every:
            cells[2] += f" (of {every}, evenly spread)"
        if result.get("strangers"):
            cells[0] += f" (+{len(result['strangers'])})"
        rows.append(f"| {case['repository']} | {' | '.join(cells)} | not run | not run |")
        notes += _notes(case, result)
    return INTRODUCTION + "\n".join(rows) + "\n\n## What is missing\n\n" + "\n".join(notes) + "\n"


def _notes(case: dict[str, Any], result: dict[str, Any]) -> list[str]:
    found = list(result["why"])
    if result.get("strangers"):
        found.append(f"found besides: {', '.join(result['strangers'])}")
    reasons: dict[str, list[str]] = {}
    for name, item in result.get("models", {}).items():
        if not item.get("captured"):
            known = case.get("known", {}).get(name.partition("--model ")[2])
            stage = "built, not captured" if item.get("built") else "not built"
            reasons.setdefault(f"{stage}: {known or item.get('why')}", []).append(name)
        if why := item.get("preprocessing", {}).get("why"):
            reasons.setdefault(f"no preprocessing: {why}", []).append(name)
    for why, names in reasons.items():
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        found.append(f"{' '.join(why.split())} ({shown})")
    return [f"### {case['repository']}\n", *(f"- {item}" for item in found), ""] if found else []
