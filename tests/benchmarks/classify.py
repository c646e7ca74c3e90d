"""`make bench-classify`: how busy `headrace classify` keeps the session, and what memory it takes over many images.

First the given model on real JPEG photos, repeated in a list of paths until a round takes about --seconds: the share of the
time that each stage works, and the stage that limits, of every round. Then a model that costs nothing on --many small JPEGs,
in tar shards and in a list of paths: resident memory by images done. Each run is the command in a process of its own.
"""

from __future__ import annotations

import argparse
import io
import json
import platform
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import psutil
from onnx import TensorProto, helper
from PIL import Image

from headrace.runtime.artifact.package import write_package
from headrace.specs import Preprocessing, Resize, Signature, TensorSpec

SIDE, DISTINCT, PER_SHARD = 32, 100, 1000
WANTED_BUSY = 0.9
# Memory may grow until every thread has its largest image and the allocator its pools: the first tenth is not counted.
SETTLED = 0.1
FLAT_MIB = 32.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="?", help="a model repository; without it only memory is measured")
    parser.add_argument("--images", type=Path, help="a folder of JPEG photos")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--many", type=int, default=100_000, help="images over which memory is watched")
    parser.add_argument("--out", type=Path, help="where the figures go as JSON")
    arguments = parser.parse_args()
    if arguments.models is not None and arguments.images is None:
        parser.error("--images must name a folder of JPEG photos")
    packages = {name: version(name) for name in ("pyarrow", "spdl-core", "pillow", "simplejpeg", "numpy")}
    machine = f"{platform.processor() or platform.machine()}, {psutil.cpu_count(logical=False)} cores"
    found: dict = {"command": "make bench-classify", "machine": machine, "packages": packages}
    ok = True
    with tempfile.TemporaryDirectory() as folder:
        if arguments.models is not None:
            found["rounds"] = busy(arguments, Path(folder))
            limits = [max(row["busy"]["model"], row["busy"]["decode"]) for row in found["rounds"]]
            found["busy"] = {"median": statistics.median(limits), "least": min(limits), "wanted": WANTED_BUSY}
            print(f"the model or decoding, whichever limits: {statistics.median(limits):.1%} busy (least {min(limits):.1%})")
            ok = min(limits) >= WANTED_BUSY
        found["memory"] = memory(Path(folder), arguments.many)
        ok = ok and all(row["grown_mib"] <= FLAT_MIB for row in found["memory"].values())
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(0 if ok else 1)


def command(source: Path, model: Path, out: Path) -> list[str]:
    options = ["--model", str(model), "--out", str(out), "--format", "json"]
    return [sys.executable, "-m", "headrace", "classify", str(source), *options]


