"""The Python tests of NVIDIA's Triton server, run unchanged against this server.

    git clone https://github.com/triton-inference-server/server CHECKOUT
    unshare --user --map-root-user --net sh -c 'ip link set lo up && python -m tests.interop.server_qa CHECKOUT'

They call ports 8000 and 8001, which an own network namespace always has free. Nothing of the checkout is copied or written. The
exit status is 1 where a case ends otherwise than `qa_reasons.py` says.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from headrace.serving.bench.servers import Server, terminate_as_exit
from headrace.serving.bench.services import headrace_service

from .client_examples import free
from .qa_reasons import CANNOT
from .qa_runs import RUNS, Run

CASES = Path(__file__).with_name("qa_cases.py")
_PORTS = {"--http-port": "8000", "--grpc-port": "8001", "--metrics-port": "8002"}
_SECONDS = 600


def run(chosen: Run, qa: Path, folder: Path) -> dict[str, str]:
    """What was wrong with each case, or "", by its name; all of a run have one server."""
    name = chosen.file.partition("/")[0]
    here, scratch = folder / name, folder / "files"  # the tests' working folder, where they look for ../common and models
    here.mkdir(parents=True)
    scratch.mkdir()
    (folder / "common").symlink_to(qa / "common")
    models = here / "models"
    models.mkdir()
    for make in chosen.models:
        make(models, scratch)
    for prepare in chosen.prepare:
        prepare(here)
    options = [word for pair in _PORTS.items() for word in pair] + ["--id", "triton", "--instances", "1", *chosen.options]
    out, environment = folder / "cases.jsonl", {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **chosen.environment}
    with Server(headrace_service(models, "", options=options), folder=folder, timeout_seconds=300) as server:
        server.wait_ready()
        environment["SERVER_PID"] = str(server.ready.get("pid", ""))
        flags = ["--forget-memory"] if "--shared-memory" in chosen.options else []
        command = [sys.executable, str(CASES), str(qa / chosen.file), str(out), *flags, *chosen.cases]
        with (folder / "tests.log").open("wb") as log:
            try:
                done = subprocess.run(
                    command, cwd=here, env=environment, stdout=log, stderr=subprocess.STDOUT, timeout=_SECONDS, check=False
                )
                ended = "" if done.returncode == 0 else f"ended with status {done.returncode}"
            except subprocess.TimeoutExpired:
                ended = f"still ran after {_SECONDS} s"
    found = dict(json.loads(line) for line in out.read_text().splitlines()) if out.exists() else {}
    if ended and not found:
        found["(the file)"] = (folder / "tests.log").read_text(errors="replace").strip().splitlines()[-1]
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.server_qa", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="of NVIDIA's server repository")
    parser.add_argument("--only", default="*", help="files to run, as in 'L0_http/*'")
    chosen = parser.parse_args(arguments)
    qa = (chosen.checkout / "qa").resolve()
    if not (qa / "common" / "test_util.py").is_file():
        parser.error(f"{chosen.checkout} has no qa/common/test_util.py")
    if taken := [port for port in _PORTS.values() if not free(int(port))]:
        parser.error(f"port {', '.join(taken)} is taken, which the tests call; run it in a network namespace of its own")
    passed: Counter[str] = Counter()
    others: dict[str, Counter[str]] = {}
    wrong = []
    with terminate_as_exit():
        for one in RUNS:
            if not fnmatch.fnmatch(one.file, chosen.only):
                continue
            with tempfile.TemporaryDirectory(prefix="headrace-qa-") as name:
                outcomes = run(one, qa, Path(name))
            for case, said in outcomes.items():
                called = f"{one.file} {case}", f"{one.file} {case} {one.environment.get('CLIENT_TYPE', '')}"
                reason = next((why for pattern, why in CANNOT.items() if any(fnmatch.fnmatch(n, pattern) for n in called)), "")
                print(f"{one.file} {case}: {said or 'passes'}", file=sys.stderr)
                if said:
                    others.setdefault(one.file, Counter())[reason or "a difference without a reason"] += 1
                else:
                    passed[one.file] += 1
                if bool(said) != bool(reason):
                    wrong.append(f"{one.file} {case}: {said or 'passes, though ' + reason}")
    print("| file | pass | cannot pass |\n|---|---|---|")
    for file in dict.fromkeys((*passed, *others)):
        print(f"| {file} | {passed[file]} | {'; '.join(f'{count}: {why}' for why, count in others.get(file, {}).items())} |")
    failed = sum(sum(counts.values()) for counts in others.values())
    print(f"{passed.total()} of {passed.total() + failed} cases pass", file=sys.stderr)
    for line in wrong:
        print(line, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
