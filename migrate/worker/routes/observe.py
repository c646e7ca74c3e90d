"""`python -m headrace.migrate.worker.routes.observe REQUEST.json`: an application's script is run, and its routes are asked.

It executes the user's code: only ever in a sandbox. What its routes said lies in `answers.json` then.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from ...reading.recipe import Recipe
from ..live.model import rehearsal_of
from ..rehearsal.rehearse import rehearse


def main(arguments: list[str]) -> int:
    request = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    out = Path(request["out"])
    asked = rehearsal_of(Recipe.from_json(request["recipe"]), seed=0)
    answers = out / "answers.json"
    asked = replace(asked, probes=tuple(request["probes"]), answers=str(answers))
    ended = rehearse(asked, watch=nullcontext)
    if not answers.exists():
        why = (
            ended.why
            or "it came to its end and made no application of Flask's or FastAPI's, the only ones whose routes are kept"
        )
        answers.write_text(
            json.dumps({"routes": [], "tables": [], "why": f"{why} ({ended.where})" if ended.where else why}), encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
