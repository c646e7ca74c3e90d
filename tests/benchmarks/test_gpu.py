"""The GPU script must run on a machine that has torch and little else, so it is run without all the rest."""

import argparse
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import pytest
import torch

from headrace.kernels import _launch

HERE = Path(__file__).parent
SCRIPT = HERE / "gpu"
ABSENT = ["onnx", "onnxruntime", "openvino", "onnxscript", "rich", "typer", "fastapi", "PIL", "sklearn", "torchvision", "timm"]
BARE = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({ABSENT!r}))  # None: importing it fails
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# Torch's threads of several tests at once would wait for each other.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def run(tmp_path, *arguments, code=BARE, **environment):
    command = [sys.executable, *(["-c", code] if code else []), str(SCRIPT), "--out", str(tmp_path / "found" / "gpu.json")]
    return subprocess.run(
        [*command, *arguments],
        capture_output=True, text=True, cwd=tmp_path, check=False, env={**ENVIRONMENT, **environment},
    )  # fmt: skip


def found(tmp_path):
    return json.loads((tmp_path / "found" / "gpu.json").read_text())


@pytest.fixture
def gpu(monkeypatch):
    """The script's modules, as it imports them itself."""
    monkeypatch.syspath_prepend(str(HERE))
    import gpu.bench
    import gpu.cases
    import gpu.kernels
    import gpu.packages

    return gpu


def bench_of(gpu, tmp_path, sections, **given):
    arguments = argparse.Namespace(
        device="cpu",
        quick=True,
        batches=None,
        seconds=60.0,
        operators=None,
        backends=[],
        contenders=[],
        out=tmp_path / "a.json",
        continued=None,
        compiled=None,
    )
    vars(arguments).update(given)
    return gpu.bench.Bench(arguments, tmp_path, sections)


