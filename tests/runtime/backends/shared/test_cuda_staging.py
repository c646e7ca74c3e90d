"""Staging is tested with a line whose copies are as late as a GPU's may be; CUDA's own needs a GPU."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from headrace.errors import BackendError
from headrace.runtime import backends
from headrace.runtime.backends.shared import torch_session
from headrace.runtime.backends.shared.cuda_graphs import CudaRecorder, Replayed
from headrace.runtime.backends.shared.cuda_staging import CudaLine, Staging
from headrace.runtime.backends.shared.onnx_session import OnnxSession
from headrace.runtime.backends.shared.torch_session import TorchSession
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.lowering.portable import write_onnx


def test_rows_that_lie_on_the_device_are_computed_without_copies():
    line, seen = LateLine(), []
    session = TorchSession(lambda images: (seen.append(images.sum().item()),) and (images,), Target(), line)
    rows = np.ones((2, 3), np.float32)
    compute = session.held([rows])

    compute()
    assert seen == [6.0]
    assert "finish" not in line.log  # which copies end with
    assert TorchSession(lambda images: (images,), Target()).held([rows]) is None


class LateLine:
    """The CPU as a device that takes its time: what comes back is there at `finish` and not before; until then nobody may have
    written into memory that it reads."""

    device = torch.device("cpu")

    def __init__(self):
        self.memories = []
        self.log = []
        self._begun = []
        self._inside = False

    def memory(self, size):
        self.memories.append(torch.full((size,), 0xAB, dtype=torch.uint8))
        return self.memories[-1]

    @contextlib.contextmanager
    def current(self):
        self._inside = True
        yield
        self._inside = False

    def copy(self, target, source):
        assert self._inside
        if self._of_the_host(target):
            self._begun.append(lambda: target.copy_(source))
            return
        assert self._of_the_host(source)
        target.copy_(source)
        version = source._version
        written = source.numpy().copy()

        def unchanged():
            assert source._version == version
            assert source.numpy().tobytes() == written.tobytes()

        self._begun.append(unchanged)

    def follow(self):
        self.log.append("follow")

    def finish(self):
        self.log.append("finish")
        for step in self._begun:
            step()
        self._begun.clear()

    def _of_the_host(self, value):
        places = [range(memory.data_ptr(), memory.data_ptr() + max(1, len(memory))) for memory in self.memories]
        return any(value.data_ptr() in place for place in places)


def scores(images, weights=None):
    return images.flatten(1).sum(1, keepdim=True), images * 2


def batch(rows, *shape, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, *(shape or (3, 4)))).astype(np.float32)


def test_results_are_those_of_the_function_and_stay_the_callers_own():
    line = LateLine()
    session = TorchSession(scores, Target(), line)
    kept = []
    for rows in (4, 1, 3, 9, 9, 2):
        images = batch(rows, seed=rows)
        kept.append((images.copy(), session.run([images])))
        images[:] = 0  # the caller's again
    for images, results in kept:
        assert all(value.flags.writeable and value.flags.owndata for value in results)
        np.testing.assert_array_equal(results[1], images * 2)
        np.testing.assert_allclose(results[0], images.reshape(len(images), -1).sum(1, keepdims=True), rtol=1e-5)
    assert line.log == ["finish"] * 6


def test_memory_is_kept_and_grows_with_the_largest_batch():
    line = LateLine()
    session = TorchSession(scores, Target(), line)
    for rows in (2, 8, 1, 8, 5):
        session.run([batch(rows)])
    assert [len(memory) for memory in line.memories] == [rows * size for rows in (2, 8) for size in (48, 4, 48)]


@pytest.mark.parametrize("kind", ["uint8", "int64", "bool", "float16", "float32", "float64"])
def test_every_dtype_and_layout_goes_there_and_back(kind):
    images = (batch(5, 6, 7) * 3).astype(kind)[:, ::2].transpose(0, 2, 1)
    images.setflags(write=False)
    (result,) = Staging(LateLine()).run(lambda tensors: [tensors[0].clone()], [images])
    np.testing.assert_array_equal(result, images)
    assert result.dtype == images.dtype


def test_reduced_precision_comes_back_as_float32():
    session = TorchSession(lambda images: (images.bfloat16(), images.sum()), Target(), LateLine())
    half, scalar = session.run([np.full((2, 3), 1.5, np.float32)])
    assert half.dtype == np.float32
    np.testing.assert_array_equal(half, 1.5)
    assert scalar.shape == ()
    assert scalar == 9


def test_a_view_of_the_input_is_the_callers_own():
    session = TorchSession(lambda images: (images,), Target(), LateLine())
    first = session.run([np.zeros((2, 3), np.float32)])
    session.run([np.ones((2, 3), np.float32)])
    np.testing.assert_array_equal(first[0], 0)


def test_more_rows_than_a_graph_takes_are_run_in_parts(monkeypatch):
    monkeypatch.setattr(torch_session, "MAX_BATCH", 4)
    line, images = LateLine(), batch(10)
    np.testing.assert_array_equal(TorchSession(scores, Target(), line).run([images])[1], images * 2)
    assert line.log == ["finish"] * 3
    assert max(len(memory) for memory in line.memories) == 4 * 48


def test_after_a_failure_the_memory_is_free_again():
    def function(images):
        if images.shape[0] == 2:
            raise RuntimeError("no kernel image")
        return (images * 2,)

    line = LateLine()
    session = TorchSession(function, Target(), line)
    with pytest.raises(BackendError, match=r"no kernel image"):
        session.run([batch(2)])
    assert line.log == ["finish"]
    np.testing.assert_array_equal(session.run([batch(3)])[0], batch(3) * 2)


def test_a_failure_of_the_device_is_an_error_of_the_backend():
    class Broken(LateLine):
        def finish(self):
            raise RuntimeError("an illegal memory access was encountered")

    with pytest.raises(BackendError, match=r"device failed on inputs of shape \[\(2, 3, 4\)\]: an illegal memory access"):
        TorchSession(scores, Target(), Broken()).run([batch(2)])


def test_a_closed_session_holds_no_memory():
    session = TorchSession(scores, Target(), LateLine())
    session.run([batch(2)])
    session.close()
    session.close()
    with pytest.raises(BackendError, match="closed"):
        session.run([batch(2)])


def test_tensors_are_computed_before_the_next_arrays():
    line = LateLine()
    session = TorchSession(scores, Target(), line)
    session.run_tensors([torch.ones(2, 3)])
    session.run([batch(2)])
    assert line.log == ["follow", "finish"]


def test_two_sessions_of_one_device_are_under_way_at_once():
    both = threading.Barrier(2, timeout=20)

    def function(images):
        both.wait()  # nobody gets here alone
        return (images * 2,)

    sessions = [TorchSession(function, Target(), LateLine()) for _ in range(2)]

    def work(number):
        for rows in (3, 1, 4):
            images = batch(rows, seed=10 * number + rows)
            np.testing.assert_array_equal(sessions[number].run([images])[0], images * 2)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))


def test_replayed_graphs_are_safe_with_it():
    """A recording's memory is written again by the next replay, before which its results must have left."""
    line, recorded = LateLine(), []

    def record(function, inputs):
        recorded.append(len(inputs[0]))
        results = [value.clone() for value in function(*inputs)]

        def replay():
            for memory, value in zip(results, function(*inputs), strict=True):
                memory.copy_(value)

        return replay, results

    session = TorchSession(Replayed(scores, record), Target(), line)
    kept = [(batch(rows, seed=seed), session.run([batch(rows, seed=seed)])) for seed, rows in enumerate((9, 10, 9, 3, 10))]
    for images, results in kept:
        np.testing.assert_array_equal(results[1], images * 2)
    assert recorded == [10, 3]


