"""What people are told of a plan."""

from dataclasses import replace

import pytest

from headrace.runtime.artifact.plan import Choice, Measurement, Plan
from headrace.serving.models.oversight.plan_account import changed_plan, without_paths
from headrace.specs import FP32, INT8

FIRST, BEST = Choice(backend="onnxruntime", precision=FP32), Choice(backend="openvino", precision=INT8)


def _plan(choice: Choice, *, portable: bool = False) -> Plan:
    measured = [
        Measurement(choice=replace(one, files=()), bucket=bucket, status=status, median_ms=time)
        for bucket in (1, 8)
        for one, status, time in ((BEST, "won", 2.0 * bucket), (FIRST, "lost", 5.0 * bucket))
    ]
    return Plan(
        fingerprint={}, choices={1: choice, 8: choice}, measurements=() if portable else tuple(measured), portable=portable
    )


def test_a_plan_that_takes_over_says_its_gain():
    said = changed_plan(_plan(BEST), _plan(FIRST, portable=True))
    assert said == (
        "a measured plan takes over: openvino int8: 2.50 times as fast as onnxruntime fp32 at batch 1, 2.50 times as fast as "
        "onnxruntime fp32 at batch 8"
    )
    assert changed_plan(_plan(BEST), _plan(BEST)) is None
    assert changed_plan(_plan(FIRST), _plan(BEST)).startswith("another plan takes over: onnxruntime fp32")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no such file: /srv/models/net/1/model.onnx", "no such file: …/model.onnx"),
        ("headrace tune '/home/me/models/net' measures it", "headrace tune '…/net' measures it"),
        ("~/models/net and (/a/b)", "…/net and (…/b)"),
        ("3/4 of images/s, and/or https://example.org/a/b", "3/4 of images/s, and/or https://example.org/a/b"),
        ("net/1/model.onnx is not the file that was written", "net/1/model.onnx is not the file that was written"),
    ],
)
def test_places_of_this_machine_are_not_told(text, shown):
    assert without_paths(text) == shown
