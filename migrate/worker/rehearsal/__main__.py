"""`python -m headrace.migrate.worker.rehearsal REQUEST.json`: run a script under stand-ins; the exit status is the script's.

The request is a `Rehearsal` of `proving.rehearsal_protocol`; its report goes where the request says.
"""

from __future__ import annotations

import sys
from pathlib import Path

from . import Rehearsal
from .rehearse import rehearse


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m headrace.migrate.worker.rehearsal REQUEST.json\n")
        return 2
    request = Rehearsal.from_json(Path(arguments[0]).read_text(encoding="utf-8"))
    # Of several ranks none starts again by itself: the others would wait for it.
    report = rehearse(request, attempts=1) if request.ranks > 1 else rehearse(request)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
