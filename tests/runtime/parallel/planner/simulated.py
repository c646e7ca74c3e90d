"""A simulated mesh, and a deep model read for it."""

import torch
from torch import nn

from headrace.runtime.parallel.planner.operators import read_model
from headrace.runtime.parallel.planner.rates import Link, Rates

FAST, SLOW = Link(1e-5, 200e9), Link(5e-5, 1e9)  # within a machine, between machines


def rates(*links):
    return Rates(linear=50e12, conv=40e12, matmul=50e12, memory=1e12, operator=1e-5, links=links)


def read(build, *shape):
    with torch.device("meta"):
        return read_model(build(), shape)


def deep(layers=32, width=4096):
    return lambda: nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())))
