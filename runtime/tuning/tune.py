"""Choose for every batch bucket among the candidates that a model has on this machine: a Plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...errors import InputError, ParityError
from ..artifact.agreement import fits_labels
from ..artifact.parity import unusable
from ..artifact.plan import Plan
from ..base.config import GraphConfig
from ..base.session import Target
from .autotuner import Autotuner, Progress, check_any_left
from .budget import Budget
from .candidate import PARITY_BATCHES, PARITY_ROWS, Candidate
from .candidate_list import candidates_of
from .judging_data import NO_IMAGES, JudgingData
from .reference import Reference
from .source import Source


def tune(
    source: Source,
    config: GraphConfig,
    *,
    directory: Path,
    device: str,
    judging: JudgingData = NO_IMAGES,
    progress: Progress | None = None,
    keep: Plan | None = None,
) -> Plan:
    """Choose per bucket that `config` plans among the candidates, whose files are written into `directory`.

    Lossy precisions are tried under "auto" only when there are images to judge by. Ranges for int8 come from calibration
    images, else from a quarter of the others, which then judge nothing. With `keep`, nothing is measured: the plan's own
    choices are prepared for changed weights and held to parity again. Raises BackendError when a pinned backend or precision
    cannot run here, ParityError when every candidate was rejected.
    """
    report = progress or (lambda fraction, text: None)
    ranges, calibrating, judging = replace(judging, whole=config.budget is not None).split(config)
    candidates = candidates_of(source, config, device, ranges, have_images=bool(judging.images), keep=keep)
    report(0.0, "running the model as the reference")
    rows = max(*PARITY_BATCHES, min(max(config.planned(device)), PARITY_ROWS))
    target = Target(device=device, threads=config.threads)
    reference = source.reference(target, rows=rows, judging=judging, seconds=config.seconds(device) / 4)
    reference = replace(reference, calibrating=calibrating)
    budget = Budget(config.seconds(device), threads=target.thread_count, device=device)
    _check_labels(reference)
    if why := unusable(reference.outputs, reference.task, reference.noise):
        for candidate in candidates:
            if not candidate.is_reference and not candidate.status:
                candidate.status, candidate.why = "refused", why  # nothing could be proved about them, so nothing is built
    try:
        if keep is not None:
            for candidate in candidates:
                if not candidate.status:
                    candidate.prepare(source, directory, reference)
            check_any_left(candidates, config)
            return _kept(keep, candidates, reference, config)
        return Autotuner(source, config, directory, device, reference, candidates, budget, report).run()
    finally:
        for candidate in candidates:
            candidate.close()


def _check_labels(reference: Reference) -> None:
    head, images = reference.task.heads[reference.task.primary], reference.images
    if images is None or images.labels is None or images.scores is None:
        return
    scores = images.scores[reference.task.judged.index(reference.task.primary)]
    if not fits_labels(head, scores, images.labels):
        raise InputError(
            f"labels of shape {images.labels.shape} and dtype {images.labels.dtype} cannot be those of {head.output} ({head}): "
            "give one class number per image, or for several labels a row of zeros and ones"
        )


def _kept(keep: Plan, candidates: list[Candidate], reference: Reference, config: GraphConfig) -> Plan:
    """The plan with fresh files and parity; a choice that no longer passes is an error, for the caller to tune anew."""
    if [candidate for candidate in candidates if not candidate.passes(reference, config)]:
        raise ParityError("; ".join(f"{candidate.choice}: {candidate.why}" for candidate in candidates if candidate.status))
    fresh = {replace(candidate.choice, files=()): candidate for candidate in candidates}
    chosen = {bucket: fresh[replace(choice, files=())] for bucket, choice in keep.choices.items()}
    if wrong := [(item, bucket) for bucket, item in chosen.items() if not item.right_at(bucket, reference, config)]:
        raise ParityError("; ".join(f"{item.choice}: {item.lost[bucket][1]}" for item, bucket in wrong))
    choices = {bucket: item.choice for bucket, item in chosen.items()}
    parity = {str(candidate.choice): candidate.parity for candidate in candidates}
    records = [replace(item, parity=parity[item.candidate]) if item.candidate in parity else item for item in keep.measurements]
    return replace(keep, choices=choices, measurements=tuple(records))