@pytest.mark.slow
def test_it_runs_where_only_torch_is_installed(tmp_path):
    ended = run(
        tmp_path, "--device", "cpu", "--quick", "--only", "resnet50", "--backends", "eager", "onnxruntime",
        "--sections", "resnet50", "served", "decoding", "correctness", "sanitizer", "--contenders", "eager fp32", "plan",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    whole = found(tmp_path)
    assert whole["versions"]["torch"] == torch.__version__
    assert {"fastapi", "rich", "pillow"} <= set(whole["lacking"])
    assert {item["status"] for item in whole["sections"].values()} == {"ran"}
    assert "Pillow" in whole["served"]["status"]
    assert "Pillow" in whole["decoding"]["status"]
    assert whole["sanitizer"]["status"].startswith(("absent", "skipped"))
    checks = {item["what"]: item for item in whole["correctness"]}
    assert checks["eager fp32 on a small resnet50"]["status"] == "right"
    assert checks["passes on a small resnet50, float64"]["difference"] < 1e-9
    assert checks["pass fold_batch_norm on a small resnet50"]["was"] == "applied"
    assert "pip install" in checks["onnxruntime fp32 on a small resnet50"]["why"]
    model = whole["models"]["resnet50"]
    assert model["eager_top1"] > 0.5  # of twelve classes
    assert model["operations_per_image"] > 1e5
    assert {record["status"] for record in model["contenders"].values()} == {"ran"}
    assert model["contenders"]["eager fp32"]["difference"] < 1e-4
    assert model["contenders"]["plan"]["top1_agreement"] > 0.9
    assert set(model["batches"]) == {"1", "3"}
    assert all(item["ms"] > 0 and item["ratio"] > 0 for line in model["batches"].values() for item in line.values())
    assert "images/s in batches of" in whole["summary"]["resnet50, plan"]
    best = model["best"]["plan"]
    assert best["images_per_second"] == max(line["plan"]["images_per_second"] for line in model["batches"].values())


@pytest.mark.slow  # the kernels in the interpreter: tests/kernels/test_interpreted
@pytest.mark.skipif(_launch.triton is None, reason="needs Triton: pip install triton")
def test_kernels_are_held_to_float64_and_to_the_roofline(tmp_path):
    """In Triton's interpreter; what is slow in it is left to `make test-all`."""
    operators = ["add_relu", "add_relu_quantize", "quantize", "dequantize", "bias_gelu", "layer_norm", "add_layer_norm"]
    ended = run(
        tmp_path, "--device", "cpu", "--quick", "--sections", "roofline", "kernels", "--operators", *operators,
        TRITON_INTERPRET="1",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    whole = found(tmp_path)
    roof = whole["roofline"]
    assert roof["copy_bytes_per_second"] > 1e8
    assert {"fp32", "bf16", "int8"} <= set(roof["operations_per_second"])
    assert "NVIDIA" in next(item["why"] for item in roof["products"] if item["precision"] == "tf32")
    assert whole["summary"]["kernels that reach their target"] == "0 of 0"
    kernels = whole["kernels"]
    assert kernels["runs"] == "Triton's interpreter"
    assert kernels["without a case"] == []
    assert {line["operator"] for line in kernels["cases"]} == set(operators)
    for line in kernels["cases"]:
        assert line["status"] == "right", line
        assert line["us"] > 0
        assert line["peer_us"] > 0
        assert 0 < line["share_of_roofline"] < 1
        assert line["reached"] is None  # a trial is not judged


@pytest.mark.slow
@pytest.mark.skipif(_launch.triton is None, reason="needs Triton: pip install triton")
def test_every_kernel_is_right(tmp_path):
    ended = run(tmp_path, "--device", "cpu", "--quick", "--sections", "kernels", TRITON_INTERPRET="1")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    operators = {line["operator"] for line in found(tmp_path)["kernels"]["cases"]}
    assert {"conv2d", "conv2d_int8", "preprocess", "softmax_topk"} <= operators


@pytest.mark.slow
def test_services_are_compared(tmp_path):
    ended = run(tmp_path, "--device", "cpu", "--quick", "--sections", "served", code=None)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    served = found(tmp_path)["served"]
    assert served["rows"] == "uint8 pixels"
    assert served["in_process"]["top1_agreement"] > 0.9
    assert served["in_process"]["images_per_second"] > 0
    http = served["http"]
    assert {record["status"] for record in http["services"].values()} == {"ran"}
    assert {"baseline", "headrace"} <= set(http["concurrency"]["4"])
    assert http["ratio"] > 0
    assert http["services"]["headrace-exact"]["top1_agreement"] > 0.9


@pytest.mark.slow  # each decoder against Pillow: runtime/images/test_jpeg_decoders; that the script runs: below
def test_decoders_are_compared(tmp_path):
    """On the CPU, by the libraries' own CPU decoders where they are installed."""
    ended = run(tmp_path, "--device", "cpu", "--quick", "--sections", "decoding", code=None)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    decoding = found(tmp_path)["decoding"]
    assert decoding["cpu"]["images_per_second"] > 0
    assert decoding["cpu"]["rows"]["greatest"] <= 2
    assert set(decoding["gpu"]) == {"nvImageCodec", "torchvision"}
    ran = {library: record for library, record in decoding["gpu"].items() if record["status"] == "ran"}
    assert decoding["status"] == "ran" if ran else decoding["status"].startswith("no library here decodes JPEGs on the GPU")
    for library, record in decoding["gpu"].items():
        assert library in ran or record["status"].startswith(f"absent: {library}: ")
    for library, record in ran.items():
        assert set(record["batches"]) == {"1", "8"}
        assert min(*record["batches"].values(), record["by_threads"], record["ratio"]) > 0
        assert record["decoded"]["greatest"] <= 1
        assert record["rows"]["greatest"] <= 2
        assert f"decoding, {library} over the CPU pool" in found(tmp_path)["summary"]
    assert "decoding, the CPU pool" in found(tmp_path)["summary"]


def test_a_step_for_which_no_time_is_left_is_skipped(gpu, tmp_path):
    bench = bench_of(gpu, tmp_path, ["roofline", "kernels", "served"], seconds=0.0)
    assert bench.run() == 0
    assert [item["status"] for item in bench.found["sections"].values()] == ["skipped: no time left"] * 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_without_a_gpu_it_says_so(tmp_path):
    ended = run(tmp_path)
    assert ended.returncode == 2
    assert "no CUDA device" in ended.stdout
    assert not (tmp_path / "found").exists()


def test_a_section_that_fails_is_a_failure_of_its_own(gpu, tmp_path, monkeypatch, capsys):
    def breaks(bench, name):
        bench.found[name]["begun"] = True
        raise RuntimeError("CUDA error: an illegal memory access\nand more")

    monkeypatch.setitem(sys.modules, "gpu.roofline", types.SimpleNamespace(section=breaks))
    bench = bench_of(gpu, tmp_path, ["roofline", "sanitizer"])
    assert bench.run() == 1
    whole = json.loads((tmp_path / "a.json").read_text())
    assert whole["sections"]["roofline"]["status"] == "failed: RuntimeError: CUDA error: an illegal memory access and more"
    assert "in breaks" in whole["sections"]["roofline"]["traceback"]
    assert whole["roofline"] == {"begun": True}  # what was known is kept
    assert whole["sections"]["sanitizer"]["status"] == "ran"
    assert len(whole["failures"]) == 1
    assert "FAILED" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json"]


def test_where_the_gpu_is_lost_a_new_process_goes_on(gpu, tmp_path, monkeypatch):
    def breaks(bench, name):
        bench.found[name]["cases"] = [{"operator": "add_relu", "shape": "any", "status": "failed: illegal access"}]
        bench.failed("kernel add_relu")

    monkeypatch.setitem(sys.modules, "gpu.kernels", types.SimpleNamespace(section=breaks))
    monkeypatch.setattr(gpu.bench, "lost", lambda device: True)
    assert bench_of(gpu, tmp_path, ["kernels", "sanitizer"], operators=["bias_gelu"]).run() == 1
    whole = json.loads((tmp_path / "a.json").read_text())
    assert whole["failures"] == ["kernel add_relu"]
    assert {name: item["status"] for name, item in whole["sections"].items()} == {"kernels": "ran", "sanitizer": "ran"}
    lines = [(line["operator"], line["status"]) for line in whole["kernels"]["cases"]]
    assert lines[0] == ("add_relu", "failed: illegal access")
    assert set(lines[1:]) == {("bias_gelu", "right")}


def test_sigterm_leaves_what_is_known(gpu, tmp_path, monkeypatch):
    ended = types.SimpleNamespace(section=lambda bench, name: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setitem(sys.modules, "gpu.served", ended)
    with pytest.raises(SystemExit):
        bench_of(gpu, tmp_path, ["served", "sanitizer"]).run()
    whole = json.loads((tmp_path / "a.json").read_text())
    assert whole["sections"]["served"]["status"] == "ended from outside"
    assert "sanitizer" not in whole["sections"]


def test_a_section_may_use_what_others_left(gpu, tmp_path, monkeypatch):
    given = []
    quick = types.SimpleNamespace(section=lambda bench, name: given.append(bench.here))
    monkeypatch.setitem(sys.modules, "gpu.kernels", quick)
    monkeypatch.setitem(sys.modules, "gpu.sanitizer", quick)
    assert bench_of(gpu, tmp_path, ["kernels", "sanitizer"]).run() == 0
    assert given[0] == pytest.approx(60 * 12 / 15, abs=2)
    assert given[1] == pytest.approx(60, abs=2)


def test_a_wrong_kernel_is_a_failure(gpu, tmp_path, monkeypatch):
    from headrace import kernels

    run_of = kernels.discover()["add_relu"].operators["add_relu"]
    off = types.SimpleNamespace(
        run=lambda a, b: run_of.run(a, b) * 1.02, reference=run_of.reference, bytes_moved=run_of.bytes_moved
    )
    monkeypatch.setattr(kernels, "discover", lambda: {"add_relu": types.SimpleNamespace(operators={"add_relu": off})})
    bench = bench_of(gpu, tmp_path, ["kernels"], operators=["add_relu"])
    assert bench.run() == 1
    (line,) = bench.found["kernels"]["cases"]
    assert line["status"] == "wrong"
    assert line["errors"][0]["share_beyond"] > 0.1
    assert "kernel add_relu" in bench.failures[0]


@pytest.mark.parametrize(
    ("us", "operations", "reached"), [(10.0, 0, True), (14.0, 0, False), (10.0, 100, True), (14.0, 100, False), (0.1, 0, None)]
)
def test_targets(gpu, tmp_path, us, operations, reached):
    """80 % of 1 TB/s for what moves memory, 70 % of the peer for convolutions; none for what is over at once."""
    bench = bench_of(gpu, tmp_path, ["kernels"], quick=False)
    bench.device = "cuda"
    bench.found["roofline"] = {"copy_bytes_per_second": 1e12, "operations_per_second": {"bf16": 1e14}}
    case = types.SimpleNamespace(operations=operations, precision="bf16")
    line = {"bytes": 1e6 if us < 1 else 9e6, "times_as_fast": 8.0 / us}
    gpu.kernels._judge(bench, case, line, us / 1e6)
    assert line["reached"] is reached
    assert line["share_of_roofline"] == pytest.approx(line["bytes"] / 1e6 / us)


def test_wheels_are_unpacked(gpu, tmp_path):
    with zipfile.ZipFile(tmp_path / "one-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("one/__init__.py", "")
    into = gpu.packages.unpacked(tmp_path, tmp_path / "into")
    assert (into / "one" / "__init__.py").exists()
    assert gpu.packages.unpacked(into, tmp_path / "unused") == into
    assert gpu.packages.lacking({"headrace": "headrace", "nowhere.at_all": "nowhere"}) == ["nowhere"]


def test_what_serving_needs_is_found_with_what_that_needs(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE / "gpu"))
    wheels = importlib.import_module("wheels")
    found = dict(wheels.needed(["fastapi", "Pillow", "no-such-package"]))
    assert {"fastapi", "starlette", "pydantic", "pydantic-core"} <= set(found)
    assert not {"pillow", "numpy", "no-such-package"} & set(found)
    assert found["fastapi"] == importlib.metadata.version("fastapi")
