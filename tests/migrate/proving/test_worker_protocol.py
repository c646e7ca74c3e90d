"""The messages between the migrator and its worker: what is encoded is decoded, and nothing else."""

import json
from typing import get_args

import pytest

from headrace.errors import Obstacle
from headrace.migrate.proving.worker_protocol import (
    ComputeOutputs,
    Duel,
    Evaluate,
    Evaluated,
    Failed,
    Forward,
    Inspect,
    Inspected,
    Message,
    ModelPackaged,
    OutputsComputed,
    Package,
    PackageOnnx,
    ParityResult,
    Rehearse,
    Rehearsed,
    SeenModel,
    decode,
    encode,
)
from headrace.migrate.reading.recipe import LiveModel, Recipe
from headrace.specs import CenterCrop, Preprocessing, Resize

RECIPE = Recipe(root="/r", script="evaluate.py", source="model = 1\n", expression="model", argv=("--width", "7"))
LIVE = LiveModel(
    class_name="Net", ordinal=1, evaluating=True, row=(3, 4, 5), slot=(1, "x", 0), output=("logits",), weights=(("w", "ab"),)
)
MESSAGES = [
    Inspect(recipe=RECIPE),
    Inspect(recipe=RECIPE, input=(3, 4, 5)),
    Evaluate(recipe=RECIPE),
    Evaluated(value={"input": [3, 4, 5], "labels": None, "notes": ["ä"]}),
    PackageOnnx(recipe=RECIPE, path="/g.onnx", name="g", out="/out", budget=0.5, planned=False),
    Rehearse(recipe=Recipe(root="/r", script="evaluate.py", live=LIVE)),
    ComputeOutputs(recipe=RECIPE, input=(1, 2, 3), out="/out"),
    Package(
        recipe=RECIPE, name="net", out="/out", input=(3, 4, 5), labels=(("ä", "b"), None),
        task="multi-label:0.3", buckets=(1, 4), max_tuning_seconds=2.0,
        preprocessing=Preprocessing(geometry=(Resize(size=30), CenterCrop(size=(24, 20)))), provenance={"chain": ["a"]},
    ),
    Inspected(
        class_name="Net", factory="net.py:3", parameters=7, input=None, candidates=((3, 4, 5), (3, 8, 8)), classes=2,
        output="logits", notes=("a note",), weights_from=("net.pth",),
    ),
    Rehearsed(
        models=(
            SeenModel(
                live=LIVE, factory=None, parameters=7, site="evaluate.py:3", calls=2, dtype="float32", low=0.0, high=1.0,
                output="[4, 2]", tasks=("single-label", ""), widths=(2, None),
                as_read=None, trained=True, evaluates=True, in_training=(),
                fits=True, feeds=("Linear",), labels=(("a", "b"), None),
                dataset="Animals",
            ),
        ),
        why="OSError", where=None, weights_from=("net.pth",), standins=("data: made",),
    ),
    OutputsComputed(),
    ModelPackaged(
        artifact="/a",
        parity=ParityResult(status="passed", max_abs=1e-6, top1_agreement=None, decision_agreement=0.5,
                            cosine=None, batches=(1, 2, 5), why=None),
        duels=(Duel(batch=1, chosen="eager fp32", eager=(1.0, 2.0), graph=(1.0,), others=0.5),),
    ),
    Failed(stage="capture", error="no", where="net.py:7", obstacles=(Obstacle("PG120", "a branch", "net.py", 7),)),
    Forward(request="/q", response="/s", token="abc"),
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_what_is_encoded_is_decoded(message):
    text = encode(message)
    assert "\n" not in text, "the server reads a line"
    assert json.loads(text)["kind"] == type(message).__name__
    assert decode(text) == message


def test_every_kind_of_message_is_tried_here():
    assert {type(message) for message in MESSAGES} == set(get_args(Message))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"kind": "Dance"}',
        '{"kind": "Inspect"}',
        '{"kind": "Inspect", "recipe": 7}',
        '{"kind": "Failed", "stage": 1, "error": "no"}',
        '{"kind": "Failed", "stage": "build", "error": "no", "extra": 1}',
        encode(Inspect(recipe=RECIPE, input=(3, 4, 5))).replace("[3, 4, 5]", "[3, 4]"),
    ],
)
def test_what_is_no_message_is_an_error(text):
    with pytest.raises(ValueError, match=r"message|Expecting"):
        decode(text)
