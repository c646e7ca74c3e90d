"""Replaying is tested with a recorder that runs the function itself into the same memory; CUDA's own needs a GPU."""

import numpy as np
import pytest
import torch
from torch import nn

from headrace.runtime import backends
from headrace.runtime.backends.shared.cuda_graphs import MOST_ROWS, CudaRecorder, Replayed, bucket
from headrace.runtime.backends.shared.torch_session import TorchSession
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.specs import Precision


class Recorder:
    """What CUDA graphs promise: the same memory in and out at every replay."""

    def __init__(self):
        self.sizes = []

    def __call__(self, function, inputs):
        self.sizes.append(inputs[0].shape[0])
        results = [value.clone() for value in function(*inputs)]

        def replay():
            for memory, value in zip(results, function(*inputs), strict=True):
                memory.copy_(value)

        return replay, results


def scores(images, weights=None):
    return (images.flatten(1).sum(1, keepdim=True), images * 2)


def test_buckets_hold_their_batch_and_waste_at_most_a_quarter():
    assert [bucket(rows) for rows in (1, 2, 5, 8, 9, 11, 16, 17, 33, 250, 256)] == [1, 2, 5, 8, 10, 12, 16, 20, 40, 256, 256]
    for rows in range(1, MOST_ROWS + 1):
        assert rows <= bucket(rows) <= 1.25 * rows
        assert bucket(bucket(rows)) == bucket(rows)
    assert len({bucket(rows) for rows in range(1, MOST_ROWS + 1)}) == 36
    with pytest.raises(ValueError, match="at least one row"):
        bucket(0)


def test_results_are_those_of_the_function_and_stay_the_callers_own():
    record = Recorder()
    replayed = Replayed(scores, record)
    kept = []
    for rows in (9, 10, 1, 9, 3, 10, 9):
        images = torch.randn(rows, 3, 5, 4).transpose(2, 3)  # not contiguous
        expected = scores(images)
        actual = replayed(images)
        kept.append((actual, expected))
    for actual, expected in kept:  # also after later replays
        assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
    assert record.sizes == [10, 1, 3]
    assert not replayed.refused


def test_the_recording_longest_unused_goes_first():
    record = Recorder()
    replayed = Replayed(scores, record, most_kept=2)
    for rows in (1, 2, 1, 3, 2):
        replayed(torch.randn(rows, 4))
    assert record.sizes == [1, 2, 3, 2]
    assert replayed.recorded == (3, 2)
    replayed.close()
    assert replayed.recorded == ()


def test_another_row_shape_or_dtype_is_another_recording():
    record = Recorder()
    replayed = Replayed(scores, record)
    for images in (torch.randn(2, 4), torch.randn(2, 5), torch.randn(2, 4).double(), torch.randn(2, 4)):
        assert torch.equal(replayed(images)[1], images * 2)
    assert len(record.sizes) == 3


def test_large_batches_run_as_they_come():
    record = Recorder()
    images = torch.randn(MOST_ROWS + 1, 4)
    assert torch.equal(Replayed(scores, record)(images)[1], images * 2)
    assert record.sizes == []


def test_what_cannot_be_recorded_is_called_and_the_reason_is_kept(caplog):
    def record(function, inputs):
        raise RuntimeError("operation not permitted when\n stream is capturing")

    session = TorchSession(Replayed(scores, record), Target())
    for _ in range(2):
        images = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
        np.testing.assert_array_equal(session.run([images])[1], images * 2)
    assert session.note == "CUDA graphs are off for this model: operation not permitted when stream is capturing"
    assert caplog.text.count("CUDA graphs are off") == 1


def test_an_output_without_rows_is_not_replayed():
    replayed = Replayed(lambda images: (images.mean(),), Recorder())
    images = torch.randn(9, 4)
    assert torch.equal(replayed(images)[0], images.mean())  # padding would have changed it
    assert "row" in replayed.refused


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no usable CUDA device on this machine")
def test_cuda_graphs_compute_what_the_function_computes():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)).cuda().eval()
    replayed = Replayed(lambda images: (model(images),), CudaRecorder())
    with torch.no_grad():
        for rows in (1, 2, 5, 9, 10, 5):
            images = torch.randn(rows, 3, 8, 8, device="cuda")
            torch.testing.assert_close(replayed(images)[0], model(images))
    assert replayed.refused == ""
    assert replayed.recorded == (1, 2, 10, 5)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no usable CUDA device on this machine")
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-3), ("bf16", 5e-2), ("fp16", 1e-2)])
def test_inductor_replays_its_kernels_on_a_gpu(conv_net, tmp_path, precision, tolerance):
    backend, target = backends.get("inductor"), Target(device="cuda", precision=Precision(precision))
    session = backend.open(tmp_path, target, backend.prepare(capture(conv_net, torch.randn(2, 3, 20, 12)), target, tmp_path))
    for rows in (1, 2, 5, 9):
        images = torch.randn(rows, 3, 20, 12)
        expected = conv_net.double()(images.double()).detach().numpy()
        conv_net.float()
        (actual,) = session.run([images.numpy()])
        np.testing.assert_allclose(actual, expected, atol=tolerance * np.abs(expected).max())
    assert session.note == ""
