"""What the proofs cost: ResNet-50 compiled with the default budget by another checkout and by this one, in turn.

    git worktree add ../before COMMIT
    python tests/benchmarks/proofs.py ../before [--pairs 3]

Nothing is taken from a cache. For a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_COMPILE = """
import json, os, sys, time
import torch, headrace
sys.path.insert(0, sys.argv[1])
from resnet import resnet50
torch.manual_seed(0)
module = resnet50().eval()
for part in module.modules():
    if isinstance(part, torch.nn.BatchNorm2d):
        part.running_mean.normal_(0, 0.1)
        part.running_var.uniform_(0.5, 1.5)
begin = time.perf_counter()
graph = headrace.compile(module, torch.rand(8, 3, 224, 224))
seconds, used = time.perf_counter() - begin, os.times()
print(json.dumps([seconds, sum(used[:4]), sorted(map(str, set(graph.plan.choices.values())))]), flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--pairs", type=int, default=3)
    arguments = parser.parse_args()
    for _ in range(arguments.pairs):
        before, after = (compiled(checkout) for checkout in (arguments.checkout.resolve(), ROOT))
        print(f"before {shown(before)}; now {shown(after)}; {after[0] / before[0]:.2f} times as long", flush=True)


def compiled(checkout: Path) -> tuple[float, float, list[str]]:
    """Seconds by the clock and of processors, and what the plan chose."""
    with tempfile.TemporaryDirectory() as packages:
        (Path(packages) / "headrace").symlink_to(checkout)
        environment = {**os.environ, "PYTHONPATH": packages, "HEADRACE_CACHE": "off"}
        command = [sys.executable, "-c", _COMPILE, str(ROOT / "examples" / "photos")]
        done = subprocess.run(command, env=environment, cwd=packages, check=True, stdout=subprocess.PIPE, text=True)
    seconds, work, choices = json.loads(done.stdout.splitlines()[-1])
    return seconds, work, choices


def shown(found: tuple[float, float, list[str]]) -> str:
    return f"{found[0]:.1f} s ({found[1]:.0f} CPU-s, {', '.join(found[2])})"


if __name__ == "__main__":
    main()
