"""`make soundness`: plant every fault, demand that each is noticed, and write docs/soundness.md.

python -m tests.soundness [WORD ...]          with words: only faults whose stage or name holds one, whose lines are renewed
python -m tests.soundness clean --runs 200    what is refused though nothing is wrong
python -m tests.soundness budgets             whether plans that were held to a budget keep to it
"""

from __future__ import annotations

import os
import sys
import time

from . import budgets, candidates, clean, joining, page, passes, proofs, served, stored, tasks
from .faults import examine


def main(words: list[str]) -> int:
    """Print the table; 1 where a fault was not noticed, or something right was refused."""
    os.environ.setdefault("HEADRACE_CACHE", "off")
    if words[:1] == ["clean"]:
        return clean.main(words[1:])
    if words == ["budgets"]:
        return budgets.main()
    begin, results = time.monotonic(), []
    refused = [] if words else [f"{name}: {by}" for name, by in (*candidates.clean(), *served.clean(), *joining.clean()) if by]
    for fault in (fault for stage in (candidates, tasks, passes, stored, proofs, served, joining) for fault in stage.faults()):
        if not words or any(word in f"{fault.stage} {fault.name}" for word in words):
            results.append(examine(fault))
            print(results[-1].row, flush=True)
    missed = [item.fault for item in results if item.by is None]
    print(f"{len(results) - len(missed)} of {len(results)} faults were noticed in {time.monotonic() - begin:.0f} s")
    for text in refused:
        print(f"refused, though nothing is wrong with it: {text}")
    rows, minutes = [item.row for item in results], (time.monotonic() - begin) / 60
    if words and not missed:
        known = page.read().get("faults", {"rows": [], "minutes": 0.0})
        fresh = {_of(row): row for row in rows}
        rows = [*(fresh.pop(_of(row), row) for row in known["rows"]), *fresh.values()]
        minutes += known["minutes"]
    if not missed:
        page.update("faults", {"minutes": minutes, "rows": rows})
    return 1 if missed or refused else 0


def _of(row: str) -> tuple[str, ...]:
    """The fault and its stage, as the page has them."""
    return tuple(row.split(" | ")[:2])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
