"""Predicted times of a step beside measured ones, for the planner's choice and its runners-up, on the ranks of this job.

    torchrun --nproc-per-node 2 tests/benchmarks/planner.py

Rates are measured first, on these ranks. Each plan is carried out, in turns with the others: captured training steps with Adam,
or a pipeline. An error is predicted over measured, less 1; 25 % is what is to be held, and the plan that was chosen is to be
the fastest.
"""

import dataclasses
import itertools
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import headrace
from headrace import parallel
from headrace.runtime.parallel.planner.measure import measure
from headrace.runtime.parallel.planner.operators import read_model
from headrace.runtime.parallel.planner.plan import plan

STEPS, WARM = 12, 5
MOST = 4
WORDS = {"broadcast": parallel.sbp.broadcast, "partial_sum": parallel.sbp.partial_sum} | {
    f"split({dim})": parallel.sbp.split(dim) for dim in range(4)
}


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
    def __init__(self, module, optimizer, loss):
        super().__init__(config=headrace.GraphConfig(backend="captured"))
        self.module, self.loss = module, loss
        self.add_optimizer(optimizer)

    def build(self, rows, targets):
        loss = self.loss(self.module(rows), targets)
        loss.backward()
        return loss


def sbp(words):
    return tuple(WORDS[word] for word in words)


def made(chosen, module, shape, classes, mesh):
    """A step of the plan, as a function without arguments."""
    rows, targets = torch.randn(shape), torch.randint(0, classes, shape[:1])
    if chosen.stages:
        ends = [int(last.split(".")[0]) + 1 for _, last in chosen.stages]
        stages = [module[begin:end] for begin, end in itertools.pairwise((0, *ends))]
        pipeline = parallel.Pipeline(
            stages, functional.cross_entropy, mesh, microbatches=chosen.microbatches, schedule=chosen.schedule
        )
        optimizer = torch.optim.Adam(pipeline.parameters())

        def piped():
            pipeline.step(rows, targets)
            optimizer.step()
            optimizer.zero_grad()

        return piped
    table = {name: sbp(words) for name, words in chosen.layouts.items()}
    for name, words in chosen.layouts.items():
        if "split(0)" in words and name.replace("weight", "bias") in dict(module.named_parameters()):
            table[name.replace("weight", "bias")] = sbp(words)
    parallel.to_global(module, mesh, table, zero=chosen.zero, axis=chosen.zero_axis or 0)
    for at, _, before, after in chosen.boxed:
        part = module.get_submodule(at)
        parallel.boxed(part, **{"outputs" if "partial_sum" in before else "inputs": sbp(after)})
    optimizer = torch.optim.Adam(module.parameters())
    split = "split(1)" in chosen.outputs
    step = Step(module, optimizer, parallel.cross_entropy if split else functional.cross_entropy)
    given = parallel.to_global(rows, mesh, sbp(chosen.inputs))
    lying = tuple("split(0)" if word == "split(0)" else "broadcast" for word in chosen.outputs)
    labels = parallel.to_global(targets, mesh, sbp(lying))
    return lambda: step(given, labels)


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
        if first:
            print(f"{name}, {shape[0]} rows, {mesh.size()} ranks")
            print(f"  {'predicted':>12}{'measured':>12}{'error':>8}")
        plans, steps = [], []
        for chosen in (planned.best, *[other for other in planned.others if other.fits][: MOST - 1]):
            torch.manual_seed(0)
            try:
                steps.append(made(chosen, build(), shape, classes, mesh))
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
