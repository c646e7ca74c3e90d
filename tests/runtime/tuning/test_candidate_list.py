"""Which candidates a plan has, by the backend, the precision and the images that are given."""

import pytest

from headrace.errors import BackendError
from headrace.specs import FP8, FP32, INT8


def test_lossless_candidates_only_without_images(conv_net, tuned):
    plan = tuned(conv_net, max_tuning_seconds=5)
    assert {item.choice.precision for item in plan.measurements} == {FP32}


def test_several_precisions_leave_the_choice_among_them(conv_net, tuned):
    plan = tuned(conv_net, precision="fp32,int8", backend="eager", buckets=(1,))
    assert [item.candidate for item in plan.measurements] == ["eager fp32"]
    plan = tuned(conv_net, precision="bf16,fp32", backend="eager", buckets=(1,))
    assert [item.candidate for item in plan.measurements] == ["eager bf16", "eager fp32"]


def test_a_pinned_backend_is_the_only_one(conv_net, tuned):
    plan = tuned(conv_net, backend="onnxruntime")
    assert [(item.candidate, item.status) for item in plan.measurements if item.bucket == 1] == [("onnxruntime fp32", "won")]


def test_a_pinned_backend_that_is_missing_or_unknown_is_an_error(conv_net, tuned, monkeypatch):
    with pytest.raises(BackendError, match="there is no backend"):
        tuned(conv_net, backend="nonesuch")
    with pytest.raises(BackendError, match="onnxruntime does not compute in bf16; it computes in fp32, int8"):
        tuned(conv_net, backend="onnxruntime", precision="bf16")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BackendError, match=r"apt install g\+\+"):
        tuned(conv_net, backend="inductor")


def test_a_precision_that_nothing_computes_in_is_an_error(conv_net, tuned):
    with pytest.raises(BackendError, match="fp16"):
        tuned(conv_net, precision="fp16", backend="eager")


def test_fp8_is_tried_on_gpus_alone(conv_net, tuned, images):
    plan = tuned(conv_net, images=images, max_tuning_seconds=1)
    (item,) = (item for item in plan.measurements if item.bucket == 1 and item.choice.precision == FP8)
    assert (item.choice.backend, item.status, item.why) == ("inductor", "skipped", "fp8 is for GPUs; on a CPU use int8")
    with pytest.raises(BackendError, match="no backend here can run fp8 on cpu: fp8 is for GPUs"):
        tuned(conv_net, precision="fp8")


def test_int8_without_images_says_what_it_needs(conv_net, tuned, images):
    with pytest.raises(BackendError, match="calibration images, or at least 80 images"):
        tuned(conv_net, precision="int8")
    plan = tuned(conv_net, images=images[:79], max_tuning_seconds=5, buckets=(1,))
    assert {item.why for item in plan.measurements if item.choice.precision == INT8} == {
        "int8 takes its ranges from real images: give calibration images, or at least 80 images (got 79)"
    }
