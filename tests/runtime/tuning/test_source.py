import dataclasses

import pytest
import torch

from headrace import GraphConfig
from headrace.errors import BackendError
from headrace.runtime.artifact.plan import Choice, Plan
from headrace.runtime.base.fingerprint import fingerprint
from headrace.runtime.capture.capture import capture
from headrace.runtime.tuning.source import CapturedSource
from headrace.runtime.tuning.tune import tune
from headrace.specs import BF16, FP32


@pytest.fixture
def captured(conv_net):
    return capture(conv_net, torch.randn(2, 3, 8, 8))


def test_what_the_passes_did_for_each_choice_is_remembered(captured, tmp_path):
    source = CapturedSource.of(captured)
    choices = {1: Choice(backend="eager", precision=BF16), 4: Choice(backend="onnxruntime", precision=FP32)}
    plan = source.prepare_all(Plan(fingerprint=fingerprint(), choices=choices), tmp_path)
    assert plan.files == ("model-bf16.pt2", "model.onnx")
    lowered = source.records(plan)[len(source.passes) :]
    assert [(record.name, record.status) for record in lowered] == [("half_precision", "applied"), ("channels_last", "applied")]
    assert {record.why for record in lowered} == {"for eager bf16, which the plan's parity gate judges"}
    before = source.records(plan)
    assert source.prepare_all(plan, tmp_path) == plan  # the files are there
    assert source.records(plan) == before


def test_a_disabled_layout_is_left_out(captured, tmp_path):
    source = CapturedSource.of(dataclasses.replace(captured, disabled=("channels_last",)))
    plan = source.prepare_all(Plan(fingerprint={}, choices={1: Choice(backend="eager", precision=BF16)}), tmp_path)
    lowered = source.records(plan)[len(source.passes) :]
    assert [(record.name, record.status) for record in lowered] == [
        ("half_precision", "applied"),
        ("channels_last", "disabled"),
    ]


def test_a_precision_without_its_pass_is_no_candidate(captured, tmp_path):
    config = GraphConfig(precision="bf16", backend="eager", disable_passes=("half_precision",))
    source = CapturedSource.of(dataclasses.replace(captured, disabled=config.disable_passes))
    with pytest.raises(BackendError, match="bf16 needs the pass half_precision, which disable_passes turns off"):
        tune(source, config, directory=tmp_path, device="cpu")
