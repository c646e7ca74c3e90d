"""Conversions of global tensors beside DTensor's call by hand, forward and backward, in turn in one run.

    torchrun --nproc-per-node 2 tests/benchmarks/boxing.py

Times are those of the clock and, since both exchange the same, what the thread computed, which a busy machine blurs less.
Ratios are medians over the rounds, each to the call by hand in the same round; 1.05 is the most that is allowed. The call
by hand is measured twice in a round: what is "again" away from 1 is what two measurements of the same thing differ by.
"""

import itertools
import statistics
import time

import torch
import torch.distributed as dist
from torch.distributed.tensor import Partial, Replicate, Shard

from headrace import parallel

ROUNDS = {64: 400, 512: 240, 2048: 60}
WAYS = {
    "split(0) to broadcast": (Shard(0), Replicate()),
    "broadcast to split(0)": (Replicate(), Shard(0)),
    "split(0) to split(1)": (Shard(0), Shard(1)),
    "partial_sum to broadcast": (Partial(), Replicate()),
    "partial_sum to split(0)": (Partial(), Shard(0)),
}


def ratio(seconds: dict[str, list[float]], way: str) -> float:
    """The median, over the rounds but the first six, of a way's time to that of the call by hand."""
    return statistics.median(one / hand for one, hand in zip(seconds[way][6:], seconds["hand"][6:], strict=True))


def main() -> None:
    torch.set_num_threads(1)
    mesh = parallel.world("cpu")
    if parallel.rank() == 0:
        print(
            f"{'conversion':<26}{'tensor':>12}{'by hand, ms':>13}{'to_global, ms':>15}{'ratio':>7}{'again':>7}{'computed':>10}"
        )
    for name, (before, after) in WAYS.items():
        for size, rounds in ROUNDS.items():
            rows = size // mesh.size() if before == Shard(0) else size
            local = torch.randn(rows, size)
            value = parallel.to_global(local, mesh, before, shares=True).detach().requires_grad_()
            # As each leaves it for what comes next: with a gradient that lies as the result.
            gradient = torch.randn_like(value.redistribute(placements=[after]).detach())
            ways = {
                "again": lambda value=value, after=after: value.redistribute(placements=[after]),
                "hand": lambda value=value, after=after: value.redistribute(placements=[after]),
                "ours": lambda value=value, after=after: parallel.to_global(value, sbp=after),
            }
            times = {way: [] for way in ways}
            computed = {way: [] for way in ways}
            orders = list(itertools.permutations(ways))
            for at in range(rounds):
                for way in orders[at % len(orders)]:
                    value.grad = None
                    dist.barrier()
                    begin, begin_computed = time.perf_counter(), time.thread_time()
                    ways[way]().backward(gradient)
                    times[way].append(time.perf_counter() - begin)
                    computed[way].append(time.thread_time() - begin_computed)
            if parallel.rank() == 0:
                hand, ours = (statistics.median(times[way][6:]) for way in ("hand", "ours"))
                ratios = (ratio(times, "ours"), ratio(times, "again"), ratio(computed, "ours"))
                row = f"{name:<26}{f'{size} x {size}':>12}{1000 * hand:>13.3f}{1000 * ours:>15.3f}"
                print(f"{row}{ratios[0]:>7.3f}{ratios[1]:>7.3f}{ratios[2]:>10.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
