"""KServe's own client, unchanged, against this server.

    python -m venv ENVIRONMENT && ENVIRONMENT/bin/pip install kserve
    python -m tests.interop.kserve_client ENVIRONMENT/bin/python

The exit status is 1 where a call of `kserve_calls.py` ends otherwise than KServe's own server would have it end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from headrace.serving.bench.servers import Server, terminate_as_exit
from headrace.serving.bench.services import headrace_service

from .models import arithmetic

CALLS = Path(__file__).with_name("kserve_calls.py")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.kserve_client", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("python", type=Path, help="a Python that has kserve")
    chosen = parser.parse_args(arguments)
    with terminate_as_exit(), tempfile.TemporaryDirectory(prefix="headrace-interop-") as name:
        models, scratch = Path(name) / "models", Path(name) / "files"
        models.mkdir()
        scratch.mkdir()
        arithmetic(models, "simple", scratch)
        with Server(
            headrace_service(models, "", options=("--instances", "1")), folder=Path(name), timeout_seconds=300
        ) as server:
            server.wait_ready()
            command = [str(chosen.python), str(CALLS), *(f"127.0.0.1:{server.ready[port]}" for port in ("http", "grpc"))]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    calls = [json.loads(line) for line in done.stdout.splitlines()]
    for call, why in calls:
        print(f"{call}: {why or 'passes'}")
    if done.returncode != 0 or not calls:
        print(done.stderr, file=sys.stderr)
        return 1
    return int(any(why for _, why in calls))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
