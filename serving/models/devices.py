"""Which GPUs the instances of a model compute on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...errors import BackendError
from ...runtime.artifact.plan import Plan
from ...runtime.base.session import visible_gpus
from ..batching.ticket import Instance

Open = Callable[..., Instance]


def each_device(opener: Open, plan: Plan, wanted: Sequence[int] | None) -> list[Callable[[], Instance]]:
    """What opens an instance, once for each device: `opener` with the keyword `ordinal`, which is None for a CPU. A plan for
    GPUs runs on the `wanted` of those that the process sees; None is all. Raises BackendError for one that it does not see."""
    return [partial(opener, ordinal=ordinal) for ordinal in ordinals(plan.device, wanted, visible_gpus)]


def ordinals(device: str, wanted: Sequence[int] | None, visible: Callable[[], int]) -> Sequence[int | None]:
    """The numbers of the GPUs for a plan's device, where `visible` says how many there are; None alone is no particular one."""
    if device == "cpu":
        return (None,)
    count = visible()
    if wanted is None:
        return range(count) if count else (None,)  # the backend will say what is missing
    if beyond := [ordinal for ordinal in wanted if ordinal >= count]:
        raise BackendError(
            f"--devices names GPU {beyond[0]}, and this process sees {count} GPUs, counted from 0; name others, or all"
        )
    return wanted
