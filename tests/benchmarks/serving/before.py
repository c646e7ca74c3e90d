"""The service of another checkout, such as of an earlier commit, beside this one's: measured in turn, in one run.

    git worktree add ../before COMMIT
    python -m tests.benchmarks.serving.before ../before build/photos/models --images examples/photos/data/test

Both run in this Python. The exit status is 1 where this one answered fewer requests per second in every round.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headrace.console import make_console
from headrace.errors import HeadraceError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.serving.bench.reporting.report import bench_report
from headrace.serving.bench.run import measure
from headrace.serving.bench.servers import Service, terminate_as_exit
from headrace.serving.bench.services import headrace_service

from .bench_options import config_of, options

__all__ = ["main", "service_of"]


def service_of(checkout: Path, models: Path, path: str, packages: Path) -> Service:
    """`headrace serve` of the checkout, which is made the package headrace in the folder `packages`."""
    (packages / "headrace").symlink_to(checkout.resolve())
    service = headrace_service(models, path, name="before")
    return replace(service, command=("env", f"PYTHONPATH={packages}", *service.command))


def main(arguments: Sequence[str]) -> int:
    parser = options(__doc__, concurrency="1,16", baseline=False)
    parser.add_argument("checkout", type=Path, help="the other checkout")
    parser.add_argument("--packages", type=Path, help="models that it has packaged itself, where it cannot read these")
    words = [*arguments[1:], *arguments[:1]]  # the parser's own comes last
    chosen = parser.parse_args(words)
    console = make_console()
    try:
        with terminate_as_exit(), tempfile.TemporaryDirectory(prefix="headrace-before-") as packages:
            config = config_of(chosen)
            load_artifact(config.models / str(config.model))  # whether it can be read, before anything is started
            path = f"/v1/classify/{config.model}?k={config.k}"
            other = service_of(chosen.checkout, chosen.packages or config.models, path, Path(packages))
            result = measure(config, console=console, others=(other,))
    except HeadraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    console.print(bench_report(result).terminal())
    slower = False
    for count in result.concurrency:
        ratio = result.ratio(count)
        assert ratio is not None, "there are two services"
        console.print(
            f"{count} at a time: {ratio.median:.3f} ({ratio.low:.3f}-{ratio.high:.3f}) of the requests per second before"
        )
        slower = slower or ratio.high < 1
    return int(slower)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
