"""The steps of an ensemble, each run as soon as its inputs are there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import numpy as np

from ...errors import InputError
from ..models.foreign.ensemble import EnsembleModel, Step
from ..protocol.messages import InferenceRequest, InferenceResponse, RequestedOutput, Tensor

Infer = Callable[[Step, InferenceRequest], Awaitable[InferenceResponse]]


async def run_ensemble(
    model: EnsembleModel, tensors: Sequence[Tensor], infer: Infer, *, priority: int, deadline: float
) -> dict[str, np.ndarray]:
    """The ensemble's outputs by name. All steps are to be done by `deadline` on the monotonic clock. Raises what a step raises,
    and lets the others go on no further."""
    made = {name: _future() for name in (*(tensor.name for tensor in tensors), *_outputs(model))}
    for tensor in tensors:
        made[tensor.name].set_result(tensor)

    async def run(step: Step) -> None:
        inputs = [replace(await made[shared], name=own) for own, shared in step.inputs.items()]
        left = max(0.0, deadline - time.monotonic())
        wanted = [RequestedOutput(name) for name in step.outputs]
        try:
            answer = await infer(step, InferenceRequest(inputs, wanted, priority=priority, timeout=left))
        except InputError as error:
            raise InputError(f"step '{step.model}' of the ensemble '{model.name}': {error}") from None
        for tensor in answer.outputs:
            made[step.outputs[tensor.name]].set_result(tensor)

    running = [asyncio.ensure_future(run(step)) for step in model.steps]
    try:
        await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
    return {tensor.name: made[tensor.name].result().data for tensor in model.config.outputs}


def _outputs(model: EnsembleModel) -> list[str]:
    return [name for step in model.steps for name in step.outputs.values()]


def _future() -> asyncio.Future[Tensor]:
    return asyncio.get_running_loop().create_future()
