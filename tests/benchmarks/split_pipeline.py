"""A deep network in one process and as a pipeline of several, in turn in one run.

    python tests/benchmarks/split_pipeline.py --stages 2

Residual blocks of two convolutions each. Both compute with the machine's cores: the whole model with all its threads, the
stages with their share of them. `alone` is one batch after another, in milliseconds per call; `streamed` are rows per second
with as many calls at a time as the session says (of the whole model: one, and with `whole x2` two sessions over the same
weights with half the threads each). Medians with the quartiles. Memory is what a process has for itself (USS), in MiB. At the
end a stage is killed, and one is stopped.
"""

import argparse
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from onnx import helper
from split_package import package, seconds_lost

from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.pipeline.splitting import cut_model
from headrace.runtime.base.memory import give_back_memory
from headrace.runtime.base.session import default_threads

SIDE, CLASSES = 112, 1000
SECONDS = 2.0  # of a round of streamed calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=16)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        whole = _package(Path(folder), asked.blocks, asked.width)
        done = cut_model(whole, Path(folder) / "pipeline", asked.stages)
        print(
            f"{asked.blocks} blocks of {asked.width}, {asked.stages} stages of "
            f"{', '.join(f'{one:.0f}' for one in done.milliseconds)} ms at {done.rows} rows; load {os.getloadavg()[0]:.1f}; "
            f"difference {done.difference:.1e}"
        )
        _measure(whole, done.path, asked)


def _measure(whole: Path, split: Path, asked: argparse.Namespace) -> None:
    rows = np.zeros((max(asked.batches), 3, SIDE, SIDE), np.float32)
    give_back_memory()  # what the model was made of
    before = psutil.Process().memory_full_info().uss
    one = load_artifact(whole).open()
    one.run([rows])
    taken = psutil.Process().memory_full_info().uss - before
    artifact = load_artifact(whole)
    half: Any = artifact.open(threads=max(1, default_threads() // 2))
    pair = [half, half.twin()]
    several: Any = load_artifact(split).open()
    lanes = [several, *(several.twin() for _ in range(several.in_flight - 1))]
    _streamed(lanes, [rows], 1.0)
    stages = [psutil.Process(pid).memory_full_info().uss / 2**20 for pid in several.ranks.pids]
    print(f"memory: the whole {taken / 2**20:.0f}, the stages {', '.join(f'{size:.0f}' for size in stages)}")
    for batch in asked.batches:
        given = [np.random.default_rng(batch).normal(size=(batch, 3, SIDE, SIDE)).astype(np.float32)]
        ways: dict[str, Callable[[], float]] = {
            "alone, ms: whole": lambda given=given: _milliseconds(one, given),
            "alone, ms: pipeline": lambda given=given: _milliseconds(several, given),
            "streamed, rows/s: whole": lambda given=given: _streamed([one], given, SECONDS),
            "streamed, rows/s: whole x2": lambda given=given: _streamed(pair, given, SECONDS),
            "streamed, rows/s: pipeline": lambda given=given: _streamed(lanes, given, SECONDS),
        }
        found: dict[str, list[float]] = {name: [] for name in ways}
        for at in range(asked.rounds):
            for name, way in list(ways.items())[:: 1 if at % 2 else -1]:
                found[name].append(way())
        for name, values in found.items():
            low, middle, high = statistics.quantiles(values, n=4)
            print(f"batch {batch:>3} {name:<28} {middle:.1f} ({low:.1f} to {high:.1f})", flush=True)
    _streamed(lanes, given, 6.0)
    print(f"shares while batches of {batch} are streamed: {several.ranks.shares()}")
    for number in (signal.SIGKILL, signal.SIGSTOP):
        print(f"{number.name}: the stage is back after {seconds_lost(several, number):.1f} s")
    print(f"load {os.getloadavg()[0]:.1f}")
    for session in (one, *pair, *lanes):
        session.close()


def _milliseconds(session: Any, given: list[np.ndarray]) -> float:
    begin = time.perf_counter()
    session.run(given)
    return 1000 * (time.perf_counter() - begin)


def _streamed(sessions: Sequence[Any], given: list[np.ndarray], seconds: float) -> float:
    """Rows per second while each session is asked again and again by a thread of its own."""
    end, done = time.perf_counter() + seconds, [0] * len(sessions)

    def ask(number: int) -> None:
        while time.perf_counter() < end:
            sessions[number].run(given)
            done[number] += len(given[0])

    begin = time.perf_counter()
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(sessions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - begin)


def _package(folder: Path, blocks: int, width: int) -> Path:
    """x = relu(x + conv(relu(conv(x)))) so many times, as the package FOLDER/models/deep."""
    random = np.random.default_rng(1)
    weights: dict[str, np.ndarray] = {
        "stem": random.standard_normal((width, 3, 8, 8), np.float32) / 14,
        "head": random.standard_normal((width, CLASSES), np.float32) / 16,
    }
    nodes = [
        helper.make_node("Conv", ["given", "stem"], ["x0"], strides=[8, 8]),
    ]
    for number in range(blocks):
        for conv in "ab":
            weights[f"{conv}{number}"] = random.standard_normal((width, width, 3, 3), np.float32) / (6 * np.sqrt(width))
        nodes += [
            helper.make_node("Conv", [f"x{number}", f"a{number}"], [f"first{number}"], pads=[1] * 4),
            helper.make_node("Relu", [f"first{number}"], [f"taken{number}"]),
            helper.make_node("Conv", [f"taken{number}", f"b{number}"], [f"second{number}"], pads=[1] * 4),
            helper.make_node("Add", [f"second{number}", f"x{number}"], [f"sum{number}"]),
            helper.make_node("Relu", [f"sum{number}"], [f"x{number + 1}"]),
        ]
    nodes += [
        helper.make_node("GlobalAveragePool", [f"x{blocks}"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["features"]),
        helper.make_node("MatMul", ["features", "head"], ["scores"]),
    ]
    return package(folder, "deep", nodes, weights, row=(3, SIDE, SIDE), classes=CLASSES)


if __name__ == "__main__":
    main()