def busy(arguments: argparse.Namespace, folder: Path) -> list[dict]:
    """A row per round; a short run before the first says how many images make a round."""
    photos = sorted(path.resolve() for path in arguments.images.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    if not photos:
        sys.exit(f"{arguments.images} holds no JPEG photos")

    def run(count: int, name: str) -> dict:
        source = folder / f"{name}.txt"
        source.write_text("".join(f"{photos[number % len(photos)]}\n" for number in range(count)))
        done = subprocess.run(command(source, arguments.models, folder / name), stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            sys.exit(f"headrace classify ended with {done.returncode}")
        return json.loads(done.stdout)

    rate = run(200, "first")["images_per_second"]
    rows = []
    for number in range(arguments.rounds):
        summary = run(max(200, int(rate * arguments.seconds)), f"round{number}")
        row = {key: summary[key] for key in ("images", "seconds", "images_per_second", "rows", "busy", "bottleneck")}
        shares = ", ".join(f"{stage} {share:.1%}" for stage, share in row["busy"].items())
        print(f"round {number}: {row['images_per_second']} images/s, {shares}; bottleneck {row['bottleneck']}", flush=True)
        rows.append(row)
    return rows


def memory(folder: Path, many: int) -> dict[str, dict]:
    """For each kind of source [images done, MiB], and how much the greatest lies above the first of the settled ones."""
    model = tiny_model(folder)
    found = {}
    for kind, source in (("tar", tars(folder, many)), ("list", listed(folder, many))):
        curve = watch(command(source, model, folder / f"out-{kind}"), folder / f"out-{kind}")
        images = sum(images_of(folder / f"out-{kind}"))
        settled = [mib for done, mib in curve if done >= SETTLED * many]
        grown = max(settled) - settled[0] if settled else float("nan")
        found[kind] = {
            "images": images,
            "grown_mib": round(grown, 1),
            "most_mib": max(mib for _, mib in curve),
            "curve": thin(curve),
        }
        for done, mib in found[kind]["curve"]:
            print(f"{kind:5} {done:8,} images {mib:7.1f} MiB {'#' * int(mib / 8)}")
        print(f"{kind}: {images:,} images, {grown:+.1f} MiB after the first {SETTLED:.0%}", flush=True)
        assert images == many, f"{images} rows of {many} images"
    return found


def watch(line: list[str], out: Path) -> list[tuple[int, float]]:
    """Resident memory of the command by images in finished files."""
    curve = []
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    looked = psutil.Process(process.pid)
    while process.poll() is None:
        done = sum(1 for _ in out.glob("part-*.parquet")) * PER_SHARD
        try:
            curve.append((done, round(looked.memory_info().rss / 2**20, 1)))
        except psutil.NoSuchProcess:
            break
        time.sleep(0.1)
    if process.wait():
        sys.exit(f"{' '.join(line)} ended with {process.returncode}")
    return [point for point in curve if point[1]]


def thin(curve: list[tuple[int, float]], points: int = 21) -> list[tuple[int, float]]:
    return [curve[index] for index in np.unique(np.linspace(0, len(curve) - 1, points).astype(int))]


def images_of(out: Path) -> list[int]:
    import pyarrow.parquet as pq

    return [pq.read_metadata(path).num_rows for path in out.glob("part-*.parquet")]


def photo(seed: int) -> bytes:
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    data = io.BytesIO()
    small.resize((160, 120), Image.Resampling.BICUBIC).save(data, "JPEG")
    return data.getvalue()


def tars(folder: Path, many: int) -> Path:
    photos, root = [photo(seed) for seed in range(DISTINCT)], folder / "tars"
    root.mkdir()
    for first in range(0, many, PER_SHARD):
        with tarfile.open(root / f"{first:08}.tar", "w") as archive:
            for number in range(first, min(first + PER_SHARD, many)):
                info = tarfile.TarInfo(f"{number:08}.jpg")
                info.size = len(photos[number % DISTINCT])
                archive.addfile(info, io.BytesIO(photos[number % DISTINCT]))
    return root


def listed(folder: Path, many: int) -> Path:
    (folder / "few").mkdir()
    for number in range(DISTINCT):
        (folder / "few" / f"{number}.jpg").write_bytes(photo(number))
    (folder / "list.txt").write_text("".join(f"few/{number % DISTINCT}.jpg\n" for number in range(many)))
    return folder / "list.txt"


def tiny_model(folder: Path) -> Path:
    """The class is the brightest channel."""
    files = folder / "files"
    files.mkdir()
    graph = helper.make_graph(
        [helper.make_node("ReduceMean", ["images"], ["scores"], axes=[2, 3], keepdims=0)],
        "model",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9), files / "model.onnx")
    write_package(
        folder / "models" / "tiny",
        name="tiny",
        files_from=files,
        signature=Signature(
            inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3, SIDE, SIDE)),),
            outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", 3)),),
        ),
        preprocessing=Preprocessing(geometry=(Resize(size=(SIDE, SIDE)),), mean=(0.5,) * 3, std=(0.25,) * 3),
        labels=["red", "green", "blue"],
        parity={},
        plans=[],
        provenance={},
        max_batch_size=16,
    )
    return folder / "models" / "tiny"


if __name__ == "__main__":
    main()
