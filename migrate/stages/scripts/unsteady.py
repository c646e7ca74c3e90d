"""Tell what rounding decides in a script itself, and so says nothing of the migrated one: the original is run once more,
where its model's outputs change by as little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...proving.loss_trace import TracedLoop, relative, tolerance_of
from ...proving.verify import SAME_DATA, Executed, Recorded, ScriptRun, agree, compare, ends_otherwise
from ...reading.facts import Script
from ..migration import Migration
from .originals import OriginalRun, run_once

_SURELY = 8.0
"""By how many times what was seen the outputs of the original are changed: a sign that turned there is to turn here as well."""
_ROUNDING = 2e-6
"""By how much the outputs of a training step differ where a graph computes them."""
_ALIKE = 2.0
"""So many times as far as the changed original, on average and at most, the migrated script may be from the original."""


def unless_unsteady(migration: Migration, script: Script, original: OriginalRun, run: ScriptRun, verdict: Executed) -> Executed:
    """The verdict on a script that printed something else though its outputs agree, unless the original does so too where its
    outputs change by as little: a fit to random scores that runs away, say."""
    differs = verdict.max_abs or 0.0
    by = {site: max(differs, recorded.reduced) for site, recorded in original.run.sites.items()}
    if not verdict.in_print or not any(by.values()):
        return verdict
    migration.fresh_tree()
    nudged = run_once(script, original.argv, migration, (), migrated=False, nudge=by, **original.again)
    found = compare(original.run, run, nudged)
    if found.status != "passed":
        return verdict
    why = f"where the outputs of the original change by {max(by.values()):.1e}, it prints something else, too"
    if any(recorded.precision is not None for recorded in original.run.sites.values()):
        why += ", and its own lower precision changes them by as much"
    migration.remark("PS407", f"{verdict.why}, which was not compared: {why}", "note", script.path)
    return found


def fed_by_rounding(migration: Migration, script: Script, original: OriginalRun, run: ScriptRun) -> str | None:
    """Why the migrated script's model was fed something else from some call on, which is no fault of that script: the data come
    of the model's own answers, as those of an attack do, and rounding decides them. None where that is not shown.

    It is shown where all calls before agree, though not to the last bit, and the original's data at that very call change as
    much where its answers before, at the places where they differed, change by about as little.
    """
    parted = _parted(original.run, run) if ends_otherwise(original.run, run) is None else None
    if parted is None:
        return None
    by = _differences_before(original.run, run, parted.call)
    if by is None or not any(by.values()):
        return None
    migration.fresh_tree()
    nudge = {site: _SURELY * difference for site, difference in by.items()}
    nudged = run_once(script, original.argv, migration, (), migrated=False, nudge=nudge, **original.again)
    site = parted.site
    here, there = (_at_call(found.sites.get(site), parted.call) for found in (original.run, run))
    other = _at_call(nudged.sites.get(site), parted.call)
    if here is None or there is None or other is None or not here.shape == there.shape == other.shape:
        return None
    if not _as_far(here, there, other):
        return None
    largest = max(by.values())
    return (
        f"not compared from {site} on, where rounding decides what the script feeds its model: that is made of the model's "
        f"answers, and changes as much where those of the original change by {_SURELY * largest:.1e}; what was computed before "
        f"agrees within {largest:.1e}"
    )


def trained_by_rounding(
    migration: Migration, script: Script, original: OriginalRun, run: ScriptRun, loops: Sequence[TracedLoop]
) -> str | None:
    """Why the losses of the migrated script are others from some step on, which is no fault of that script: the original's are
    as far off there where its outputs change by rounding, as in training on images of an attack. None if that is not shown."""
    before, tolerance = original.run.losses, tolerance_of(loops)
    if before.keys() != run.losses.keys():
        return None
    apart = {site: relative(losses, run.losses[site]) for site, losses in before.items()}
    wrong = {site: int(np.argmax(far > tolerance)) for site, far in apart.items() if (far > tolerance).any()}
    if not wrong or not all(wrong.values()) or any(len(run.losses[site]) != len(before[site]) for site in wrong):
        return None  # the first step is that of the same weights
    allowed = dict.fromkeys(wrong, 0.0)
    for nudge in (_ROUNDING, -_ROUNDING):  # where rounding decides, one change may lead about where the original went
        migration.fresh_tree()
        nudged = run_once(script, original.argv, migration, loops, migrated=False, nudge=nudge, **original.again)
        for site, step in wrong.items():
            other = relative(before[site], nudged.losses.get(site, np.empty(0)))
            if len(other) <= step:
                return None
            allowed[site] = max(allowed[site], float(other[step]))
        if all(apart[site][step] <= _ALIKE * allowed[site] for site, step in wrong.items()):
            break
    else:
        return None
    site, step = min(wrong.items(), key=lambda item: item[1])
    return (
        f"not compared from step {step + 1} of {site} on, where rounding decides what the script trains on: the losses are as "
        f"far off in the original where the outputs of its model change by {_ROUNDING:.1e}; the losses before agree"
    )


def _as_far(original: np.ndarray, migrated: np.ndarray, changed: np.ndarray) -> bool:
    """Whether the migrated script's data are no further from the original's than the changed original's are, on average, at
    most, and by how many numbers stay the same: what moves them all by a little is no rounding."""
    apart, allowed = (np.abs(data.astype(np.float64) - original) for data in (migrated, changed))
    same, left = ((far <= SAME_DATA).mean() for far in (apart, allowed))
    nearer = bool(apart.mean() <= _ALIKE * allowed.mean() and apart.max() <= _ALIKE * allowed.max())
    return nearer and bool(_ALIKE * same >= left)


@dataclass(frozen=True)
class _Parting:
    """The first call at which two runs feed their models something else."""

    call: int
    site: str


def _parted(original: ScriptRun, other: ScriptRun) -> _Parting | None:
    if original.sites.keys() != other.sites.keys():
        return None
    found = []
    for site, before in original.sites.items():
        after = other.sites[site]
        if before.calls is None or after.calls is None or before.inputs.shape[1:] != after.inputs.shape[1:]:
            return None
        rows = min(len(before.inputs), len(after.inputs))
        axes = tuple(range(1, before.inputs.ndim))
        same = np.isclose(before.inputs[:rows], after.inputs[:rows], atol=SAME_DATA).all(axis=axes)
        same &= before.calls[:rows] == after.calls[:rows]
        if not same.all():
            row = int(np.argmin(same))
            found.append(_Parting(int(min(before.calls[row], after.calls[row])), site))
        elif len(before.inputs) != len(after.inputs):
            longer = before if len(before.inputs) > rows else after
            assert longer.calls is not None
            found.append(_Parting(int(longer.calls[rows]), site))
    return min(found, key=lambda parting: parting.call, default=None)


def _differences_before(original: ScriptRun, other: ScriptRun, call: int) -> dict[str, float] | None:
    """By how much the outputs of each site differ in the calls before that one; None where one is out of bounds."""
    found = {}
    for site, before in original.sites.items():
        after = other.sites[site]
        assert before.calls is not None
        assert after.calls is not None
        one, two = before.outputs[before.calls < call], after.outputs[after.calls < call]
        found[site], _, close = agree(one, two) if len(one) else (0.0, 1.0, not len(two))
        if not close:
            return None
    return found


def _at_call(recorded: Recorded | None, call: int) -> np.ndarray | None:
    """What a site was fed at one call of the run; None where that was not recorded, or another site's."""
    if recorded is None or recorded.calls is None:
        return None
    rows = recorded.inputs[recorded.calls == call]
    return rows if len(rows) else None
