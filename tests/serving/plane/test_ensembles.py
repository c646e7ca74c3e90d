"""Steps side by side, each once its inputs are there; one that fails ends the others."""

import asyncio
import time

import numpy as np
import pytest

from headrace.errors import InputError
from headrace.runtime.artifact.model_config import parse_config
from headrace.serving.models.foreign.ensemble import EnsembleModel, Step
from headrace.serving.plane.ensembles import run_ensemble
from headrace.serving.protocol.messages import InferenceResponse, Tensor


def ensemble(*wiring) -> EnsembleModel:
    steps = tuple(Step(model=name, version="", inputs=given, outputs=made) for name, given, made in wiring)
    config = parse_config('output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }')
    return EnsembleModel(name="e", version="1", config=config, steps=steps)


DIAMOND = ensemble(
    ("left", {"i": "x"}, {"o": "l"}), ("right", {"i": "x"}, {"o": "r"}), ("sum", {"a": "l", "b": "r"}, {"o": "y"})
)


def run(model, infer, seconds=60.0):
    given = Tensor("x", "FP32", np.ones(1, np.float32))
    return asyncio.run(run_ensemble(model, [given], infer, priority=3, deadline=time.monotonic() + seconds))


def answer(request, value):
    return InferenceResponse("m", "1", [Tensor(wanted.name, "FP32", value) for wanted in request.outputs])


def test_side_by_side():
    seen, both = [], asyncio.Event()

    async def infer(step, request):
        seen.append(step.model)
        if step.model != "sum":
            if {"left", "right"} <= set(seen):
                both.set()
            await asyncio.wait_for(both.wait(), 60)  # the one runs until the other does
        assert request.priority == 3
        assert 0 < request.timeout <= 60
        return answer(request, sum(tensor.data for tensor in request.inputs) * 2)

    assert run(DIAMOND, infer)["y"].tolist() == [8.0]
    assert seen[-1] == "sum"


def test_a_step_that_fails_is_named_and_the_others_end():
    ended = []

    async def infer(step, request):
        if step.model == "left":
            await asyncio.sleep(0.01)
            raise InputError("no such shape")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(step.model)

    begin = time.monotonic()
    with pytest.raises(InputError, match="step 'left' of the ensemble 'e': no such shape"):
        run(DIAMOND, infer)
    assert time.monotonic() - begin < 30
    assert ended == ["right"]


def test_no_time_is_left_after_the_deadline():
    async def infer(step, request):
        assert request.timeout == 0.0
        raise InputError("late")

    with pytest.raises(InputError, match="late"):
        run(DIAMOND, infer, seconds=-1.0)
