"""A user's model run by other frameworks, each as its own documentation shows it, in the PyTorch service of `headrace bench`.

python -P frameworks.py FRAMEWORK C,H,W SETTINGS.json READY.json     (see headrace.serving.bench.baseline)
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from headrace.serving.bench.baseline import main

__all__ = ["FRAMEWORKS", "by_hand"]

# What can serve the original model by hand, beside eager PyTorch.
FRAMEWORKS = ("torch-compile", "onnxruntime", "openvino")


def by_hand(model: torch.nn.Module, framework: str, row: Sequence[int], device: str) -> Callable[[torch.Tensor], Any]:
    """The model as a function of a batch [n, *row] of float32 on the device: "eager", "torch-compile", "onnxruntime" or
    "openvino". It has been called once, so that what compiles at the first call has compiled."""
    model = model.eval().to(device)
    example = torch.zeros(1, *row, device=device)
    run = {"eager": _eager, "torch-compile": _compiled, "onnxruntime": _onnxruntime, "openvino": _openvino}[framework](
        model, example
    )
    with torch.no_grad():
        run(example)
    return run


def _eager(model: torch.nn.Module, example: torch.Tensor) -> Callable[[torch.Tensor], Any]:
    return model


def _compiled(model: torch.nn.Module, example: torch.Tensor) -> Callable[[torch.Tensor], Any]:
    """https://docs.pytorch.org/tutorials/intermediate/torch_compile_tutorial.html"""
    compiled: Callable[[torch.Tensor], Any] = torch.compile(model)
    return compiled


def _onnxruntime(model: torch.nn.Module, example: torch.Tensor) -> Callable[[torch.Tensor], Any]:
    """https://docs.pytorch.org/tutorials/beginner/onnx/export_simple_model_to_onnx_tutorial.html"""
    import onnxruntime

    with tempfile.TemporaryDirectory(prefix="headrace-") as scratch:
        path = Path(scratch) / "model.onnx"
        program = torch.onnx.export(model, (example,), dynamo=True, verbose=False)
        assert program is not None, "given for dynamo=True"
        program.save(str(path))
        session = onnxruntime.InferenceSession(str(path), providers=onnxruntime.get_available_providers())
    name = session.get_inputs()[0].name
    return lambda batch: torch.from_numpy(session.run(None, {name: batch.numpy(force=True)})[0])


def _openvino(model: torch.nn.Module, example: torch.Tensor) -> Callable[[torch.Tensor], Any]:
    """https://docs.openvino.ai/2025/openvino-workflow/model-preparation/convert-model-pytorch.html"""
    import openvino

    converted = openvino.convert_model(model, example_input=example.cpu())
    compiled = openvino.compile_model(converted, "CPU")
    return lambda batch: torch.from_numpy(compiled(batch.numpy(force=True))[0])


if __name__ == "__main__":
    framework, row, *files = sys.argv[1:]
    sizes = [int(side) for side in row.split(",")]
    sys.exit(main(files, lambda model, device: by_hand(model, framework, sizes, device)))
