"""Where to cut a chain of nodes into stages: the slowest stage as quick as may be, then few bytes over the cuts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....errors import ArtifactError

# Seconds are measured, and differ by more from one minute to the next: within 5 % of the best, fewer bytes win, and of equally
# few the quickest. The first allows for rounding.
_AS_QUICK = (1.0 + 1e-9, 1.01, 1.02, 1.03, 1.04, 1.05)


def partition(seconds: Sequence[float], places: Sequence[int], sizes: Sequence[float], stages: int) -> list[int]:
    """The places of the `stages` - 1 cuts, ascending: of `places`, which say before which node a cut may stand, ascending, and
    whose cuts let so many bytes over. `seconds` are the nodes'. By dynamic programming over (stages, places), first for the
    slowest stage alone, then for the bytes of all cuts among the partitions whose slowest stage is within 5 % of that.

    Raises ArtifactError where there are too few places.
    """
    if not 1 <= stages <= len(places) + 1:
        raise ArtifactError(f"the graph can be cut at {len(places)} places, into up to {len(places) + 1} stages, not {stages}")
    bounds = np.array([0, *places, len(seconds)])
    until = np.concatenate([[0.0], np.cumsum(seconds)])[bounds]
    lasting = until[None, :] - until[:, None]  # of a stage from one bound to another
    # what comes after itself or at once is no stage
    lasting[np.tril_indices(len(bounds))] = np.inf
    slowest, _ = _best(lasting, np.zeros(len(bounds)), stages, np.maximum)
    crossing = np.array([0.0, *sizes, 0.0])
    found = [_best(np.where(lasting <= times * slowest, 0.0, np.inf), crossing, stages, np.add) for times in _AS_QUICK]
    fewest = found[-1][0]
    chosen = next(cuts for size, cuts in found if size <= fewest)
    return [int(bounds[index]) for index in chosen]


def _best(steps: np.ndarray, tolls: np.ndarray, stages: int, joined: np.ufunc) -> tuple[float, list[int]]:
    """The least that `stages` steps from the first bound to the last come to, and the bounds between them."""
    reached = np.full(len(steps), np.inf)
    reached[0] = 0.0
    before: list[np.ndarray] = []
    for _ in range(stages):
        ways = joined(reached[:, None], steps) + tolls[None, :]
        before.append(ways.argmin(axis=0))
        reached = ways.min(axis=0)
    chosen, at = [], len(steps) - 1
    for came in reversed(before):
        at = int(came[at])
        chosen.append(at)
    return float(reached[-1]), chosen[::-1][1:]
