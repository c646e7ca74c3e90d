import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from headrace.errors import ArtifactError, BackendError
from headrace.specs import FP32, INT8


def test_the_program_comes_from_the_portable_graph_and_has_the_packages_signature(opened_net):
    captured = opened_net.captured
    assert captured.signature == opened_net.artifact.signature
    assert captured.task == opened_net.artifact.task
    rows = torch.randn(5, 3, 16, 16)
    (wanted,) = opened_net.artifact.open().run([rows.numpy()])
    with torch.no_grad():
        (given,) = captured.program.module(check_guards=False)(rows)
    np.testing.assert_allclose(given, wanted, rtol=1e-4, atol=1e-5)


def test_a_package_with_torchs_program_alone_needs_trust(opened_net):
    artifact = replace(opened_net.artifact, files=("model.pt2",))
    with pytest.raises(ArtifactError, match="runs code as it is read"):
        _ = replace(opened_net, artifact=artifact).captured
    with pytest.raises(BackendError, match=r"holds no model\.onnx"):
        replace(opened_net, artifact=artifact).onnx()


def test_metadata(opened_net):
    found = opened_net.metadata(FP32)
    assert found["model"] == "net"
    for name in ("labels", "preprocessing", "task", "signature"):
        json.loads(found[name])
    bare = replace(opened_net, artifact=replace(opened_net.artifact, preprocessing=None))
    assert "preprocessing" not in bare.metadata(FP32)


def test_int8_without_images_is_refused(opened_net):
    with pytest.raises(BackendError, match="give --images DIR"):
        opened_net.onnx(INT8)


def test_images_that_are_too_few_for_int8_are_what_is_said(opened_net):
    with pytest.raises(BackendError, match=r"net holds no int8 form, and int8 takes its ranges from .* \(got 3\)"):
        replace(opened_net, uncalibrated="int8 takes its ranges from at least 80 images (got 3)").onnx(INT8)
