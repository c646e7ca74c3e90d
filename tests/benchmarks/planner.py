"""Predicted times of a step beside measured ones, for the planner's choice and its runners-up, on the ranks of this job.

    torchrun --nproc-per-node 2 tests/benchmarks/planner.py

Rates are measured first, on these ranks. Each plan is carried out by `parallel.apply_plan`, in turns with the others: captured
training steps with Adam, or a pipeline of the graph's stages. An error is predicted over measured, less 1; 25 % is what is to
be held, and the plan that was chosen is to be the fastest.
"""

import dataclasses
import itertools
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

import headrace
from headrace import parallel
from headrace.runtime.parallel.planner.measure import measure
from headrace.runtime.parallel.planner.operators import read_model
from headrace.runtime.parallel.planner.plan import plan
from headrace.runtime.parallel.planner.saved import document

STEPS, WARM = 12, 5
MOST = 4


def convolutional(classes):
    sizes = (3, 32, 64, 128)
    blocks = [
        (nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
        for a, b in itertools.pairwise(sizes)
    ]
    parts = [part for block in blocks for part in block]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[-1], classes))


def deep():
    return nn.Sequential(*(part for _ in range(12) for part in (nn.Linear(512, 512), nn.ReLU())))


MODELS = {
    "convolutions, 10 classes": (lambda: convolutional(10), (64, 3, 96, 96), 10),
    "convolutions, 50,000 classes": (lambda: convolutional(50_000), (64, 3, 32, 32), 50_000),
    "12 linear layers": (deep, (256, 512), 512),
}


class Step(headrace.Graph):
    def __init__(self, module, optimizer):
        super().__init__(config=headrace.GraphConfig(backend="captured"))
        self.module = module
        self.add_optimizer(optimizer)

    def build(self, rows, targets):
        loss = parallel.cross_entropy(self.module(rows), targets)
        loss.backward()
        return loss


def made(written, module, shape, classes, mesh):
    """A step of the plan, as a function without arguments."""
    step = Step(module, torch.optim.Adam(module.parameters()))
    applied = parallel.apply_plan(step, written, mesh)
    given = applied.batch(torch.randn(shape), torch.randint(0, classes, shape[:1]))
    return lambda: step(*given)


def in_turns(steps):
    """The median seconds of each, over all ranks: they take turns, so that what else the machine does meets all alike."""
    for step in steps:
        for _ in range(WARM):
            step()
    taken = [[] for _ in steps]
    for turn in range(STEPS):
        for at in range(len(steps)):
            at = (at + turn) % len(steps)
            dist.barrier()
            begun = time.perf_counter()
            steps[at]()
            taken[at].append(time.perf_counter() - begun)
    values = torch.tensor([statistics.median(times) for times in taken])
    dist.all_reduce(values)
    return [float(value) / dist.get_world_size() for value in values]


def main():
    torch.set_num_threads(1)
    mesh = parallel.world("cpu")
    first = parallel.rank() == 0
    for name, (build, shape, classes) in MODELS.items():
        with torch.device("meta"):
            model = read_model(build(), shape)
        rates = measure((mesh.size(),), "cpu", model)
        planned = plan(model, (mesh.size(),), rates, 8e9)
        written = json.loads(json.dumps(document(planned, model, (mesh.size(),), rates)))
        if first:
            print(f"{name}, {shape[0]} rows, {mesh.size()} ranks")
            print(f"  {'predicted':>12}{'measured':>12}{'error':>8}")
        plans, steps = [], []
        for chosen in (planned.best, *[other for other in planned.others if other.fits][: MOST - 1]):
            torch.manual_seed(0)
            try:
                steps.append(made({**written, "plan": json.loads(json.dumps(chosen.to_json()))}, build(), shape, classes, mesh))
                plans.append(chosen)
            except headrace.errors.HeadraceError as error:
                if first:
                    print(f"  {chosen.title}: {str(error).splitlines()[0][:200]}")
        measured = []
        for chosen, took in zip(plans, in_turns(steps), strict=True):
            measured.append(dataclasses.replace(chosen, compute=took))
            if first:
                times = f"{1000 * chosen.seconds:9.1f} ms{1000 * took:9.1f} ms{100 * (chosen.seconds / took - 1):+7.0f}%"
                print(f"  {times}  {chosen.title}", flush=True)
        if not measured:
            continue
        best = min(measured, key=lambda one: one.compute)
        if first:
            behind = measured[0].compute / best.compute - 1
            print(
                f"  the choice is {'the fastest' if best is measured[0] else f'{100 * behind:.0f} % behind {best.title}'}",
                flush=True,
            )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
