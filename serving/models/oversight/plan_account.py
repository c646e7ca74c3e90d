"""What a model computes with and why, and what was proved of it, for people: JSON without any path of this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ....runtime.artifact.artifact import Artifact
from ....runtime.artifact.plan import Choice, Measurement, Plan

_PATH = re.compile(r"(?<![\w.:/-])(?:~|[A-Za-z]:)?[/\\](?:[^\s/\\'\":;,()]+[/\\])*([^\s/\\'\":;,()]+)")
_LONGEST_WHY = 300
_PROOFS = ("status", "top1_agreement", "decision_agreement", "cosine", "max_abs", "accuracy_drop", "loss_bound", "confidence",
           "budget", "rows", "why")  # fmt: skip


def without_paths(text: str) -> str:
    """A text in which of every absolute path only the last name is left: where files lie is nobody's business who may look at a
    model."""
    return _PATH.sub(lambda found: f"…/{found[1]}", text)


def account_of(artifact: Artifact, plan: Plan) -> dict[str, Any]:
    """Of one version as it is opened: its device and precisions, what each batch size runs on, every measurement behind that,
    and how far the result agrees with the original model."""
    choices = sorted(set(plan.choices.values()), key=str)
    return {
        "device": plan.device,
        "threads": plan.threads,
        "precisions": sorted({choice.precision.name for choice in choices}),
        "choices": {str(bucket): str(choice) for bucket, choice in plan.choices.items()},
        "serves": str(plan.first()),
        "measured": not plan.portable,
        "reason": _short(plan.reason),
        "cut": _short(plan.cut),
        "gains": _gains(plan),
        "measurements": [_measurement(item) for item in plan.measurements],
        "parity": _parity(artifact, plan),
        "packaged": artifact.created,
    }


def _measurement(item: Measurement) -> dict[str, Any]:
    agreement = None
    if item.parity is not None:
        shares = (item.parity.top1_agreement, item.parity.decision_agreement, item.parity.cosine)
        agreement = next((share for share in shares if share is not None), None)
    return {
        "candidate": item.candidate, "batch": item.bucket, "status": item.status, "milliseconds": item.median_ms,
        "spread": item.spread_ms, "memory_mb": item.memory_mb, "agreement": agreement, "why": _short(item.why),
    }  # fmt: skip


def _parity(artifact: Artifact, plan: Plan) -> dict[str, Any]:
    """The measured plan's own proof, else what the package was proved by."""
    found = plan.worst_parity()
    record: Mapping[str, Any] = artifact.parity if found.status == "not-run" else found.to_json()
    known = {name: record.get(name) for name in _PROOFS if record.get(name) is not None}
    return {name: _short(value) if isinstance(value, str) else value for name, value in known.items()}


def _gains(plan: Plan) -> dict[str, dict[str, float]]:
    """How many times as quick each batch size is as each choice in fp32 was, where both were measured."""
    others = {item.choice for item in plan.measurements if not item.choice.precision.lossy and item.choice.batch is None}
    found: dict[str, dict[str, float]] = {}
    for bucket in plan.buckets:
        gains = {str(other): plan.gain(bucket, other) for other in others}
        found[str(bucket)] = {name: round(gain, 3) for name, gain in sorted(gains.items()) if gain is not None}
    return found


def gain(plan: Plan, before: Choice) -> str:
    """What a plan chose, and how many times as fast that is as what served before, at its smallest and largest batch."""
    chosen = ", ".join(sorted({str(choice) for choice in plan.choices.values()}))
    times = [(bucket, plan.gain(bucket, before)) for bucket in sorted({min(plan.buckets), max(plan.buckets)})]
    told = [f"{factor:.2f} times as fast as {before} at batch {bucket}" for bucket, factor in times if factor is not None]
    return f"{chosen}{': ' if told else ''}{', '.join(told)}"


def changed_plan(plan: Plan, before: Plan) -> str | None:
    """What takes over from another plan, and by how much it is quicker; None where they choose the same."""
    if not _differ(plan, before):
        return None
    what = "a measured plan takes over" if before.portable and not plan.portable else "another plan takes over"
    return f"{what}: {gain(plan, before.first())}"


def _differ(plan: Plan, before: Plan) -> bool:
    return [str(choice) for choice in _chosen(plan)] != [str(choice) for choice in _chosen(before)] or (
        plan.portable != before.portable
    )


def _chosen(plan: Plan) -> Sequence[Choice]:
    return sorted(set(plan.choices.values()), key=str)


def _short(text: str | None) -> str:
    shown = without_paths(text or "")
    return shown if len(shown) <= _LONGEST_WHY else f"{shown[: _LONGEST_WHY - 1]}…"
