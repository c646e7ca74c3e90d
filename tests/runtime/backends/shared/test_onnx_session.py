"""Sessions over ONNX Runtime: arrays, tensors bound where they lie, and one batch size alone."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from headrace.errors import BackendError
from headrace.runtime.backends.shared.onnx_session import open_onnx
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.lowering.portable import write_onnx
from headrace.specs import FP16


class Mixed(nn.Module):
    """Outputs of three dtypes."""

    def forward(self, images, classes):
        rows = images.flatten(1)
        return rows @ rows.new_ones(rows.shape[1], 4), rows.argmax(1) + classes, rows.mean(1) > 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed")
    write_onnx(capture(Mixed(), (torch.randn(2, 3, 5), torch.arange(2))), folder)
    return folder


@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_arrays_of_any_batch_are_run(folder, batch, rows):
    images, classes = np.random.default_rng(rows).normal(size=(rows, 3, 5)).astype(np.float32), np.arange(rows)
    session = open_onnx(folder / "model.onnx", Target(threads=1, batch=batch), ["CPUExecutionProvider"])
    results = session.run([images, classes])
    flat = images.reshape(rows, -1)
    np.testing.assert_allclose(results[0], flat.sum(1, keepdims=True).repeat(4, 1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(results[1], flat.argmax(1) + classes)
    np.testing.assert_array_equal(results[2], flat.mean(1) > 0)


@pytest.mark.parametrize("rows", [1, 3])
def test_bound_tensors_give_what_arrays_give(folder, rows):
    session = open_onnx(folder / "model.onnx", Target(threads=1), ["CPUExecutionProvider"])
    images, classes = torch.randn(rows, 5, 3).transpose(1, 2), torch.arange(2 * rows)[::2]
    assert rows == 1 or not images.is_contiguous()
    tensors = session.run_tensors([images, classes])
    arrays = session.run([images.contiguous().numpy(), classes.contiguous().numpy()])
    assert [value.dtype for value in tensors] == [torch.float32, torch.int64, torch.bool]
    for tensor, array in zip(tensors, arrays, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), array)
    again = session.run_tensors([images + 1, classes])
    assert again[0].data_ptr() != tensors[0].data_ptr()
    np.testing.assert_array_equal(tensors[0].numpy(), arrays[0])


def test_a_wrong_shape_and_a_closed_session_are_errors(folder):
    session = open_onnx(folder / "model.onnx", Target(threads=1), ["CPUExecutionProvider"])
    for run, value in ((session.run, np.zeros((1, 4, 5), np.float32)), (session.run_tensors, torch.zeros(1, 4, 5))):
        classes = np.zeros(1, np.int64) if isinstance(value, np.ndarray) else torch.zeros(1, dtype=torch.int64)
        with pytest.raises(BackendError, match=r"\(1, 4, 5\)"):
            run([value, classes])
    session.close()
    with pytest.raises(BackendError, match="closed"):
        session.run([np.zeros((1, 3, 5), np.float32), np.zeros(1, np.int64)])


def test_a_provider_that_is_not_there_is_an_error_and_no_silent_fallback(folder):
    import onnxruntime

    if "TensorrtExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this machine has TensorRT")
    from headrace.runtime import backends

    backend = backends.get("tensorrt")
    assert "pip install onnxruntime-gpu tensorrt" in backend.supports(Target(device="cuda", precision=FP16))
    assert "does not run on cpu" in backend.supports(Target())
    with pytest.raises(BackendError, match="onnxruntime-gpu"):
        backend.open(folder, Target(device="cuda"), ["model.onnx"])


def test_nothing_is_written_about_its_user(folder, tmp_path):
    """ONNX Runtime's own telemetry begins with files in the user's cache."""
    home = tmp_path / "home"
    home.mkdir()
    program = """
import sys
from pathlib import Path
from headrace.runtime.backends.shared.onnx_session import open_onnx
from headrace.runtime.base.session import Target
open_onnx(Path(sys.argv[1]) / "model.onnx", Target(threads=1), ["CPUExecutionProvider"])
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "ORT_"))}
    command = [sys.executable, "-c", program, str(folder)]
    subprocess.run(command, check=True, env={**environment, "HOME": str(home)}, timeout=120)
    assert list(home.rglob("*")) == []
