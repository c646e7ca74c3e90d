"""The backend of the kernels, on a CPU in Triton's interpreter, which must be asked for before Triton is imported.

So in a usual run these tests start a process that runs them, and those of the sites, with the kernels' own programs."""

import copy
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from headrace.errors import BackendError
from headrace.kernels import _launch
from headrace.runtime import backends
from headrace.runtime.backends.kernels import KernelsBackend
from headrace.runtime.base.calibration import Calibration
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.passes import run_passes
from headrace.specs import BF16, INT8, INT8_BF16, Precision

HERE = Path(__file__).parent
interpreted = pytest.mark.skipif(not _launch.INTERPRETED, reason="runs in the process that another test here starts")


def all_faster(contenders):
    """As if each kernel took half the time, and a larger one less."""
    return [1.0 if item.operator == "torch" else 0.5 / len(item.names) for item in contenders]


def all_slower(contenders):
    return [1.0 if item.operator == "torch" else 2.0 for item in contenders]


def in_tests(timer=all_faster):
    return KernelsBackend(devices=("cpu",), timer=timer)


class ResNet(nn.Module):
    """A stem and a block, with batch normalization and in-place operators, as torchvision writes them."""

    def __init__(self):
        super().__init__()
        self.stem, self.relu = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(inplace=True)
        self.first, self.norm1 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.second, self.norm2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)
        for norm in (self.norm1, self.norm2):
            nn.init.normal_(norm.running_mean, 0, 0.5)
            nn.init.uniform_(norm.running_var, 0.3, 2.0)

    def forward(self, images):
        x = self.relu(self.stem(images))
        y = self.norm2(self.second(self.relu(self.norm1(self.first(x)))))
        y += x
        return self.head(self.relu(y).mean((2, 3)))


class ViT(nn.Module):
    """Patches, a block of attention and MLP with their residual sums, and the best two of a softmax."""

    def __init__(self):
        super().__init__()
        self.patch, self.place = nn.Conv2d(3, 8, 4, stride=4), nn.Parameter(torch.randn(1, 4, 8))
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(8) for _ in range(3))
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.up, self.down, self.head = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 5)

    def forward(self, images):
        x = self.patch(images).flatten(2).transpose(1, 2) + self.place
        q, k, v = self.qkv(self.norm1(x)).reshape(-1, 4, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        x = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return self.head(self.norm3(x).mean(1)).softmax(-1).topk(2)[0]


class Wide(nn.Module):
    """Enough channels for int8: a stem in floats, and a residual block."""

    def __init__(self):
        super().__init__()
        self.stem, self.first, self.second = nn.Conv2d(3, 32, 3), nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 32, 1)
        self.head = nn.Linear(32, 5)

    def forward(self, images):
        x = self.stem(images).relu()
        return self.head((self.second(self.first(x).relu()) + x).relu().mean((2, 3)))


MODELS = {
    "resnet": (ResNet, {"conv2d": 3}),
    "vit": (ViT, {"conv2d": 1, "layer_norm": 1, "add_layer_norm": 2, "bias_gelu": 1, "softmax_topk": 1}),
}


