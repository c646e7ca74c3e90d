"""Numbers behind the verdicts: how far the outputs of both runs lie apart, and losses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .verify import Recorded

DECADES = (-12, 2)
"""Differences are counted per power of ten, from less than 1e-11 to 10 and more."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The outputs of one model call in the original and in the migrated run of one script.

    `differences` counts all |original - migrated|: equal ones first, then per decade of DECADES.
    """

    script: str
    site: str
    rows: int
    max_abs: float
    differences: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The losses of the first training steps of one loop of one script, step by step, in both runs."""

    script: str
    site: str
    original: tuple[float, ...]
    migrated: tuple[float, ...]


def losses(script: str, original: Mapping[str, np.ndarray], migrated: Mapping[str, np.ndarray]) -> list[Losses]:
    """One trace per loop of which both runs noted losses."""
    return [
        Losses(script=script, site=site, original=tuple(before.tolist()), migrated=tuple(migrated[site].tolist()))
        for site, before in original.items()
        if before.size and site in migrated and migrated[site].size
    ]


def agreements(script: str, original: Mapping[str, Recorded], migrated: Mapping[str, Recorded]) -> list[Agreement]:
    """One agreement per call that both runs made with outputs of the same shape."""
    found = []
    for site, before in original.items():
        after = migrated.get(site)
        if after is None or after.outputs.shape != before.outputs.shape or not before.outputs.size:
            continue
        one: np.ndarray = before.outputs.astype(np.float64).ravel()
        other: np.ndarray = after.outputs.astype(np.float64).ravel()
        finite = np.isfinite(one) & np.isfinite(other)
        apart = np.abs(one[finite] - other[finite])
        if not apart.size:
            continue
        found.append(
            Agreement(
                script=script,
                site=site,
                rows=len(before.outputs),
                max_abs=float(apart.max()),
                differences=(int((apart == 0).sum()), *_per_decade(apart[apart > 0])),
            )
        )
    return found


def _per_decade(apart: np.ndarray) -> list[int]:
    low, high = DECADES
    decades = np.clip(np.floor(np.log10(apart)), low, high - 1).astype(int) - low
    return [int(count) for count in np.bincount(decades, minlength=high - low)]
