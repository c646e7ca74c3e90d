"""Faults in what lies on disk: the cache of plans, plans from other machines, packaged models."""

from __future__ import annotations

import copy
import functools
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.errors import ArtifactError, DigestError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.manifest import read_manifest, write_manifest
from headrace.runtime.capture.capture import capture
from headrace.runtime.tuning import cache

from .candidates import images, net
from .faults import Fault

CONFIG = GraphConfig(backend="onnxruntime", buckets=(1,), threads=1, max_tuning_seconds=0.05)


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def _answer(model: nn.Module) -> tuple[bool, list[str]]:
    """Whether a graph that may take its plan from the cache answers right, and what was warned of."""
    seen, log = _Warnings(), logging.getLogger("headrace")
    log.addHandler(seen)
    try:
        given = headrace.compile(model, config=CONFIG)(torch.from_numpy(images()[:5]))["logits"]
    finally:
        log.removeHandler(seen)
    with torch.no_grad():
        wanted = model(torch.from_numpy(images()[:5]))["logits"]
    return bool((given - wanted).abs().max() <= 1e-4 * wanted.abs().max()), seen.said


def _cached(harm: Callable[[Path, float], nn.Module | None]) -> Callable[[float], str | None]:
    """`harm(entry, magnitude)` changes the entry that the network left, and may give the one that is compiled then."""

    def plant(magnitude: float) -> str | None:
        with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {"HEADRACE_CACHE": folder}):
            _answer(net())
            (entry,) = (Path(folder) / "plans").iterdir()
            right, said = _answer(harm(entry, magnitude) or net())
            if not said:
                return None
            assert right, "it was noticed, and the answer is wrong all the same"
            for text, by in (("not this model's", "comparison with eager before the first use"), ("cannot be used", "digests")):
                if text in said[0]:
                    return by
            return said[0]

    return plant


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def _flipped(entry: Path, _: float) -> None:
    _flip(entry / "model.onnx")


def _truncated(entry: Path, _: float) -> None:
    (entry / "model.onnx").write_bytes((entry / "model.onnx").read_bytes()[:-100])


def _other_backend(entry: Path, _: float) -> None:
    path = entry / "headrace.json"
    path.write_text(path.read_text().replace("onnxruntime", "openvino"))


def _of_another_model(entry: Path, magnitude: float) -> nn.Module:
    """What a key that forgets something would give: the plan and files of a network whose weights are others."""
    other = copy.deepcopy(net())
    with torch.no_grad():
        other.head.weight *= 1 + magnitude
    key = cache.cache_key(_captured(other), replace(CONFIG, max_tuning_seconds=min(8.0, 0.05)))
    entry.rename(entry.with_name(key))
    return other


def _captured(model: nn.Module) -> Any:
    rows = torch.from_numpy(images()[:5])
    graph = headrace.compile(model, config=CONFIG)
    return graph._compiler().capture(_computation(graph), [rows])


def _computation(graph: Any) -> Any:
    from headrace.runtime.graph.compiler import Computation
    from headrace.runtime.graph.watch import distinct_modules

    return Computation(graph.build, distinct_modules(vars(graph)), title=graph._title(), described=graph._described())


