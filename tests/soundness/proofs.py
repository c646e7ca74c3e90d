"""Faults in what the migrator recovered and rewrote: the served preprocessing, and the migrated script."""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headrace.migrate.proving.confined_run import Completed, Limits
from headrace.migrate.proving.fit_numbers import Rejected
from headrace.migrate.proving.sandbox import Sandbox
from headrace.migrate.proving.trace_transform import Probe, _prove, write_probes
from headrace.migrate.proving.verify import Recorded, ScriptRun, compare
from headrace.runtime.images.preprocessing import image_to_row
from headrace.specs import CenterCrop, Preprocessing, Resize

from .candidates import Net, net, pictures
from .faults import Fault

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RIGHT = Preprocessing(geometry=(Resize(size=72), CenterCrop(size=(64, 64))), mean=_MEAN, std=_STD)
_FOLDER = tempfile.TemporaryDirectory()


@functools.cache
def _probes() -> list[Probe]:
    """Images that the migrator proves with, and what the right preprocessing makes of them."""
    folder = Path(_FOLDER.name) / "probes"
    folder.mkdir()
    steps = RIGHT.to_json()["steps"]
    probes = [probe for probe in write_probes(folder, 1) if probe.for_proof and probe.mode == "RGB"]
    return [replace(probe, output=image_to_row(probe.path.read_bytes(), steps)) for probe in probes]


def _recovered(change: Callable[[float], Preprocessing]) -> Callable[[float], str | None]:
    def plant(magnitude: float) -> str | None:
        try:
            _prove(change(magnitude), _probes(), "RGB", Sandbox(scratch=Path(_FOLDER.name), limits=Limits(timeout=60)))
        except Rejected as rejected:
            return "fresh images of the proof" if "off by" in str(rejected) else str(rejected)
        return None

    return plant


def _with(**changes: Any) -> Callable[[float], Preprocessing]:
    return lambda _: replace(RIGHT, **changes)


def _steps(*geometry: Any) -> Callable[[float], Preprocessing]:
    return _with(geometry=geometry)


_CROP = CenterCrop(size=(64, 64))


def _right(top1: float, top3: float) -> str:
    return f"accuracy {top1:.4f}, top-3 {top3:.4f}, 10.0 img/s"


def _off(by: float) -> Callable[[float, float], str]:
    return lambda top1, top3: f"accuracy {top1 - by:.4f}, top-3 {top3:.4f}, 9.1 img/s"


def _script(
    model: Net, *, batches: int = 6, shuffled: bool = False, printed: Callable[[float, float], str] = _right
) -> ScriptRun:
    """One run of an evaluation script: what its model was fed and gave, and what it printed."""
    images, classes = pictures(96, seed=9)
    images = images + np.random.default_rng(4).normal(0, 1.5, images.shape).astype(np.float32)  # some are taken for others
    order = np.random.default_rng(3).permutation(96) if shuffled else np.arange(96)
    images, classes = images[order][: 16 * batches], classes[order][: 16 * batches]
    with torch.no_grad():
        rows = torch.from_numpy(images)
        scores = np.concatenate([model(part)["logits"].numpy() for part in rows.split(16)])
    best = np.argsort(-scores, 1)
    top1, top3 = float(np.mean(best[:, 0] == classes)), float(np.mean((best[:, :3] == classes[:, None]).any(1)))
    text = printed(top1, top3)
    done = Completed(argv=("evaluate.py",), exit=0, stdout=text, stderr="", stopped=None, seconds=1.0, isolation={})
    return ScriptRun(done=done, sites={"evaluate.py:7": Recorded(inputs=images, outputs=scores)})


def _migrated(run: Callable[[float], ScriptRun]) -> Callable[[float], str | None]:
    def plant(magnitude: float) -> str | None:
        verdict = compare(_script(net()), run(magnitude))
        if verdict.status == "passed":
            return None
        for text, by in (("printed", "what both scripts print"), ("outputs at", "outputs of the model's calls")):
            if text in (verdict.why or ""):
                return by
        return "data of the model's calls" if "data" in (verdict.why or "") else "the calls that were made"

    return plant


def _changed(change: Callable[[Net, float], Any]) -> Callable[[float], ScriptRun]:
    def run(magnitude: float) -> ScriptRun:
        model = copy.deepcopy(net())
        with torch.no_grad():
            change(model, magnitude)
        return _script(model)

    return run


def faults() -> list[Fault]:
    """Every fault of these stages."""
    resized: list[tuple[str, Callable[[float], Preprocessing], float | None, str]] = [
        ("BGR for RGB", _with(channels="BGR"), None, ""),
        ("bicubic for bilinear", _steps(Resize(size=72, interpolation="bicubic"), _CROP), None, ""),
        ("lanczos for bilinear", _steps(Resize(size=72, interpolation="lanczos"), _CROP), None, ""),
        ("without antialias", _steps(Resize(size=72, library="opencv", antialias=False), _CROP), None, ""),
        ("resized to a pixel more", _steps(Resize(size=73), _CROP), None, ""),
        ("the long side rounded, not cut", _steps(Resize(size=72, long_side="round"), _CROP), None, ""),
        ("the long side resized", _steps(Resize(size=72, side="long"), _CROP), None, ""),
        ("squashed, not cropped", _steps(Resize(size=(64, 64))), None, ""),
        ("crop off by one", _steps(Resize(size=72), CenterCrop(size=(64, 64), offset="floor")), None, ""),
        ("mean and std exchanged", _with(mean=_STD, std=_MEAN), None, ""),
        ("means in the order of BGR", _with(mean=_MEAN[::-1], std=_STD[::-1]), None, ""),
        ("wrong mean", lambda size: replace(RIGHT, mean=(_MEAN[0] + size, *_MEAN[1:])), 0.1, ""),
        ("wrong std", lambda size: replace(RIGHT, std=(_STD[0] + size, *_STD[1:])), 0.1, ""),
        ("1/256 for 1/255", _with(scale=1 / 256), None, ""),
        ("grayscale", _with(mode="L", channels="L", mean=_MEAN[:1], std=_STD[:1]), None, ""),
        ("EXIF heeded where the transform does not", _with(upright=True), None, ""),
    ]
    scripts: list[tuple[str, Callable[[float], ScriptRun], float | None, str]] = [
        ("one metric for the other", lambda _: _script(net(), printed=lambda top1, top3: _right(top3, top1)), None, ""),
        ("a wrong metric beside a time", lambda size: _script(net(), printed=_off(size)), 0.5, "of accuracy"),
        ("a metric that is not printed", lambda _: _script(net(), printed=lambda top1, _: f"accuracy {top1:.4f}"), None, ""),
        ("model in training mode", _changed(lambda model, _: model.train()), None, ""),
        ("last batch dropped", lambda _: _script(net(), batches=5), None, ""),
        ("another checkpoint", _changed(lambda model, size: model.head.weight.mul_(1 + size)), 0.5, "of the head's weights"),
        ("data in another order", lambda _: _script(net(), shuffled=True), None, ""),
        ("a call that is never made", lambda _: replace(_script(net()), sites={}), None, ""),
        ("a bias lost", _changed(lambda model, size: model.head.bias.mul_(1 - size)), 1.0, "of the bias"),
    ]
    return [
        *(Fault(name, "preprocessing", _recovered(change), size, unit) for name, change, size, unit in resized),
        *(Fault(name, "script", _migrated(run), size, unit) for name, run, size, unit in scripts),
    ]
