"""Other forms of a captured step than eager's own: lower precision, channels last, the optimizer's one fused kernel.

They round otherwise than eager, so they are tried only where the configuration names what may be computed in, and each is held
to eager on copies of everything: its gradients point where eager's do, and over some updates its loss goes as eager's goes.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from ..base.memory import free_megabytes
from ..tuning.budget import Budget
from .step import CapturedStep
from .surroundings import random_state, set_random_state

_ROUNDS = 8
_ROOM = 2.0  # times the state's memory for each copy: a step needs some beside it
_SLOW = 1.2  # times the fastest after three rounds: it runs no more
# How far a loss may be from eager's, as a share of that or of the first; and the least cosine between all gradients and
# eager's. "fp32" holds for the same sums in another order, "bf16" for roundings 65,536 times as large.
_LOSS, _COSINE = {"fp32": 1e-3, "bf16": 2e-2}, {"fp32": 0.9999, "bf16": 0.98}
_LENGTH = {"fp32": 1e-3, "bf16": 0.05}  # by what share the gradients may be longer or shorter
_FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)  # that have such a kernel on CPUs


@dataclass(frozen=True, kw_only=True)
class StepForm:
    """`precision` is that of an autocast, None for eager's own."""

    precision: str | None = None
    channels_last: bool = False
    fused: bool = False

    def __str__(self) -> str:
        parts = (self.precision, "channels-last" if self.channels_last else None, "fused update" if self.fused else None)
        return ", ".join(filter(None, parts))

    def computes_as(self, other: StepForm) -> bool:
        """Whether the two differ at most in how they update."""
        return (self.precision, self.channels_last) == (other.precision, other.channels_last)

    def laid_out(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The inputs as this form takes them: what computes on images follows their layout."""
        if not self.channels_last:
            return list(inputs)
        return [value.contiguous(memory_format=torch.channels_last) if _is_image(value) else value for value in inputs]


def forms_for(
    precisions: Sequence[str], inputs: Sequence[torch.Tensor], optimizer: torch.optim.Optimizer, *, updates: bool
) -> list[StepForm]:
    """What may be tried on a CPU, the most promising first; nothing unless `precisions` were asked for by name."""
    if not precisions or inputs[0].device.type != "cpu":
        return []
    autocast = torch.is_autocast_enabled("cpu")  # the caller's, which decides then
    lower = [None, "bf16"] if set(precisions) == {"fp32", "bf16"} and not autocast else [None]
    layouts = (True, False) if any(map(_is_image, inputs)) else (False,)
    fused = updates and type(optimizer) in _FUSED and not any(group.get("differentiable") for group in optimizer.param_groups)
    found = [StepForm(precision=name, channels_last=last, fused=fused) for name in reversed(lower) for last in layouts]
    return [form for form in found if form != StepForm()]


def _is_image(value: torch.Tensor) -> bool:
    return value.ndim == 4 and value.is_floating_point()


@dataclass
class _Runner:
    """A step on its own copies of the state."""

    step: CapturedStep
    tensors: list[torch.Tensor]
    seconds: list[float] = field(default_factory=list)
    losses: list[list[float]] = field(default_factory=list)
    why: str | None = None  # its gradients are not the reference's

    def run(self, scale: torch.Tensor, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """A step; its gradients."""
        begin = time.perf_counter()
        results = self.step.run(self.tensors, scale, inputs)
        self.seconds.append(time.perf_counter() - begin)
        values = [value for value in results[: self.step.leaves] if value.is_floating_point()]
        scalars = [value for value in values if value.numel() == 1] or values
        self.losses.append([float(value.double().mean()) for value in scalars])
        return results[self.step.leaves :]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds[1:])  # the first fills caches for the others


def race(
    exact: CapturedStep,
    others: Mapping[StepForm, CapturedStep],
    tensors: Sequence[torch.Tensor],
    scale: torch.Tensor,
    inputs: Sequence[torch.Tensor],
    *,
    seconds: float,
) -> tuple[StepForm | None, dict[str, str]]:
    """The fastest form that does what `exact` does and is faster; None where none is. And what became of each, in words.

    All take turns, each on copies of the state's `tensors`, on the same inputs with the same random numbers, for some rounds or
    `seconds` of work, but three rounds at least.
    """
    device = inputs[0].device
    size = sum(value.nbytes for value in tensors) / (1 << 20)
    room = max(0, int(free_megabytes() / (_ROOM * size)) - 1) if size else len(others)
    verdicts = {str(form): f"no memory for a copy of the state ({size:.0f} MB)" for form in [*others][room:]}
    others = dict([*others.items()][:room])
    if not others:
        return None, verdicts
    runners: dict[StepForm, _Runner] = {
        form: _Runner(step, [value.clone() for value in tensors]) for form, step in {StepForm(): exact, **others}.items()
    }
    reference, active = runners[StepForm()], list(runners)
    before, budget = random_state(device), Budget(seconds, threads=torch.get_num_threads())
    random, expected = before, []
    try:
        for turn in range(_ROUNDS):
            for form in [*active[turn % len(active) :], *active[: turn % len(active)]]:
                set_random_state(device, random)
                gradients = runners[form].run(scale, inputs)
                if turn == 0 and form == StepForm():
                    expected = [value.clone() for value in gradients]
                elif turn == 0:
                    runners[form].why = _gradients_differ(expected, gradients, _rounding(exact, form))
                del gradients
            random = random_state(device)
            if turn < 2:
                continue
            best = min(runners[form].median for form in active)
            active = [form for form in active if form == StepForm() or runners[form].median <= _SLOW * best]
            if not budget.left:
                break
    finally:
        set_random_state(device, before)
    passed = []
    for form in others:
        why = runners[form].why or _losses_differ(reference, runners[form], _rounding(exact, form))
        if why is None and form in active and runners[form].median < reference.median:
            passed.append(form)
        verdicts[str(form)] = f"refused: {why}" if why else f"{reference.median / runners[form].median:.2f} times as fast"
    return min(passed, key=lambda form: runners[form].median, default=None), verdicts


def _rounding(exact: CapturedStep, form: StepForm) -> str:
    """What rounds most in either."""
    return "bf16" if exact.reduced or form.precision else "fp32"


def _gradients_differ(expected: Sequence[torch.Tensor], given: Sequence[torch.Tensor], precision: str) -> str | None:
    """Why all gradients together are not the reference's; None where they are."""
    if len(expected) != len(given) or not expected:
        return "its gradients cannot be compared"
    long, other = (math.sqrt(sum(float((item.double() ** 2).sum()) for item in side)) for side in (expected, given))
    if not long or not math.isfinite(long):
        return "the gradients are zero or not finite, so nothing could be shown"
    together = sum(float((a.double() * b.double()).sum()) for a, b in zip(expected, given, strict=True))
    cosine = together / (long * other) if other else 0.0
    if not cosine >= _COSINE[precision]:
        return f"its gradients point elsewhere (cosine {cosine:.4f})"
    if not abs(other / long - 1) <= _LENGTH[precision]:
        return f"its gradients are {other / long:.3f} times as long"
    return None


def _losses_differ(reference: _Runner, runner: _Runner, precision: str) -> str | None:
    """Why its losses do not go as the reference's; None where they do."""
    for turn, (wanted, found) in enumerate(zip(reference.losses, runner.losses, strict=False)):
        for first, loss, own in zip(reference.losses[0], wanted, found, strict=True):
            if not abs(own - loss) <= _LOSS[precision] * max(abs(first), abs(loss)):
                return f"after {turn} updates its loss is {own:.4g}, eager's {loss:.4g}"
    return None
