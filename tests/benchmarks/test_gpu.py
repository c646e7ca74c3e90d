"""The GPU script must run on a machine that has torch and little else, so it is run without all the rest."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parent / "gpu.py"
ABSENT = ["onnx", "onnxruntime", "openvino", "onnxscript", "rich", "typer", "fastapi", "PIL", "sklearn", "torchvision", "timm"]
BARE = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({ABSENT!r}))  # None: importing it fails
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(tmp_path, *arguments):
    command = [sys.executable, "-c", BARE, str(SCRIPT), "--out", str(tmp_path / "found" / "gpu.json"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)


def test_it_runs_where_only_torch_is_installed(tmp_path):
    ended = run(
        tmp_path, "--device", "cpu", "--quick", "--only", "resnet50", "--backends", "eager", "onnxruntime",
        "--contenders", "eager fp32", "eager bf16", "plan",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads((tmp_path / "found" / "gpu.json").read_text())
    assert found["versions"]["torch"] == torch.__version__
    checks = {item["what"]: item for item in found["correctness"]}
    assert checks["eager fp32 on a small resnet50"]["status"] == "right"
    assert checks["passes on a small resnet50, float64"]["difference"] < 1e-9
    assert checks["pass fold_batch_norm on a small resnet50"]["was"] == "applied"
    assert "pip install" in checks["onnxruntime fp32 on a small resnet50"]["why"]
    model = found["models"]["resnet50"]
    assert model["eager_top1"] > 0.5  # of twelve classes
    assert {record["status"] for record in model["contenders"].values()} == {"ran"}
    assert model["contenders"]["eager fp32"]["difference"] < 1e-4
    assert model["contenders"]["plan"]["top1_agreement"] > 0.9
    assert set(model["batches"]) == {"1", "3"}
    assert all(item["ms"] > 0 and item["ratio"] > 0 for line in model["batches"].values() for item in line.values())


def test_a_step_for_which_no_time_is_left_is_skipped(tmp_path):
    ended = run(
        tmp_path, "--device", "cpu", "--quick", "--only", "resnet50", "--backends", "--seconds", "0",
        "--contenders", "eager fp32", "plan",
    )  # fmt: skip
    found = json.loads((tmp_path / "found" / "gpu.json").read_text())
    assert found["models"]["resnet50"]["contenders"]["plan"]["status"] == "skipped: no time left"
    assert ended.returncode == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_without_a_gpu_it_says_so(tmp_path):
    ended = run(tmp_path)
    assert ended.returncode == 2
    assert "no CUDA device" in ended.stdout
    assert not (tmp_path / "found").exists()