class _Block(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return x * self.factor


def _one_key(make: Callable[[float], str]) -> Callable[[float], str | None]:
    """Two things that differ must not have one key; `make(0)` gives the key of one, `make(magnitude)` of the other."""
    return lambda magnitude: "the cache's key" if make(0.0) != make(magnitude) else None


def _key(model: nn.Module, **config: Any) -> str:
    return cache.cache_key(capture(model, torch.from_numpy(images()[:2])), replace(CONFIG, **config))


def _key_of_weights(magnitude: float) -> str:
    model = copy.deepcopy(net())
    with torch.no_grad():
        model.head.weight[0, 0] += magnitude
    return _key(model)


def _key_of_code(magnitude: float) -> str:
    with patch.object(cache, "source_digest", lambda: str(magnitude)):
        return _key(net())


@functools.cache
def package(buckets: tuple[int, ...] = (1,)) -> Path:
    """A packaged network, in a folder that ends with the process."""
    folder = tempfile.TemporaryDirectory()
    _KEPT.append(folder)
    graph = headrace.compile(net(), torch.from_numpy(images()[:2]), config=replace(CONFIG, buckets=buckets))
    return graph.save(Path(folder.name) / "models" / "net", labels=[f"class {index}" for index in range(10)])


_KEPT: list[Any] = []


def _packaged(harm: Callable[[Path], None]) -> Callable[[float], str | None]:
    def plant(_: float) -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            copied = Path(shutil.copytree(package(), Path(folder) / "models" / "net"))
            harm(copied)
            (found,) = copied.parent.iterdir()
            try:
                plan = load_artifact(found, trusted=True).plan_here()
            except DigestError:
                return "digests"
            except ArtifactError as error:
                return "check of config.pbtxt" if "config.pbtxt" in str(error) else "check of the manifest at load"
            if not plan.portable:
                return None
            return "the fingerprint" if "measured elsewhere" in plan.reason else "asking the backend"

    return plant


def _forged(**changes: Any) -> Callable[[Path], None]:
    """Change what the first plan of the manifest says, with digests that fit: not damage, but another machine's."""

    def harm(folder: Path) -> None:
        content, _ = read_manifest(folder / "1")
        plan = json.loads(json.dumps(content["plans"][0]))
        for path, value in changes.items():
            *place, last = path.split("__")
            inner = plan
            for part in place:
                inner = inner[part]
            inner[last] = value
        write_manifest(folder / "1", {**content, "plans": [plan]})

    return harm


def _edited(name: str, old: str, new: str) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return harm


def _in_manifest(**changes: Any) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        content, _ = read_manifest(folder / "1")
        write_manifest(folder / "1", {**content, **changes})

    return harm


def _without_labels_digest(folder: Path) -> None:
    (folder / "labels.txt").write_text("\n".join(f"other {index}" for index in range(10)) + "\n")


def faults() -> list[Fault]:
    """Every fault of these stages."""
    cached: list[tuple[str, Callable[[float], str | None], float | None, str]] = [
        ("a bit flipped in a file", _cached(_flipped), None, ""),
        ("a file cut short", _cached(_truncated), None, ""),
        ("a file gone", _cached(lambda entry, _: (entry / "model.onnx").unlink()), None, ""),
        ("a plan that was edited", _cached(_other_backend), None, ""),
        ("another model's plan under this one's key", _cached(_of_another_model), 1.0, "of the head's weights"),
        ("programs that differ inside of a block", _one_key(lambda size: _key(nn.Sequential(_Block(2 + size)))), None, ""),
        ("one weight differs", _one_key(_key_of_weights), None, ""),
        ("another tolerance", _one_key(lambda size: _key(net(), tolerance=1e-3 + 1e-6 * size)), None, ""),
        ("another thread count", _one_key(lambda size: _key(net(), threads=1 + int(size))), None, ""),
        ("other code of Headrace's", _one_key(_key_of_code), None, ""),
    ]
    plans = [
        ("another processor", _forged(fingerprint__cpu="Another Processor 9000")),
        ("other instruction sets", _forged(fingerprint__flags=["avx2"])),
        ("another number of cores", _forged(fingerprint__cores=4096)),
        ("another version of its library", _forged(fingerprint__versions__onnxruntime="1.0.0")),
        ("its library not installed there", _forged(fingerprint__versions__onnxruntime=None)),
        ("another version of Headrace", _forged(fingerprint__headrace="0.0.1")),
        ("for a GPU that its library cannot use here", _forged(device="cuda", fingerprint__gpus=[])),
        ("a backend that this version does not have", _forged(choices__1__backend="abacus")),
        ("a precision that the backend does not have", _forged(choices__1__precision="bf16")),
    ]
    packaged: list[tuple[str, Callable[[Path], None]]] = [
        ("a bit flipped in the graph", lambda folder: _flip(folder / "1" / "model.onnx")),
        ("a bit flipped in the labels", lambda folder: _flip(folder / "labels.txt")),
        ("a bit flipped in the manifest", lambda folder: _flip(folder / "1" / "headrace.json")),
        ("the graph cut short", lambda folder: os.truncate(folder / "1" / "model.onnx", 1000)),
        ("the graph gone", lambda folder: (folder / "1" / "model.onnx").unlink()),
        ("other labels", _without_labels_digest),
        ("an input of another name", _edited("config.pbtxt", '"images"', '"pictures"')),
        ("an output of other dimensions", _edited("config.pbtxt", "dims: 10", "dims: 11")),
        ("an output of another type", _edited("config.pbtxt", "TYPE_FP32", "TYPE_FP16")),
        ("under another name", lambda folder: folder.rename(folder.with_name("other"))),
        ("a format of the future", _in_manifest(format=99)),
        ("a plan that opens a file that is not its own", _forged(choices__1__files=["../../secret.onnx"])),
        ("a version that is a link", lambda folder: (folder / "2").symlink_to(folder / "1")),
    ]
    return [
        *(Fault(name, "cache", plant, size, unit) for name, plant, size, unit in cached),
        *(Fault(name, "plan", _packaged(harm)) for name, harm in plans),
        *(Fault(name, "artifact", _packaged(harm)) for name, harm in packaged),
    ]
