"""What a stream of images says so far: bounds on a share that hold at every moment at once, however often one looks."""

from __future__ import annotations

import math

_STEPS = 50  # of a bisection


def evidence(agreed: int, count: int, share: float) -> float:
    """The logarithm of how many times likelier `agreed` of `count` are by a share that is not known than by `share`.

    The share that is not known is spread evenly from 0 to 1 (a mixture: Robbins 1970, doi:10.1214/aoms/1177696786). If `share`
    is the true one, this is ever above log(1 / alpha) with a probability of at most alpha, whatever the number of looks
    (Ville's inequality).
    """
    if not 0 <= agreed <= count:
        raise ValueError(f"{agreed} of {count}")
    other = count - agreed
    if (share <= 0 and agreed) or (share >= 1 and other):
        return math.inf
    mixed = math.lgamma(agreed + 1) + math.lgamma(other + 1) - math.lgamma(count + 2)
    own = (agreed * math.log(share) if agreed else 0.0) + (other * math.log1p(-share) if other else 0.0)
    return mixed - own


def falls_below(agreed: int, count: int, share: float, alpha: float) -> bool:
    """Whether less than `share` of all agree, but for a probability of `alpha`."""
    return agreed < share * count and evidence(agreed, count, share) > -math.log(alpha)


def interval(agreed: int, count: int, alpha: float) -> tuple[float, float]:
    """The shares of all that are possible, from lowest to highest, but for a probability of `alpha`; 0 to 1 of none."""
    if not count:
        return 0.0, 1.0
    middle, limit = agreed / count, -math.log(alpha)

    def edge(outside: float) -> float:
        inside = middle
        for _ in range(_STEPS):
            at = (inside + outside) / 2
            inside, outside = (at, outside) if evidence(agreed, count, at) <= limit else (inside, at)
        return outside

    return (edge(0.0) if agreed else 0.0), (edge(1.0) if agreed < count else 1.0)
