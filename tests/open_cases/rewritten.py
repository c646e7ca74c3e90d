"""What the rules write into checked-out repositories, none of which is run: steps, kept updates, evaluations and graphs.

    python tests/open_cases/rewritten.py --cases DIR [DIR ...] [--save FILE] [--before FILE]

A stricter or looser reading of loops shows here first: with `--before`, an earlier run's figures, only what differs is printed.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

WHOLE, KEPT = "whole steps", "steps with their own update"
_CALLS = {"headrace.evaluation_step(": "evaluation steps", "headrace.compile(": "graphs"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=Path, nargs="+", required=True, help="folders with a checkout in each of their folders")
    parser.add_argument("--save", type=Path, help="write the figures there, as JSON")
    parser.add_argument("--before", type=Path, help="the figures of an earlier run")
    arguments = parser.parse_args()
    from headrace.migrate.rewriting.rewrite import rewrite
    from headrace.migrate.survey.survey import survey

    before = json.loads(arguments.before.read_text(encoding="utf-8")) if arguments.before is not None else {}
    found: dict[str, dict[str, int]] = {}
    for root in sorted(item for folder in arguments.cases for item in folder.iterdir() if item.is_dir()):
        changes = rewrite(survey(root))
        found[root.name] = dict(sum((counted(change.after.decode(errors="replace")) for change in changes), Counter()))
        if found[root.name] != before.get(root.name):
            was = f" (before: {before[root.name]})" if root.name in before else ""
            print(f"{root.name}: {found[root.name]}{was}", flush=True)
    print(f"{len(found)} repositories: {dict(sum(map(Counter, found.values()), Counter()))}")
    if arguments.save is not None:
        arguments.save.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def counted(text: str) -> Counter[str]:
    """What a migrated file calls, by kind; a file of Python or a notebook."""
    steps = list(_calls(text, "headrace.training_step("))
    kept = sum("update=False" in call for call in steps)
    others = {kind: text.count(start) for start, kind in _CALLS.items()}
    return +Counter({WHOLE: len(steps) - kept, KEPT: kept, **others})


def _calls(text: str, start: str) -> Iterator[str]:
    """The calls that begin so, each to its closing parenthesis."""
    at = text.find(start)
    while at >= 0:
        end, depth = at + len(start), 1
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield text[at:end]
        at = text.find(start, end)


if __name__ == "__main__":
    main()
