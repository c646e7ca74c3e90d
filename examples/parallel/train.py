"""Train a small classifier of scikit-learn's digits on as many processes as there are; the losses are the same on 1, 2 and 4.

python examples/parallel/train.py
torchrun --nproc-per-node 4 examples/parallel/train.py
torchrun --nproc-per-node 4 examples/parallel/train.py --tensor 2 --zero 3 --checkpoints /tmp/digits
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

import headrace
from headrace import parallel

sbp = parallel.sbp


class TrainStep(headrace.Graph):
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = functional.cross_entropy(self.model(images), labels)
        loss.backward()
        return loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--tensor", type=int, default=1, help="ranks that share the hidden layer")
    parser.add_argument("--zero", type=int, default=0, help="the stage of ZeRO")
    parser.add_argument("--checkpoints", help="a folder; an interrupted training goes on from there")
    options = parser.parse_args()

    placement = parallel.world("cpu", (-1, options.tensor))  # axes "data" and "model"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
    column, row = (sbp.broadcast, sbp.split(0)), (sbp.broadcast, sbp.split(1))
    parallel.to_global(model, placement, {"0.*": column, "2.weight": row}, zero=options.zero)
    rows = (sbp.split(0), sbp.broadcast)
    parallel.boxed(model[2], outputs=rows)  # its products are partial sums over "model"
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)  # after the parameters are global
    step = TrainStep(model, optimizer)

    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    begun = parallel.resume(options.checkpoints, model, optimizer) if options.checkpoints else 0
    with parallel.watched():
        for at in range(begun, options.steps):
            chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(at))[:96]
            loss = step(
                parallel.to_global(images[chosen], placement, rows), parallel.to_global(labels[chosen], placement, rows)
            )
            if (at + 1) % 20 == 0:
                value = parallel.whole(loss).item()
                if parallel.rank() == 0:
                    print(f"step {at + 1}: loss {value:.5f}", flush=True)
                if options.checkpoints:
                    parallel.save(options.checkpoints, at + 1, model, optimizer)
    if parallel.rank() == 0:
        print(step)


if __name__ == "__main__":
    main()
