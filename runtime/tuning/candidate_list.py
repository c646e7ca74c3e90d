"""Which candidates there are for a device: every backend in every precision that the config leaves open."""

from __future__ import annotations

from dataclasses import replace

from ...errors import BackendError
from ...specs import FP32, PRECISIONS, Precision
from .. import backends
from ..artifact.plan import Choice, Plan
from ..base.calibration import Calibration
from ..base.config import GraphConfig
from .candidate import Candidate
from .source import Source


def candidates_of(
    source: Source, config: GraphConfig, device: str, ranges: Calibration | str, *, have_images: bool, keep: Plan | None
) -> list[Candidate]:
    """All that may be measured under `config`, or with `keep` what that plan chose. `ranges` are those of int8, or why there
    are none. Those that cannot run here are skipped and say why; raises BackendError where that are all of them."""
    choices = _choices(config, device, have_images) if keep is None else sorted(set(keep.choices.values()), key=str)
    candidates = []
    for choice in choices:
        target = choice.target(device, config.threads)
        candidate = Candidate(backends.get(choice.backend), target, replace(choice, files=()))
        why = candidate.backend.supports(target) or source.why_not(choice)
        if not why and choice.precision.is_int8:
            if isinstance(ranges, str):
                why = ranges
            else:
                candidate.calibration = ranges
        if not why and choice.precision.in_floats:
            why = f"{choice} was fitted to other weights"
        if why:
            candidate.status, candidate.why = "skipped", why
        candidates.append(candidate)
    if all(candidate.status for candidate in candidates):
        reasons = "; ".join(sorted({candidate.why for candidate in candidates})) or f"none computes in {config.precision}"
        raise BackendError(f"no backend here can run {config.precision} on {device}: {reasons}")
    return candidates


def _choices(config: GraphConfig, device: str, have_images: bool) -> list[Choice]:
    for_device = [name for name, backend in backends.discover().items() if device in backend.devices]
    names = [config.backend] if config.backend else for_device
    precisions = _precisions(config, have_images)
    found = [
        Choice(backend=name, precision=precision)
        for name in names
        for precision in precisions
        if precision in backends.get(name).precisions
    ]
    if config.backend and not found:
        able = ", ".join(map(str, backends.get(config.backend).precisions))
        raise BackendError(f"{config.backend} does not compute in {config.precision}; it computes in {able}")
    return found


def _precisions(config: GraphConfig, have_images: bool) -> tuple[Precision, ...]:
    if config.precision == "auto":
        return PRECISIONS if have_images else (FP32,)
    return tuple(item for item in PRECISIONS if item.dtype in config.precisions)
