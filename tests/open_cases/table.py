"""The page of scores, from the results of `run.py`."""

from __future__ import annotations

import re
from typing import Any

COLUMNS = {
    "recognised": "recognised",
    "rewritten": "rewritten",
    "built": "built",
    "parity": "parity passed",
    "preprocessing": "preprocessing",
}
WHOLE = ("executed", "faster", "served")
INTRODUCTION = """# Migration scores

What the migrator makes of ten public repositories, at the commits in `tests/open_cases/cases.json`. To reproduce:

    make open-cases-setup
    build/open-cases-venv/bin/python tests/open_cases/run.py --list        # how to check them out
    build/open-cases-venv/bin/python tests/open_cases/run.py --cases DIR
    build/open-cases-venv/bin/python tests/open_cases/whole.py --cases DIR

- **recognised**: the model factories that the case states, found; beside it those that were found and are none.
- **rewritten**: scripts that come into graph mode, themselves or through the repository's functions that they call, of those
  that should; each parses and takes the same options as before.
- **built**: models that a subprocess builds as the repository's own script does, without those that nobody can build.
- **parity passed**: of the built, those whose graph, with a dynamic batch and weights drawn anew, computes what the module
  does at batches 1, 2 and 5.
- **preprocessing**: models whose evaluation transform was recovered and proved equal on probe images.
- **executed**, **faster**, **served**: of one model of each repository through the whole of `headrace migrate` (`whole.py`;
  choices in `cases.json`): scripts run before and after with equal outputs, and losses where they train, of those that ran
  before, and whose data they read; faster than eager, and how much at which batch size (of the last run on a quiet machine:
  `whole.py --scripts` leaves it, and what is served); the package answering in a fresh process without the repository. "not
  tried" is a script that does not run here even on stand-ins, "not tried on stand-ins" one whose last run knew none; "not run"
  claims nothing. A dash: not run either.

"""


def without_paths(text: str) -> str:
    """A message without this machine's folders: of an absolute path its last part."""
    return re.sub(r"(?<![\w:/.])/(?:[^\s:/(),'\"]+/)+", "", text)


def cell(pair: list[int] | None) -> str:
    return f"{pair[0]} / {pair[1]}" if pair else "-"


def _whole(whole: dict[str, Any] | None, name: str) -> str:
    if whole is None:
        return "not run"
    pair = whole.get(name)
    if name == "faster" and whole.get("speed"):
        return f"{cell(pair)}: {whole['speed']}"
    if name == "executed" and "on" not in whole and not (pair and pair[1]):
        return "not tried on stand-ins"
    if not (pair and pair[1]):
        return "not tried"
    on = f" ({', '.join(whole['on'])})" if name == "executed" and whole.get("on") else ""
    partly = f", {len(whole['partly'])} up to an error" if name == "executed" and whole.get("partly") else ""
    return f"{cell(pair)}{on}{partly}"


def line(case: dict[str, Any], result: dict[str, Any]) -> str:
    """One case on the terminal."""
    scores = result["scores"]
    return f"{case['id']}: " + ", ".join(f"{title} {cell(scores.get(name))}" for name, title in COLUMNS.items())


def page(cases: list[dict[str, Any]], results: dict[str, dict[str, Any]]) -> str:
    """The whole page in Markdown."""
    rows = [f"| repository | {' | '.join([*COLUMNS.values(), *WHOLE])} |", "|---" * (len(COLUMNS) + len(WHOLE) + 1) + "|"]
    notes = []
    for case in cases:
        result = results.get(case["id"])
        if result is None:
            rows.append(f"| {case['repository']} |" + " not run |" * (len(COLUMNS) + len(WHOLE)))
            continue
        cells = [cell(result["scores"].get(name)) for name in COLUMNS]
        tried, every = result.get("sampled", (0, 0))
        if tried < every:
            cells[2] += f" (of {every}, evenly spread)"
        if result.get("strangers"):
            cells[0] += f" (+{len(result['strangers'])})"
        whole = result.get("whole")
        cells += [_whole(whole, name) for name in WHOLE]
        rows.append(f"| {case['repository']} | {' | '.join(cells)} |")
        notes += _notes(case, result)
    return INTRODUCTION + "\n".join(rows) + "\n\n## What is missing\n\n" + "\n".join(notes) + "\n"


def _notes(case: dict[str, Any], result: dict[str, Any]) -> list[str]:
    found = list(result["why"])
    if result.get("strangers"):
        found.append(f"found besides: {', '.join(result['strangers'])}")
    whole = result.get("whole") or {}
    if whole.get("why"):
        found.append(f"whole migration of one model: {whole['why']}")
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