def captured(name):
    torch.manual_seed(0)
    module = MODELS[name][0]().eval()
    return module, run_passes(capture(module, torch.randn(2, 3, 8, 8)))[0]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The module, its target, and the folder and files that were made of it, once for each model and precision."""

    @functools.cache
    def prepare(name, precision):
        module, graph = captured(name)
        target, folder = Target(precision=Precision(precision), threads=1, batch=2), tmp_path_factory.mktemp(name)
        return module, target, folder, in_tests().prepare(graph, target, folder), graph

    return prepare


@interpreted
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("bf16", 5e-2)])
def test_any_batch_agrees_with_the_module(prepared, name, precision, tolerance):
    module, target, folder, files, graph = prepared(name, precision)
    assert files == [f"kernels-cpu-{precision}.pt2", f"kernels-cpu-{precision}.json"]
    assert {path.name for path in folder.iterdir()} == set(files)
    before = [(folder / name).stat().st_mtime_ns for name in files]
    assert in_tests().prepare(graph, target, folder) == files
    assert [(folder / name).stat().st_mtime_ns for name in files] == before
    session = in_tests().open(folder, target, files)
    exact = copy.deepcopy(module).double()
    for batch in (1, 2, 5):
        stored = np.random.default_rng(batch).normal(size=(2 * batch, 8, 8, 3)).astype(np.float32)
        rows = stored.transpose(0, 3, 1, 2)[::2]  # not contiguous
        with torch.no_grad():
            expected = exact(torch.from_numpy(rows).double()).numpy()
        (actual,) = session.run([rows])
        assert actual.dtype == np.float32
        np.testing.assert_allclose(actual, expected, atol=tolerance * np.abs(expected).max())
    session.close()
    with pytest.raises(BackendError, match="closed"):
        session.run([rows])


@interpreted
@pytest.mark.parametrize("name", MODELS)
def test_the_record_tells_which_kernels_stand_in_the_program(prepared, name):
    _, _, folder, files, _ = prepared(name, "fp32")
    record = json.loads((folder / files[1]).read_text())
    assert (record["format"], record["batch"], record["device"], record["integer"]) == (2, 2, "cpu", 0)
    assert record["seconds"] >= 0
    counts = {}
    for site in record["sites"]:
        counts[site["operator"]] = counts.get(site["operator"], 0) + site["chosen"]
        assert site["torch_ms"] == 1.0
        assert (site["tile"] is not None) == (site["operator"] == "conv2d")
        assert bool(site["why"]) == (site["chosen"] == 0)
    assert {operator: count for operator, count in counts.items() if count} == MODELS[name][1]
    program = torch.export.load(folder / files[0])
    tiles = [node.args[8] for node in program.graph.nodes if str(node.target) == "headrace.conv2d.default"]
    assert sorted(tiles) == sorted(site["tile"] for site in record["sites"] for _ in range(site["chosen"]) if site["tile"])
    for path in folder.iterdir():
        assert b"test_kernels" not in path.read_bytes()


@interpreted
def test_where_no_kernel_is_faster_the_program_is_torchs(tmp_path):
    module, graph = captured("vit")
    backend, target = in_tests(all_slower), Target(batch=1, threads=1)
    files = backend.prepare(graph, target, tmp_path)
    assert "headrace" not in str(torch.export.load(tmp_path / files[0]).graph)
    rows = torch.randn(3, 3, 8, 8)
    with torch.no_grad():
        expected = module(rows).numpy()
    np.testing.assert_allclose(backend.open(tmp_path, target, files).run([rows.numpy()])[0], expected, atol=1e-5)


@interpreted
def test_the_record_tells_where_cudnns_fused_operators_stand(cudnn_on_cpu, tmp_path):
    module, graph = captured("resnet")

    def cudnn_faster(contenders):
        return [1.0 if item.operator == "torch" else 0.2 if "cudnn" in item.operator else 0.9 for item in contenders]

    backend, target = in_tests(cudnn_faster), Target(batch=2, threads=1)
    files = backend.prepare(graph, target, tmp_path)
    record = json.loads((tmp_path / files[1]).read_text())
    counts = {site["operator"]: site["chosen"] for site in record["sites"] if site["chosen"]}
    assert counts == {"cudnn_convolution_relu": 1, "cudnn_convolution_add_relu": 1}
    rows = torch.randn(3, 3, 8, 8)
    with torch.no_grad():
        expected = module(rows).numpy()
    session = backend.open(tmp_path, target, files)
    np.testing.assert_allclose(session.run([rows.numpy()])[0], expected, atol=1e-5)
    record["sites"] = [site for site in record["sites"] if site["operator"] != "cudnn_convolution_relu"]
    (tmp_path / files[1]).write_text(json.dumps(record))
    with pytest.raises(BackendError, match="tells of 1; compile the model again"):
        backend.open(tmp_path, target, files)


@interpreted
def test_damaged_files_are_errors(prepared, tmp_path):
    _, target, folder, files, _ = prepared("vit", "fp32")
    backend = in_tests()
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    record = tmp_path / files[1]
    good = record.read_text()
    one_less = json.loads(good)
    one_less["sites"] = [site for site in one_less["sites"] if site["operator"] != "bias_gelu"]
    damaged = [good[:-20], "[]", "{}", "null", '{"format": 1, "sites": []}', '{"format": 2, "sites": [{}]}', "\udcff"]
    damaged += ['{"format": 2, "sites": []}', '{"format": 2, "integer": "some", "sites": []}']
    for text in damaged:
        record.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(BackendError, match=r"kernels-cpu-fp32.json is not a record of kernels"):
            backend.open(tmp_path, target, files)
    record.write_text(json.dumps(one_less))
    with pytest.raises(BackendError, match="has 6 kernels and kernels-cpu-fp32.json tells of 5; compile the model again"):
        backend.open(tmp_path, target, files)
    record.unlink()
    with pytest.raises(BackendError, match="FileNotFoundError"):
        backend.open(tmp_path, target, files)
    record.write_text(good)
    with pytest.raises(BackendError, match="a program and a record"):
        backend.open(tmp_path, target, files[:1])
    (tmp_path / files[0]).write_bytes(b"not a program")
    with pytest.raises(BackendError, match="kernels-cpu-fp32.pt2 cannot be loaded"):
        backend.open(tmp_path, target, files)


@interpreted
def test_in_int8_the_kernels_compute_and_their_tiles_are_chosen(tmp_path):
    torch.manual_seed(0)
    module = Wide().eval()
    graph = run_passes(capture(module, torch.randn(2, 3, 8, 8)))[0]
    target, backend = Target(precision=INT8_BF16, threads=1, batch=2), in_tests()
    with pytest.raises(BackendError, match="takes its ranges from real images"):
        backend.prepare(graph, target, tmp_path)
    rows = np.random.default_rng(0).normal(size=(16, 3, 8, 8)).astype(np.float32)
    calibration = Calibration([rows])
    files = backend.prepare(replace(graph, calibration=calibration), target, tmp_path)
    assert files == ["kernels-cpu-int8+bf16.pt2", "kernels-cpu-int8+bf16.json"]
    record = json.loads((tmp_path / files[1]).read_text())
    convolutions = [site for site in record["sites"] if site["operator"] == "conv2d_int8"]
    assert record["integer"] == 4  # with the stem, which gives levels, and one dequantize
    assert len(convolutions) == 3
    assert all(site["chosen"] == 1 and site["tile"] for site in convolutions)
    session, held = backend.open(tmp_path, target, files), copy.deepcopy(module).double()
    for batch in (1, 5):
        with torch.no_grad():
            expected = held(torch.from_numpy(rows[:batch]).double()).numpy()
        (actual,) = session.run([rows[:batch]])
        assert np.abs(actual - expected).mean() < 0.05 * np.abs(expected).mean()
    more = replace(target, precision=INT8_BF16.with_more_in_floats)
    relieved = backend.prepare(replace(graph, calibration=calibration), more, tmp_path)
    assert relieved == ["kernels-cpu-int8+bf16-1.pt2", "kernels-cpu-int8+bf16-1.json"]
    sites = json.loads((tmp_path / relieved[1]).read_text())["sites"]
    assert len([site for site in sites if site["operator"] == "conv2d_int8"]) == 2
    backend.open(tmp_path, target, relieved).close()


def test_it_is_no_backend_for_a_cpu():
    backend = backends.get("kernels")
    assert backend.devices == ("cuda",)
    assert backend.supports(Target()) == "kernels does not run on cpu; it runs on cuda"
    assert "does not compute in int8" in backend.supports(Target(device="cuda", precision=INT8))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_so(tmp_path):
    _, graph = captured("vit")
    target = Target(device="cuda", precision=BF16)
    expected = "torch finds no usable CUDA device" if _launch.triton is not None else "pip install triton"
    for attempt in (
        lambda: backends.get("kernels").prepare(graph, target, tmp_path),
        lambda: backends.get("kernels").open(tmp_path, target, ["kernels-cuda-bf16.pt2", "kernels-cuda-bf16.json"]),
    ):
        with pytest.raises(BackendError, match=expected):
            attempt()
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(_launch.INTERPRETED, reason="this process interprets")
def test_in_tests_too_a_cpu_needs_the_interpreter():
    why = in_tests().supports(Target())
    assert why is not None
    assert "TRITON_INTERPRET=1" in why or "pip install triton" in why


def test_without_triton_it_says_what_to_install(tmp_path):
    code = (
        "import importlib.util\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name == 'triton' else found(name, *more)\n"
        "import sys\n"
        "from headrace.runtime import backends\n"
        "from headrace.runtime.base.session import Target\n"
        "print(backends.get('kernels').supports(Target(device='cuda')), 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip().endswith("pip install triton False")


@pytest.mark.slow
@pytest.mark.skipif(_launch.triton is None, reason="needs Triton: pip install triton")
@pytest.mark.skipif(_launch.INTERPRETED, reason="this process interprets already")
def test_kernels_hold_in_tritons_interpreter():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["TRITON_INTERPRET"] = "1"
    files = [str(HERE / "test_kernels.py"), str(HERE.parent / "lowering/test_kernel_sites.py")]
    chosen = "(test_kernels or computes or together) and not (written or same or two)"  # which are convolutions again
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "200", "-W", "ignore", "-k", chosen]
    done = subprocess.run([*command, *files], env=environment, capture_output=True, text=True, check=False, cwd=HERE.parents[2])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    counts = re.search(r"(\d+) passed", done.stdout)
    assert counts is not None
    assert int(counts[1]) >= 36


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no usable CUDA device on this machine")
@pytest.mark.parametrize("timer", [None, all_faster])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-3), ("bf16", 5e-2), ("fp16", 1e-2)])
def test_on_a_gpu_it_is_replayed(tmp_path, precision, tolerance, timer):
    for name in MODELS:
        module, graph = captured(name)
        exact = copy.deepcopy(module).double()
        backend, target = KernelsBackend(timer=timer), Target(device="cuda", precision=Precision(precision))
        (tmp_path / name).mkdir()
        files = backend.prepare(graph, target, tmp_path / name)
        session = backend.open(tmp_path / name, target, files)
        for batch in (1, 2, 5, 9):
            rows = torch.randn(batch, 3, 8, 8)
            with torch.no_grad():
                expected = exact(rows.double()).numpy()
            np.testing.assert_allclose(session.run([rows.numpy()])[0], expected, atol=tolerance * np.abs(expected).max())
        assert session.note == ""


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no usable CUDA device on this machine")
def test_on_a_gpu_int8_is_replayed(tmp_path):
    torch.manual_seed(0)
    module = Wide().eval()
    graph = run_passes(capture(module, torch.randn(2, 3, 8, 8)))[0]
    backend, target = KernelsBackend(), Target(device="cuda", precision=INT8_BF16)
    rows = np.random.default_rng(0).normal(size=(16, 3, 8, 8)).astype(np.float32)
    files = backend.prepare(replace(graph, calibration=Calibration([rows])), target, tmp_path)
    session, held = backend.open(tmp_path, target, files), copy.deepcopy(module).double()
    for batch in (1, 2, 5, 9):
        with torch.no_grad():
            expected = held(torch.from_numpy(rows[:batch]).double()).numpy()
        assert np.abs(session.run([rows[:batch]])[0] - expected).mean() < 0.05 * np.abs(expected).mean()
    assert session.note == ""
