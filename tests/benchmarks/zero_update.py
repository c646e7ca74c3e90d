"""What ZeRO costs where there are many small parameters: processor time of a step and of its update, beside one process.

    torchrun --nproc-per-node 2 tests/benchmarks/zero_update.py --layers 100 --width 32

Each line is one way to train the same network, in turn in one run: the milliseconds of this rank's threads, the median of the
rounds, of a whole step and of what comes after the backward pass (sums of gradients, the update, gathers), and the collectives
that a step posts.
"""

import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

import headrace
from headrace import parallel


def net(layers, width):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))


class Step(headrace.Graph):
    def __init__(self, model, optimizer, placement=None, zero=0, backend="captured"):
        super().__init__(config=None if placement is not None else headrace.GraphConfig(backend=backend))
        self.model = model
        if placement is not None:
            self.set_stage(model, 0)
            self.add_pipeline(placement, microbatches=2, zero=zero)
        self.add_optimizer(optimizer)

    def build(self, rows, targets):
        loss = functional.mse_loss(self.model(rows), targets)
        loss.backward()
        return loss


def collectives(call):
    """How many are posted while it runs."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as told:
        call()
    return sum(event.name.startswith("gloo:") for event in told.events())


def measured(call, rounds):
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        call()
        times.append(1000 * (time.process_time() - begin))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=100)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--ways", nargs="+", default=["pipeline", "captured", "eager"])
    options = parser.parse_args()
    mesh = parallel.world("cpu", (-1, 1))
    torch.set_num_threads(1)
    rows = torch.randn(16, options.width, generator=torch.Generator().manual_seed(1))

    def say(line):
        if not parallel.rank():
            print(line, flush=True)

    def report(name, graph, given):
        for _ in range(3):
            graph(*given)
        update, took = graph._trainer._update, []

        def timed():
            begin = time.process_time()
            update()
            took.append(1000 * (time.process_time() - begin))

        graph._trainer._update = timed
        whole = measured(lambda: graph(*given), options.rounds)
        graph._trainer._update = update
        posted = collectives(lambda: graph(*given))
        update_ms = f"{statistics.median(took):8.1f}" if took else "  (in it)"
        say(f"{name:28} {whole:8.1f} {update_ms} {posted:6}  {graph.steps[-1]}")

    def adamw(model):
        return torch.optim.AdamW(model.parameters(), lr=1e-3)

    model = net(options.layers, options.width)
    own = adamw(model)
    for value in model.parameters():
        value.grad = torch.randn_like(value)
    own.step()
    say(f"{2 * options.layers} parameters, ms of rank 0's threads: a step, its update, collectives")
    say(f"{'AdamW.step, one process':28} {'':8} {measured(own.step, options.rounds):8.1f}")
    model = net(options.layers, options.width)
    report("one process, eager", Step(model, adamw(model), backend="eager"), (rows, rows))
    model = net(options.layers, options.width)
    report("one process, captured", Step(model, adamw(model)), (rows, rows))
    for zero in (0, 1, 2) if "pipeline" in options.ways else ():
        model = net(options.layers, options.width)
        report(f"pipeline, zero={zero}", Step(model, adamw(model), mesh, zero), (rows, rows))
    line = parallel.world("cpu")
    given = (parallel.to_global(rows, line, parallel.sbp.split(0)),) * 2
    for backend in [way for way in ("captured", "eager") if way in options.ways]:
        for zero in (0, 1, 2, 3):
            model = parallel.to_global(net(options.layers, options.width), line, zero=zero)
            report(f"graph, {backend}, zero={zero}", Step(model, adamw(model), backend=backend), given)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
