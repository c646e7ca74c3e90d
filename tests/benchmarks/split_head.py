"""A head of very many classes in one process and split over several, in turn in one run.

    python tests/benchmarks/split_head.py --classes 200000 --ranks 2

Both compute with the machine's cores: the whole model with all its threads, the ranks with their share of them. `best` is the
five best classes with their probabilities over all classes, `scores` are all scores. Times are medians of milliseconds per
call, with the quartiles; memory is what a process has for itself (USS), in MiB. At the end a rank is killed, and one is
stopped.
"""

import argparse
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from onnx import helper
from split_package import package, seconds_lost

from headrace.runtime.artifact.agreement import best_classes
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.split.splitting import split_model

COUNT = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=200_000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        whole = _package(Path(folder), asked.classes, asked.width)
        split, difference = split_model(whole, Path(folder) / "split", asked.ranks)
        print(
            f"{asked.classes} x {asked.width}, {asked.ranks} ranks; load {os.getloadavg()[0]:.1f}; difference {difference:.1e}"
        )
        _measure(whole, split, asked)


def _measure(whole: Path, split: Path, asked: argparse.Namespace) -> None:
    before = psutil.Process().memory_full_info().uss
    one = load_artifact(whole).open()
    head = load_artifact(whole).task.heads[0]
    one.run([np.zeros((1, asked.width), np.float32)])
    taken = psutil.Process().memory_full_info().uss - before
    several = load_artifact(split).open()
    several.best([np.zeros((1, asked.width), np.float32)], COUNT)
    ranks = [psutil.Process(pid).memory_full_info().uss / 2**20 for pid in several.ranks.pids]
    print(f"memory: the whole {taken / 2**20:.0f}, the ranks {', '.join(f'{size:.0f}' for size in ranks)}")
    random = np.random.default_rng(0)
    for batch in asked.batches:
        rows = [random.normal(size=(batch, asked.width)).astype(np.float32)]
        ways = {
            "best": [
                lambda rows=rows: best_classes(head, one.run(rows)[0], COUNT),
                lambda rows=rows: several.best(rows, COUNT),
            ],
            "scores": [lambda rows=rows: one.run(rows), lambda rows=rows: several.run(rows)],
        }
        for name, (as_one, as_several) in ways.items():
            times: list[list[float]] = [[], []]
            for at in range(asked.rounds):
                for number in (0, 1) if at % 2 else (1, 0):
                    begin = time.perf_counter()
                    (as_one, as_several)[number]()
                    times[number].append(1000 * (time.perf_counter() - begin))
            texts = ["{1:.1f} ({0:.1f} to {2:.1f})".format(*statistics.quantiles(found, n=4)) for found in times]
            ratio = statistics.median(times[0]) / statistics.median(times[1])
            print(
                f"batch {batch:>3} {name:<7} one process {texts[0]:<24} ranks {texts[1]:<24} {ratio:.2f} times as fast",
                flush=True,
            )
    for number in (signal.SIGKILL, signal.SIGSTOP):
        print(f"{number.name}: the rank is back after {seconds_lost(several, number):.1f} s")
    print(f"load {os.getloadavg()[0]:.1f}")
    one.close()
    several.close()


def _package(folder: Path, classes: int, width: int) -> Path:
    """scores = relu(features @ square) @ weight' + bias, as the package FOLDER/models/faces."""
    random = np.random.default_rng(1)
    weights = {
        "square": random.standard_normal((width, width), np.float32) / 20,
        "weight": random.standard_normal((classes, width), np.float32) / 20,
        "bias": random.standard_normal(classes, np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["given", "square"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["taken"]),
        helper.make_node("Gemm", ["taken", "weight", "bias"], ["scores"], transB=1),
    ]
    return package(folder, "faces", nodes, weights, row=(width,), classes=classes)


if __name__ == "__main__":
    main()
