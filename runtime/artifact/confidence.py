"""What a few images say of all images: exact binomial bounds. Torch-free, and without scipy."""

from __future__ import annotations

import functools
import math

import numpy as np

from .agreement import Array

_STEPS = 60  # of a bisection: to the last digit
_MOST = 1 << 20  # images; who would need more has no use for the number


def chance(least: int, count: int, share: float) -> float:
    """The probability that at least so many of `count` images are of a kind that is this share of all."""
    return 1.0 if least <= 0 else 1 - _at_most(least - 1, count, share)


def upper_bound(found: int, count: int, alpha: float) -> float:
    """The largest share of all images that `found` of `count` leave possible, but for a probability of `alpha` (Clopper and
    Pearson 1934, doi:10.1093/biomet/26.4.404)."""
    if not 0 <= found <= count:
        raise ValueError(f"{found} of {count} images")
    if found == count:
        return 1.0
    low, high = found / count, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(found, count, middle) > alpha else (low, middle)
    return high


def lower_bound(found: int, count: int, alpha: float) -> float:
    """The smallest such share."""
    return 1 - upper_bound(count - found, count, alpha)


def loss_bound(lost: int, won: int, count: int, alpha: float) -> float:
    """The largest share of all images that is lost on balance where `lost` of `count` were and `won` were gained, but for a
    probability of `alpha`. Of that, four fifths are for what is lost and one fifth for what is won, where anything may be."""
    return upper_bound(lost, count, 0.8 * alpha) - lower_bound(won, count, 0.2 * alpha)


def enough_images(share: float, limit: float, alpha: float) -> int | None:
    """About how many images show that less than `limit` of all are of a kind of which `share` were seen; None where no number
    would, since the share itself is not less, or where it is more than a million."""
    low, high = 1, 1
    while upper_bound(round(share * high), high, alpha) > limit:
        low, high = high, 2 * high
        if share >= limit or high > _MOST:
            return None
    while high - low > max(1, low // 500):
        middle = (low + high) // 2
        low, high = (low, middle) if upper_bound(round(share * middle), middle, alpha) <= limit else (middle, high)
    return high


def _at_most(found: int, count: int, share: float) -> float:
    if share <= 0:
        return 1.0
    if share >= 1:
        return float(found >= count)
    if found > count // 2:
        return 1 - (_at_most(count - found - 1, count, 1 - share) if found < count else 0.0)
    numbers, ways = _ways(found, count)
    return min(1.0, float(np.exp(ways + numbers * math.log(share) + (count - numbers) * math.log1p(-share)).sum()))


@functools.lru_cache(64)
def _ways(found: int, count: int) -> tuple[Array, Array]:
    """0 to `found`, and the logarithm of how many ways there are to choose so many of `count`."""
    numbers: Array = np.arange(found + 1)
    steps = np.log(np.maximum(count - numbers[1:] + 1, 1)) - np.log(numbers[1:])
    return numbers, np.concatenate([[0.0], np.cumsum(steps)])
