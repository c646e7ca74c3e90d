"""`make bench-training`: a training graph beside the same loop in eager, on the digits example's networks.

    python tests/benchmarks/training.py --models resnet18 vit_tiny_patch16_224 --optimizers SGD AdamW \
        --accumulate 1 --batch 32 --precision fp32,bf16

Other names are timm's, on noise of 224 pixels. Both train copies of one model on the same batches in one process and take
turns, one update each, in alternating order. First come --steps steps whose losses must be eager's within 1e-5, or with a
--precision within the 2 % that the gate of forms allows; then the timed ones. The allocator keeps large blocks for both.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import importlib.util
import json
import os
import statistics
import sys
import time
from pathlib import Path

from graphs import ALLOCATOR

ROOT = Path(__file__).parents[2]
_AGREES, _AGREES_IN_OTHERS = 1e-5, 2e-2  # relative, of each loss, and of the first where precisions are named
_EXAMPLE, _CLASSES = ("smallcnn", "resnet8"), 10
_SETTINGS = {"SGD": {"lr": 0.05, "momentum": 0.9}, "Adam": {"lr": 1e-3}, "AdamW": {"lr": 3e-3, "weight_decay": 0.01}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=["smallcnn", "resnet8"])
    parser.add_argument("--optimizers", nargs="*", default=list(_SETTINGS), choices=list(_SETTINGS))
    parser.add_argument("--accumulate", nargs="*", type=int, default=[1, 4])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--precision", default="auto", help="as in GraphConfig; fp32,bf16 leaves the choice to the graph")
    parser.add_argument("--steps", type=int, default=100, help="of the trace")
    parser.add_argument("--seconds", type=float, default=10.0, help="of timed steps per line")
    parser.add_argument("--out", type=Path, help="where the figures go as JSON")
    arguments = parser.parse_args()
    if any(name not in os.environ for name in ALLOCATOR):  # the allocator reads them when a process starts
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ALLOCATOR})

    import torch
    from rich.console import Console
    from rich.table import Table

    from headrace.runtime.base.fingerprint import fingerprint

    console = Console(soft_wrap=True)
    table = Table("model", "optimizer", "accumulate", "eager ms", "graph ms", "ratio", "trace", title="one update")
    found = {
        "date": datetime.date.today().isoformat(),
        "command": "make bench-training",
        "fingerprint": fingerprint(),
        "threads": torch.get_num_threads(),
        "allocator": ALLOCATOR,
        "batch": arguments.batch,
        "precision": arguments.precision,
        "lines": [],
    }
    agrees = _AGREES if arguments.precision == "auto" else _AGREES_IN_OTHERS
    for model in arguments.models:
        data = batches(model, arguments.batch)
        for optimizer in arguments.optimizers:
            for accumulate in arguments.accumulate:
                line = measured(model, optimizer, accumulate, data, arguments)
                found["lines"].append(line)
                console.print(f"{model} {optimizer} x{accumulate}: {line['ratio']:.3f}x; {line['steps'][-1]}", markup=False)
                table.add_row(
                    model,
                    optimizer,
                    str(accumulate),
                    f"{line['eager_ms']:.3g} ± {line['eager_spread_ms']:.2g}",
                    f"{line['graph_ms']:.3g} ± {line['graph_spread_ms']:.2g}",
                    f"{line['ratio']:.3f}x",
                    f"{line['trace']:.1e}{'' if line['trace'] <= agrees else ' MISSED'}",
                )
                if arguments.out:
                    arguments.out.parent.mkdir(parents=True, exist_ok=True)
                    arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    console.print(table)


def batches(name: str, size: int) -> list:
    """The digits of scikit-learn, enlarged to the 32x32 pixels that the example's networks take; noise for others."""
    import torch

    if name not in _EXAMPLE:
        torch.manual_seed(0)
        return [(torch.randn(size, 3, 224, 224), torch.randint(0, _CLASSES, (size,))) for _ in range(4)]
    import numpy as np
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.from_numpy(np.kron(digits.images, np.ones((4, 4))) / 8 - 1).float()[:, None]
    return list(zip(images.split(size), torch.from_numpy(digits.target).split(size), strict=True))[:-1]


def measured(name: str, optimizer: str, accumulate: int, data: list, arguments: argparse.Namespace) -> dict:
    """Trace and times of one model, optimizer and accumulation. Times are per update, spreads interquartile ranges."""
    import torch
    from torch import nn

    import headrace

    class TrainStep(headrace.Graph):
        def __init__(self, model, optimizer):
            super().__init__(config=headrace.GraphConfig(precision=arguments.precision))
            self.model = model
            self.add_optimizer(optimizer, accumulate=accumulate)

        def build(self, images, labels):
            loss = nn.functional.cross_entropy(self.model(images), labels)
            loss.backward()
            return loss

    torch.manual_seed(0)
    eager_model = network(name)
    graph_model = copy.deepcopy(eager_model)
    make = getattr(torch.optim, optimizer)
    eager_optimizer = make(eager_model.parameters(), **_SETTINGS[optimizer])
    graph = TrainStep(graph_model, make(graph_model.parameters(), **_SETTINGS[optimizer]))

    def eager(steps: list) -> list:
        losses = []
        eager_optimizer.zero_grad()
        for images, labels in steps:
            loss = nn.functional.cross_entropy(eager_model(images), labels)
            loss.backward()
            losses.append(loss.detach())
        eager_optimizer.step()
        return losses

    def graphed(steps: list) -> list:
        return [graph(*step) for step in steps]

    updates = [
        [data[(at + offset) % len(data)] for offset in range(accumulate)] for at in range(0, arguments.steps, accumulate)
    ]
    traces = []
    for run in (eager, graphed):
        torch.manual_seed(1)  # dropout
        traces.append(torch.stack([loss for steps in updates for loss in run(steps)]).double())
    scale = traces[0].abs() if arguments.precision == "auto" else traces[0].abs().clamp(min=traces[0][0].abs())
    trace = float(((traces[1] - traces[0]).abs() / scale).max())

    times: dict = {eager: [], graphed: []}
    deadline, turn = time.monotonic() + arguments.seconds, 0
    while turn < 4 or time.monotonic() < deadline:
        for run in (eager, graphed) if turn % 2 else (graphed, eager):
            begin = time.perf_counter()
            run(updates[turn % len(updates)])
            times[run].append(1000 * (time.perf_counter() - begin))
        turn += 1
    (eager_ms, eager_spread), (graph_ms, graph_spread) = (_summary(times[run]) for run in (eager, graphed))
    return {
        "model": name,
        "optimizer": optimizer,
        "accumulate": accumulate,
        "trace": trace,
        "eager_ms": eager_ms,
        "eager_spread_ms": eager_spread,
        "graph_ms": graph_ms,
        "graph_spread_ms": graph_spread,
        "ratio": eager_ms / graph_ms,
        "updates": turn,
        "steps": [str(record) for record in graph.steps],
        "tried": graph.steps[-1].tried,
    }


def network(name: str):
    """One of the example's own, or timm's."""
    if name not in _EXAMPLE:
        import zoo_models

        return zoo_models._timm(name)(_CLASSES)
    spec = importlib.util.spec_from_file_location("digits_model", ROOT / "examples" / "digits" / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.build_model(name)


def _summary(values: list) -> tuple:
    low, middle, high = statistics.quantiles(values, n=4)
    return middle, high - low


if __name__ == "__main__":
    main()
