"""Builds models from recipes on standard input, each in a child that starts with torch imported, and tells their classes."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import torch

from headrace.errors import SandboxError
from headrace.migrate.worker.recipe import Recipe, build_model


def answer(work: dict) -> dict:
    try:
        model = build_model(Recipe.from_json(work["recipe"]))
        with torch.no_grad():
            output = model(torch.rand(2, *work["input"]))
    except SandboxError as error:
        return {"name": work["name"], "error": str(error)}
    logits = output[0] if isinstance(output, tuple) else output
    return {"name": work["name"], "classes": logits.shape[1]}


def import_torchvision() -> None:
    """Import it once for all children, and so that it works beside a CPU build of torch too."""
    support = Path(__file__).parents[1] / "zoo/torchvision_support.py"
    spec = importlib.util.spec_from_file_location("torchvision_support", support)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.torchvision()


if __name__ == "__main__":
    if importlib.util.find_spec("torchvision") is not None:
        import_torchvision()
    sys.stdout, answers = sys.stderr, sys.stdout  # the user's own prints are none of ours
    for item in json.load(sys.stdin):
        child = os.fork()
        if child == 0:
            print(json.dumps(answer(item)), file=answers, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
