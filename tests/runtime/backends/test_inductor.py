import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from headrace.errors import BackendError
from headrace.runtime import backends
from headrace.runtime.backends.inductor import _settings
from headrace.runtime.base.config import GraphConfig
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import MAX_BATCH, capture
from headrace.runtime.capture.programs import at_batch, isolated, runnable
from headrace.runtime.lowering.fp8 import in_fp8
from headrace.runtime.lowering.precision import in_precision
from headrace.runtime.passes import run_passes
from headrace.specs import BF16, FP8, Precision
from tests.runtime.passes.test_fold_constants import Accumulating

INDUCTOR = backends.get("inductor")


@pytest.mark.slow
@pytest.mark.skipif(INDUCTOR.missing() is not None, reason=str(INDUCTOR.missing()))
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("bf16", 5e-2)])
def test_a_package_runs_any_batch(settled, tmp_path, precision, tolerance):
    torch.manual_seed(0)
    module = settled(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))).eval()
    target = Target(precision=Precision(precision), threads=1)
    files = INDUCTOR.prepare(capture(module, torch.randn(1, 3, 8, 8)), target, tmp_path)
    assert files == [f"inductor-cpu-{precision}.pt2"]
    session = INDUCTOR.open(tmp_path, target, files)
    for batch in (1, 5, 2):
        rows = np.random.default_rng(batch).normal(size=(batch, 3, 8, 8)).astype(np.float32)
        with torch.no_grad():
            expected = module(torch.from_numpy(rows)).numpy()
        (actual,) = session.run([rows])
        np.testing.assert_allclose(actual, expected, atol=tolerance * np.abs(expected).max())


@pytest.mark.skipif(INDUCTOR.missing() is not None, reason=str(INDUCTOR.missing()))
def test_compiling_leaves_no_guards_on_the_captured_program_and_the_package_keeps_no_state(settled, tmp_path):
    torch.manual_seed(0)
    stem = [nn.Conv2d(1, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 48, 3, padding=1)]
    head = [nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(48 * 16, 4), Accumulating()]
    module = settled(nn.Sequential(*stem, *head)).eval()
    captured, _ = run_passes(capture(module, torch.randn(2, 1, 32, 32)))
    for backend in (INDUCTOR, backends.get("eager")):  # eager is written after inductor compiled the same capture
        session = backend.open(tmp_path, Target(threads=1), backend.prepare(captured, Target(threads=1), tmp_path))
        for seed in (0, 1, 0):
            rows = torch.randn(40, 1, 32, 32, generator=torch.Generator().manual_seed(seed))
            with torch.no_grad():
                expected = module(rows).numpy()
            (actual,) = session.run([rows.numpy()])
            np.testing.assert_allclose(actual, expected, atol=1e-5 * np.abs(expected).max())


def test_without_a_compiler_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert "apt install g++" in INDUCTOR.missing()
    with pytest.raises(BackendError, match=r"g\+\+"):
        INDUCTOR.prepare(capture(nn.Linear(4, 4), torch.randn(1, 4)), Target(), tmp_path)


def test_a_damaged_package_is_an_error(tmp_path):
    (tmp_path / "inductor-cpu-fp32.pt2").write_bytes(b"not a package")
    with pytest.raises(BackendError, match="inductor-cpu-fp32"):
        INDUCTOR.open(tmp_path, Target(), ["inductor-cpu-fp32.pt2"])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_kernels_are_measured_at_another_batch_and_run_any(settled, precision):
    torch.manual_seed(0)
    module = settled(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))).eval()
    program = in_precision(isolated(capture(module, torch.randn(1, 3, 8, 8)).program), precision)
    tuned = at_batch(program, 32, MAX_BATCH)
    (images,) = (
        node for node in tuned.graph.nodes if node.op == "placeholder" and node.name in tuned.graph_signature.user_inputs
    )
    assert images.meta["val"].shape[0].node.hint == 32
    for batch in (1, 2, 5, 33):
        rows = torch.randn(batch, 3, 8, 8)
        assert torch.equal(runnable(tuned)(rows)[0], runnable(program)(rows)[0])


@pytest.mark.skipif(INDUCTOR.missing() is not None, reason=str(INDUCTOR.missing()))
@pytest.mark.slow
def test_an_autotuned_package_runs_any_batch(settled, tmp_path):
    """As on a GPU, where `devices` leaves it. On a CPU there is no choice of convolutions, so that it takes no minutes."""
    torch.manual_seed(0)
    backend = dataclasses.replace(backends.get("inductor_autotuned"), devices=("cpu",))
    module = settled(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten())).eval()
    target = Target(threads=1)
    files = backend.prepare(capture(module, torch.randn(1, 3, 8, 8)), target, tmp_path)
    assert files == ["inductor_autotuned-cpu-fp32.pt2"]
    session = backend.open(tmp_path, target, files)
    for batch in (1, 5, 40):
        rows = np.random.default_rng(batch).normal(size=(batch, 3, 8, 8)).astype(np.float32)
        with torch.no_grad():
            expected = module(torch.from_numpy(rows)).numpy()
        np.testing.assert_allclose(session.run([rows])[0], expected, atol=1e-5 * np.abs(expected).max())


