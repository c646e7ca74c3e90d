"""NVIDIA's own load generator against our server: runs the real `perf_analyzer`, reads what it measured.

    python -m tests.benchmarks.serving.perf_analyzer MODELS NAME --perf-analyzer PATH --images DIR

The tensor model is sent random tensors; with images, its `NAME_classify` companion is sent those. Both over HTTP and gRPC.
"""

from __future__ import annotations

import argparse
import base64
import csv
import json
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from headrace.errors import BenchError
from headrace.serving.bench.images import choose_images
from headrace.serving.bench.servers import Server, terminate_as_exit
from headrace.serving.bench.services import headrace_service

__all__ = ["PerfRow", "PerfRun", "find", "run"]

Protocol = Literal["http", "grpc"]
_LATENCIES = ("p50", "p90", "p95", "p99")
# Where the server says the time went, by the names of the report's columns.
_PARTS = {
    "queue": "Server Queue",
    "input": "Server Compute Input",
    "infer": "Server Compute Infer",
    "output": "Server Compute Output",
}


@dataclass(frozen=True, kw_only=True)
class PerfRun:
    """One run of perf_analyzer. `address` is HOST:PORT of the protocol's port.

    `images` are files for a model whose input, `image_input`, is encoded images; without any, random tensors are sent.
    It measures windows of `window_seconds` until three of them are within `stability_percent` of each other, ten at most. (Its
    way to send a fixed number of requests, --request-count, sometimes never ends in version 2.51.)
    """

    address: str
    protocol: Protocol
    model: str
    images: tuple[Path, ...] = ()
    image_input: str = "IMAGE"
    concurrency: tuple[int, ...] = (1, 4, 16)
    rows: int = 1
    window_seconds: float = 2.0
    stability_percent: float = 20.0
    timeout_seconds: float = 600.0

    def __post_init__(self) -> None:
        if self.protocol not in ("http", "grpc"):
            raise ValueError(f"protocol must be 'http' or 'grpc', got {self.protocol!r}")
        if not self.concurrency or min(*self.concurrency, self.rows) < 1 or self.window_seconds < 0.001:
            raise ValueError("concurrency and rows must be at least 1, window_seconds at least a thousandth")


@dataclass(frozen=True, kw_only=True)
class PerfRow:
    """What perf_analyzer measured at one concurrency. `server_us` is what the server's statistics say of one request."""

    protocol: str
    model: str
    concurrency: int
    inferences_per_second: float
    latency_ms: dict[str, float]
    server_us: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def find(given: Path | None = None) -> Path:
    """The perf_analyzer binary: the one given, or that on PATH. Raises BenchError saying where to get it."""
    found = shutil.which(str(given)) if given is not None else shutil.which("perf_analyzer")
    if found is None:
        where = f"{given} is no program" if given is not None else "perf_analyzer is not on PATH"
        raise BenchError(
            f"{where}; it is part of NVIDIA's Triton SDK image and of the tritonclient 2.51.0 wheel; see --perf-analyzer"
        )
    return Path(found)


def run(binary: Path, wanted: PerfRun) -> list[PerfRow]:
    """Run it for each concurrency. Raises BenchError with the end of its output when it fails or measures nothing."""
    rows: list[PerfRow] = []
    with tempfile.TemporaryDirectory(prefix="perf-analyzer-") as name:
        folder = Path(name)
        base = [str(binary), "-m", wanted.model, "-u", wanted.address, "-i", wanted.protocol, "-b", str(wanted.rows)]
        base += ["--shared-memory", "none", "--measurement-interval", str(round(1e3 * wanted.window_seconds))]
        base += ["--stability-percentage", f"{wanted.stability_percent:g}"]
        if wanted.images:
            data = folder / "images.json"
            data.write_text(json.dumps(_image_data(wanted.image_input, wanted.images)))
            base += ["--input-data", str(data)]
        for concurrency in wanted.concurrency:
            report = folder / f"{concurrency}.csv"
            command = [*base, "--concurrency-range", str(concurrency), "-f", str(report)]
            output = _output_of(command, wanted)
            # It ends with status 0 after many kinds of failure, so only the report says that it measured.
            if not report.exists():
                raise BenchError(_failure(wanted, output))
            rows += read_report(report.read_text(), wanted)
    return rows