def test_onnx_runtime_binds_what_is_staged(tmp_path):
    class Mixed(nn.Module):
        def forward(self, images):
            rows = images.flatten(1)
            return rows * 2, rows.argmax(1), rows.mean(1) > 0

    write_onnx(capture(Mixed(), torch.randn(2, 3, 5)), tmp_path)
    opened = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    line, plain = LateLine(), OnnxSession(opened)
    session = OnnxSession(opened, "cpu", line)
    for rows in (1, 4, 2):
        images = batch(rows, 3, 5, seed=rows)
        for staged, usual in zip(session.run([images]), plain.run([images]), strict=True):
            np.testing.assert_array_equal(staged, usual)
            assert staged.dtype == usual.dtype
    assert line.log == ["finish"] * 3
    with pytest.raises(BackendError, match=r"\(1, 3, 6\)"):
        session.run([batch(1, 3, 6)])
    session.close()
    with pytest.raises(BackendError, match="closed"):
        session.run([batch(1, 3, 5)])


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no usable CUDA device on this machine")
def test_sessions_of_one_gpu_do_not_disturb_each_other():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 30 * 30, 5)).cuda().eval()

    def opened():
        line = CudaLine()
        function = Replayed(lambda images: (model(images),), CudaRecorder(line.device))
        return TorchSession(function, Target(device="cuda"), line)

    sessions = [opened() for _ in range(2)]

    images = [batch(1 + turn % 16, 3, 32, 32, seed=turn) for turn in range(50)]
    with torch.no_grad():
        expected = [model(torch.from_numpy(value).cuda()).cpu().numpy() for value in images]

    def work(number):
        for turn in range(number, 50 + number):
            (actual,) = sessions[number].run([images[turn % 50]])
            np.testing.assert_allclose(actual, expected[turn % 50], atol=1e-2)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    assert [session.note for session in sessions] == ["", ""]


@pytest.mark.cuda
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="torch finds fewer than two CUDA devices on this machine")
@pytest.mark.parametrize("name", ["eager", "inductor"])
def test_a_session_computes_on_the_gpu_that_it_is_told(conv_net, tmp_path, name):
    backend, target = backends.get(name), Target(device="cuda", ordinal=1)
    files = backend.prepare(capture(conv_net, torch.randn(2, 3, 20, 12)), Target(device="cuda"), tmp_path)
    session, images = backend.open(tmp_path, target, files), batch(3, 3, 20, 12)
    expected = conv_net(torch.from_numpy(images)).detach().numpy()
    np.testing.assert_allclose(session.run([images])[0], expected, atol=1e-2)
    assert session.run_tensors([torch.from_numpy(images)])[0].device == torch.device("cuda", 1)