def test_autotuning_is_for_gpus_and_only_in_a_tuning_that_has_the_time():
    backend = backends.get("inductor_autotuned")
    assert "does not run on cpu" in backend.supports(Target())
    assert backend.preparation_seconds > GraphConfig().seconds("cuda")
    assert backend.preparation_seconds > INDUCTOR.preparation_seconds


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no usable CUDA device on this machine")
def test_autotuned_kernels_compute_what_the_module_computes(conv_net, tmp_path):
    backend, target = backends.get("inductor_autotuned"), Target(device="cuda", precision=BF16)
    session = backend.open(tmp_path, target, backend.prepare(capture(conv_net, torch.randn(2, 3, 20, 12)), target, tmp_path))
    for rows in (1, 5, 32, 40):
        images = torch.randn(rows, 3, 20, 12)
        with torch.no_grad():
            expected = conv_net(images).numpy()
        np.testing.assert_allclose(session.run([images.numpy()])[0], expected, atol=5e-2 * np.abs(expected).max())
    assert session.note == ""


def test_fp8_needs_a_gpu_that_has_it():
    assert INDUCTOR.missing() or "fp8 is for GPUs; on a CPU use int8" in INDUCTOR.supports(Target(precision=FP8))
    for capability in ((7, 5), (8, 0), (8, 6)):
        assert "compute capability 8.9 or newer" in backends.too_old_for_fp8(capability)
    for capability in ((8, 9), (9, 0), (10, 3), (12, 0)):
        assert backends.too_old_for_fp8(capability) is None


def wide():
    """Two layers for fp8, and a head, whose depth is a multiple of 32: of others torch's bf16 product on a CPU with AMX carries
    NaN into the row before."""
    torch.manual_seed(0)
    layers = [nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 288, bias=False), nn.LayerNorm(288), nn.Linear(288, 5)]
    return nn.Sequential(*layers).eval()


def in_fp8_and_computed(*shape):
    """A program with two layers in fp8, rows of which one is not a number, and what torch's operators make of them."""
    program = in_fp8(in_precision(isolated(capture(wide(), torch.randn(2, *shape)).program), "bf16"))
    rows = torch.randn(40, *shape)
    rows[3, ..., 7] = float("nan")
    with torch.no_grad():
        return program, rows, runnable(program)(rows)[0]


@pytest.mark.usefixtures("fp8_products")
@pytest.mark.parametrize("shape", [pytest.param((256,), marks=pytest.mark.slow), (6, 256)])
def test_fp8_kernels_are_measured_at_another_batch_and_run_any(shape):
    program, rows, expected = in_fp8_and_computed(*shape)
    tuned = runnable(at_batch(program, 32, MAX_BATCH))
    with torch.no_grad():
        for batch in (1, 2, 5, 40):
            assert torch.equal(tuned(rows[:batch])[0].nan_to_num(7.0), expected[:batch].nan_to_num(7.0))


@pytest.mark.slow
@pytest.mark.skipif(INDUCTOR.missing() is not None, reason=str(INDUCTOR.missing()))
@pytest.mark.usefixtures("fp8_products")
@pytest.mark.parametrize("shape", [(256,), (6, 256)])
def test_fp8_is_compiled(tmp_path, shape):
    """For a CPU, which no plan does: it shows that inductor takes the program, not what it makes of it for a GPU.

    Inductor rounds to bf16 less often, so that some values fall to the other side in fp8: as far from float64, elsewhere.
    """
    program, rows, expected = in_fp8_and_computed(*shape)
    path = str(tmp_path / "model.pt2")
    with torch.no_grad():
        exact = wide().double()(rows.double())
        torch._inductor.aoti_compile_and_package(program, package_path=path, inductor_configs=_settings(Target()))
    compiled = torch._inductor.aoti_load_package(path)
    assert expected[3].isnan().all()
    for batch in (1, 2, 5, 40):
        (actual,) = compiled(rows[:batch])
        assert torch.equal(actual.isnan(), exact[:batch].isnan())
        assert (actual - exact[:batch]).nan_to_num(0.0).abs().max() < 0.15 * exact.nan_to_num(0.0).abs().max()
    ours, torchs = ((value - exact).nan_to_num(0.0).square().mean().sqrt() for value in (actual, expected))
    assert ours < 1.2 * torchs


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no usable CUDA device on this machine")
@pytest.mark.parametrize("name", ["inductor", "inductor_autotuned"])
def test_fp8_computes_what_the_module_computes(tmp_path, name):
    backend, target = backends.get(name), Target(device="cuda", precision=FP8)
    if why := backend.supports(target):
        pytest.skip(why)
    module = wide()
    captured = capture(module, torch.randn(2, 7, 256))
    session = backend.open(tmp_path, target, backend.prepare(captured, target, tmp_path))
    for batch in (1, 2, 5, 33):
        rows = torch.randn(batch, 7, 256)
        with torch.no_grad():
            expected = module(rows).numpy()
        np.testing.assert_allclose(session.run([rows.numpy()])[0], expected, atol=0.15 * np.abs(expected).max())
    rows[3, 4, 5] = float("nan")
    (actual,) = session.run([rows.numpy()])
    assert np.isnan(actual[3, 4]).all()
    assert np.isnan(actual).sum() == 5
    assert session.note == ""
    with pytest.raises(BackendError, match="fp8 gains nothing here"):
        backend.prepare(capture(nn.Linear(256, 256), torch.randn(2, 256)), target, tmp_path / "other")
