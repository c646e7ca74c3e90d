"""The services of a benchmark: the original repository's behind plain PyTorch, the peers', and Headrace's own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ...runtime.artifact.artifact import Artifact
from .config import BenchConfig
from .servers import Service
from .subject import headrace_service

__all__ = ["BASELINE", "make_services"]

BASELINE = "baseline"


def make_services(config: BenchConfig, name: str, artifact: Artifact, folder: Path, device: str) -> list[Service]:
    """In the order in which they are measured first. `folder` takes the files by which the baseline is told what to serve."""
    path = f"/v1/classify/{name}?k={config.k}"
    own = config.services
    if own is None:
        own_path = path if config.protocol == "http" else f"/{name}_classify?k={config.k}"
        own = (headrace_service(config.models, own_path, protocol=config.protocol),)
    if config.baseline is None:
        return [*config.peers, *own]
    recipe, preprocessing = folder / "recipe.json", folder / "preprocessing.json"
    recipe.write_text(json.dumps(dict(config.baseline)))
    steps = config.preprocessing or artifact.preprocessing
    assert steps is not None, "checked before"
    preprocessing.write_text(json.dumps(steps.to_json()))
    naive = [
        sys.executable,
        "-m",
        "headrace.serving.bench.baseline",
        "--recipe",
        str(recipe),
        "--preprocessing",
        str(preprocessing),
    ]
    naive += ["--name", name, "--port", "0", "--ready-file", "{ready}", "--device", device]
    if artifact.labels is not None:
        labels = folder / "labels.txt"
        labels.write_text("".join(f"{label}\n" for label in artifact.labels.names))
        naive += ["--labels", str(labels)]
    if artifact.probabilities:
        naive += ["--probabilities"]
    row = ",".join(map(str, artifact.signature.inputs[0].row_shape))
    by_hand = [
        Service(name=framework, command=(*naive, "--framework", framework, "--input", row), path=path)
        for framework in config.frameworks
    ]
    return [Service(name=BASELINE, command=tuple(naive), path=path), *by_hand, *config.peers, *own]
