"""What the processes beside the device cost: microseconds of processor time for each request.

    python -m tests.benchmarks.host [--dtype uint8|float32] [--row-us US] [--seconds S] [--profile]     (make bench-host)

The engine is measured with front ends that only replay messages, prepared before; a front end with an engine whose model
computes nothing, and the load generator of `headrace bench`. The model is on a device that does nothing but take its time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .engine import measure_engine
from .front_end import measure_front_end


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.host", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtype", choices=("uint8", "float32"), default="uint8", help="of the rows")
    parser.add_argument("--size", type=int, default=224, help="pixels of an image's side")
    parser.add_argument("--row-us", type=float, default=25.0, help="what the device takes for a row")
    parser.add_argument("--in-flight", type=int, default=512)
    parser.add_argument("--front-ends", type=int, default=2, help="that replay messages")
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--profile", action="store_true", help="where the engine's event loop and its first thread spend it")
    parser.add_argument("--only", choices=("engine", "front-end"))
    parser.add_argument("--out", type=Path, help="where the figures go as JSON")
    given = parser.parse_args(arguments)
    found = {}
    if given.only != "front-end":
        found["engine"] = measure_engine(
            given.dtype, size=given.size, row_seconds=given.row_us / 1e6, in_flight=given.in_flight,
            front_ends=given.front_ends, instances=given.instances, seconds=given.seconds, profile=given.profile,
        )  # fmt: skip
        print("engine: {cpu_us:.1f} us of processor time per request, {per_second:,.0f} requests/s in "
              "batches of {batch:.0f}".format(**found["engine"]))  # fmt: skip
    if given.only != "engine":
        with tempfile.TemporaryDirectory() as folder:
            found["front_end"] = measure_front_end(
                given.dtype, size=given.size, row_seconds=given.row_us / 1e6, seconds=given.seconds, folder=Path(folder)
            )
        print("front end: {cpu_us:.0f} us of processor time per JPEG request, {per_second:,.0f} requests/s".format(
            **found["front_end"]))  # fmt: skip
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
