"""Inputs that few pictures are, and that a fault may wait for: black, saturated, of one color, of the hardest contrast, faint,
noisy. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..artifact.agreement import Array
from ..base.session import Session, default_threads
from .budget import Budget

_CHUNK = 16
ROWS = 64  # 19 of 20 faults that one input in twenty shows are among so many
_COLORS = 3
_FAINTEST, _STARKEST = 0.05, 8.0  # times a row's own contrast


@dataclass(frozen=True, eq=False)
class RareRows:
    """Rare inputs and the reference's outputs for them. `noise(inputs, outputs)` is the reference's own noise on some of them,
    per output in its units: where rows are all alike, a network may amplify rounding as it does nowhere else."""

    inputs: list[Array]
    outputs: list[Array]
    noise: Callable[[list[Array], list[Array]], tuple[float, ...]]


def run_rare(
    session: Session,
    usual: Sequence[Array],
    noise: Callable[[list[Array], list[Array]], tuple[float, ...]],
    *,
    seconds: float,
) -> RareRows:
    """The reference on rare rows: the extreme ones, and others while `seconds` last."""
    inputs, outputs = rare_rows(usual), []
    budget = Budget(seconds, threads=default_threads())
    done = 0
    while done < ROWS and (not done or budget.left):
        outputs.append(session.run([value[done : done + _CHUNK] for value in inputs]))
        done += _CHUNK
    return RareRows([value[:done] for value in inputs], [np.concatenate(parts) for parts in zip(*outputs, strict=True)], noise)


def rare_rows(usual: Sequence[Array], count: int = ROWS) -> list[Array]:
    """[count, ...] for each input, within the range of the usual rows [n, ...] of each channel; the same for the same rows.

    First those that are extreme in every value, then usual ones that are darker, lighter, fainter or starker.
    """
    random = np.random.default_rng(2)
    return [np.ascontiguousarray(_rare(value, random, count)[:count]) for value in usual]


def _rare(usual: Array, random: np.random.Generator, count: int) -> Array:
    if not usual.size:
        return np.resize(usual, (count, *usual.shape[1:]))
    axes = (0, *range(2, usual.ndim))
    low, high = usual.min(axis=axes, keepdims=True)[0], usual.max(axis=axes, keepdims=True)[0]
    if usual.dtype == np.uint8:
        low, high = np.zeros_like(low), np.full_like(high, 255)
    shape, kind = usual.shape[1:], usual.dtype
    channel = np.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1)) if shape else np.array(0)
    # Every second value along the last axis, then along the last two, then the second half.
    steps = [np.indices(shape)[-count:].sum(axis=0) % 2 for count in (1, 2)] if shape else []
    halves = [np.indices(shape)[-1] * 2 >= shape[-1]] if shape else []
    chosen = [0, 1, *(channel % _COLORS == color for color in range(_COLORS)), *steps, *halves]
    extreme = [np.broadcast_to(np.where(each, high, low), shape) for each in chosen]
    extreme.append(np.broadcast_to(np.clip(np.zeros_like(low), low, high), shape))
    if kind.kind != "f":
        drawn = random.permuted(np.resize(usual, (count, *shape)), axis=0)
        return np.concatenate([np.stack(extreme).astype(kind), drawn])
    rows = usual[random.integers(len(usual), size=count)].astype(np.float64)
    one_each = (count, *[1] * len(shape))
    contrast = np.exp(random.uniform(np.log(_FAINTEST), np.log(_STARKEST), one_each))
    light = random.uniform(0, 1, one_each)
    middle = rows.mean(axis=tuple(range(1, rows.ndim)), keepdims=True)
    wandering = (rows - middle) * contrast + light * low + (1 - light) * high
    return np.concatenate([np.stack(extreme), np.clip(wandering, low, high)]).astype(kind)