def read_report(text: str, wanted: PerfRun) -> list[PerfRow]:
    """The rows of a CSV report. Raises BenchError naming a column that is missing."""
    lines = list(csv.DictReader(text.splitlines()))
    if not lines:
        raise BenchError(_failure(wanted, text))
    try:
        return [
            PerfRow(
                protocol=wanted.protocol,
                model=wanted.model,
                concurrency=int(line["Concurrency"]),
                inferences_per_second=float(line["Inferences/Second"]),
                latency_ms={name: float(line[f"{name} latency"]) / 1e3 for name in _LATENCIES},
                server_us={part: float(line[column]) for part, column in _PARTS.items()},
            )
            for line in lines
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(f"perf_analyzer's report cannot be read: {error}") from error


def _image_data(name: str, images: Sequence[Path]) -> dict[str, Any]:
    """perf_analyzer's input file. A BYTES element given in base64 needs its little-endian length inside."""
    entries = []
    for path in images:
        try:
            image = path.read_bytes()
        except OSError as error:
            raise BenchError(f"cannot read the image {path}: {error.strerror}") from error
        packed = base64.b64encode(struct.pack("<I", len(image)) + image).decode()
        entries.append({name: {"content": {"b64": packed}, "shape": [1]}})
    return {"data": entries}


def _output_of(command: Sequence[str], wanted: PerfRun) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=wanted.timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"perf_analyzer did not finish within {wanted.timeout_seconds:.0f} s") from error
    except OSError as error:
        raise BenchError(f"perf_analyzer cannot be started: {error.strerror}") from error
    if done.returncode:
        raise BenchError(_failure(wanted, done.stdout))
    return done.stdout


def _failure(wanted: PerfRun, output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()][-8:]
    listed = "\n".join(f"  {line}" for line in lines)
    return f"perf_analyzer measured nothing of {wanted.model} over {wanted.protocol}; the end of what it said:\n{listed}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.serving.perf_analyzer", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("models", type=Path, help="a model repository")
    parser.add_argument("model", help="the tensor model in it")
    parser.add_argument("--perf-analyzer", type=Path, help="the binary, where it is not on PATH")
    parser.add_argument("--images", type=Path, action="append", help="image files or folders for the _classify companion")
    parser.add_argument("--concurrency", default="1,4,16", help="requests at a time, comma-separated (default 1,4,16)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a measuring window (default 2)")
    parser.add_argument("--stability", type=float, default=20.0, help="percent by which windows may differ (default 20)")
    parser.add_argument("--out", type=Path, help="also write the figures here, as JSON")
    chosen = parser.parse_args(arguments)
    try:
        levels = tuple(int(part) for part in chosen.concurrency.split(","))
        binary = find(chosen.perf_analyzer)
        rows = _measure(chosen, binary, levels)
    except (BenchError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for row in rows:
        latency = ", ".join(f"{name} {row.latency_ms[name]:.1f}" for name in ("p50", "p99"))
        what = f"{row.model:<28} {row.protocol:<5} {row.concurrency:>4} at a time"
        print(f"{what} {row.inferences_per_second:>10,.1f}/s  {latency} ms")
    if chosen.out is not None:
        chosen.out.write_text(json.dumps([row.to_json() for row in rows], indent=1) + "\n")
    return 0


def _files(given: Sequence[Path]) -> tuple[Path, ...]:
    """The images named, and those in the folders named."""
    return choose_images(given, repository=None, model=Path(), synthetic_into=Path(), limit=64).files


def _measure(chosen: argparse.Namespace, binary: Path, levels: tuple[int, ...]) -> list[PerfRow]:
    model = chosen.models / chosen.model
    images = tuple(path.resolve() for path in _files(chosen.images)) if chosen.images else ()
    if not model.is_dir():
        raise BenchError(f"there is no model {chosen.model} in {chosen.models}")
    rows: list[PerfRow] = []
    with (
        terminate_as_exit(),
        tempfile.TemporaryDirectory(prefix="headrace-perf-") as name,
        Server(headrace_service(chosen.models, "/", trusted=True), folder=Path(name), timeout_seconds=300.0) as server,
    ):
        server.wait_ready()
        protocols: tuple[Protocol, ...] = ("http", "grpc")
        for protocol in protocols:
            address = f"127.0.0.1:{server.ready[protocol]}"
            plain = PerfRun(
                address=address,
                protocol=protocol,
                model=chosen.model,
                concurrency=levels,
                window_seconds=chosen.seconds,
                stability_percent=chosen.stability,
            )
            rows += run(binary, plain)
            if images:
                rows += run(binary, replace(plain, model=f"{chosen.model}_classify", images=images))
        server.check_alive()
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
