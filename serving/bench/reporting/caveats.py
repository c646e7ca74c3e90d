"""What a reader must know before trusting a benchmark's figures, in sentences without a full stop."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence

from ....runtime.artifact.plan import Plan
from ....runtime.base.session import default_threads
from ..load.answers import same_answer
from ..load.loadgen import LoadResult
from ..servers import TELLING_VARIABLES
from .result import Measurement

FEW_SAMPLES = 100  # below it, the 99th percentile is the maximum
BUSY_SHARE = 0.1  # of the cores that other programs may keep busy
TRIES = 4  # of a measurement that they disturb more
CLIENT_SHARE = 0.1


def is_disturbed(measurement: Measurement) -> bool:
    """Whether other programs took so much that its figures tell of them, too."""
    return measurement.other_cores > BUSY_SHARE * default_threads()


def count_errors(answers: Mapping[str, LoadResult], measurements: Sequence[Measurement]) -> dict[str, dict[str, int]]:
    """Requests of each service that were not answered by reason, rejected ones included, at rest and under load together."""
    counts: dict[str, Counter[str]] = {
        name: Counter(result.errors) + Counter(result.rejected) for name, result in answers.items()
    }
    for one in measurements:
        counts[one.service].update(one.load.errors)
        counts[one.service].update(one.load.rejected)
    return {name: dict(counter) for name, counter in counts.items()}


def answer_caveats(answers: Mapping[str, LoadResult], measurements: Sequence[Measurement], *, synthetic: bool) -> list[str]:
    """On the answers: failed requests, answers that differ under load, agreement that proves nothing."""
    caveats = []
    errors = count_errors(answers, measurements)
    for name, quiet in answers.items():
        loads = [one.load for one in measurements if one.service == name]
        if errors[name]:
            example = next((text for result in (quiet, *loads) for text in result.error_examples.values()), "")
            listed = ", ".join(f"{count} x {reason}" for reason, count in sorted(errors[name].items()))
            caveats.append(f"{name} failed requests: {listed}; the first said: {example}")
        differing = sum(
            answer is not None
            and any(other is not None and not same_answer(answer, other) for other in (load.answers[image] for load in loads))
            for image, answer in enumerate(quiet.answers)
        )
        if differing:
            caveats.append(f"{name} gave {differing} of {len(quiet.answers)} images another answer under load than at rest")
        if len(quiet.answers) > 1 and len(set(quiet.answers)) == 1:
            caveats.append(f"{name} answered all images alike, so agreement proves nothing; send images of different classes")
    if synthetic:
        caveats.append("the images are synthetic, so the answers mean nothing; give real ones with --images")
    return caveats


def speed_caveats(measurements: Sequence[Measurement], plan: Plan, *, baseline: bool) -> list[str]:
    """On the figures: too few requests, a plan from elsewhere, threads set, a busy machine, a costly load generator."""
    caveats = []
    cores = default_threads()
    few = min((one.load.samples for one in measurements), default=0)
    if few < FEW_SAMPLES:
        caveats.append(f"as few as {few} requests per measurement, where p99 is the slowest; measure longer for a steadier one")
    if plan.portable:
        caveats.append(f"the model's plan was not measured on this machine: {plan.reason}")
    threads = [
        f"{name}={os.environ[name]}" for name in TELLING_VARIABLES if name.endswith("_NUM_THREADS") and name in os.environ
    ]
    if threads and baseline:
        caveats.append(f"the baseline does not run with its default threads: {', '.join(threads)} is set")
    if repeated := sum(one.repeated > 0 for one in measurements):
        caveats.append(
            f"{repeated} of {len(measurements)} measurements were repeated, because other programs kept more than "
            f"{BUSY_SHARE:.0%} of the cores busy; of up to {TRIES} the least disturbed counts"
        )
    if any(is_disturbed(one) for one in measurements):
        others = max(one.other_cores for one in measurements)
        caveats.append(
            f"other programs, or other machines on the same hardware, kept up to {others:.1f} of {cores} cores busy during a "
            "measurement, which hurts services whose threads wait for each other most; repeat on a quiet machine"
        )
    client = max((one.load.client_cpu_us_per_request * one.load.requests_per_second / 1e6 for one in measurements), default=0.0)
    if client > CLIENT_SHARE * cores:
        caveats.append(f"the load generator itself took up to {client:.2f} of {cores} cores")
    return caveats
