"""A packaged model against one that a person built from the same repository: the same weights, the same outputs?

    python tests/open_cases/by_hand.py make ROOT NAME FOLDER [--which N]
    python tests/open_cases/by_hand.py check PACKAGE FOLDER

`by_hand.json` holds, by repository, the few lines of Python that a reader of it would write: `model`, and where they can be
stated `transform` (a PIL RGB image to a tensor) and `labels`. `make` executes them in a copy of the repository, OUTSIDE of the
sandbox (the commits are frozen and were read), draws weights that no other model has, and leaves in FOLDER `weights.pth`, rows
with their outputs in float64, and images with their tensors; it knows nothing of Headrace. `check` opens the package and says
in JSON whether it agrees. An entry's "own" says that the repository brings its weights; "absent" names libraries that neither
model nor transform calls, so that stand-ins do.
"""

from __future__ import annotations

import argparse
import copy
import importlib.abc
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import types
from itertools import zip_longest
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
from PIL import Image
from torch import nn

HERE = Path(__file__).parent
SIZES = ((257, 257), (301, 333), (47, 61))  # height, width; and the row's own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("make")
    one.add_argument("root", type=Path)
    one.add_argument("name")
    one.add_argument("folder", type=Path)
    one.add_argument("--which", type=int, default=0, help="which of several right answers")
    two = commands.add_parser("check")
    two.add_argument("package", type=Path)
    two.add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.command == "check":
        print(json.dumps(check(given.package, given.folder)))
    else:
        make(given.root, alternatives(given.name)[given.which], given.folder.absolute())


def alternatives(name: str) -> list[dict[str, Any]]:
    """The right answers for a repository, none where nobody can say what one would be."""
    entry = json.loads((HERE / "by_hand.json").read_text(encoding="utf-8")).get(name, {})
    return list(entry.get("any", [entry] if "code" in entry else []))


def why_none(name: str) -> str:
    entry = json.loads((HERE / "by_hand.json").read_text(encoding="utf-8")).get(name, {})
    return str(entry.get("none", "not written by hand"))


def make(root: Path, entry: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="by-hand-", ignore_cleanup_errors=True) as scratch:
        shutil.copytree(root, f"{scratch}/copy", symlinks=True, ignore=shutil.ignore_patterns(".git"))
        os.chdir(f"{scratch}/copy")
        sys.path[0] = os.getcwd()  # in place of this script's folder, whose modules are none of the repository's
        sys.argv = ["by_hand"]
        sys.dont_write_bytecode = True
        sys.meta_path.append(StandIns(entry.get("absent", [])))
        torch.manual_seed(0)
        built: dict[str, Any] = {"__name__": "by_hand"}
        exec(entry["code"], built)
        model: nn.Module = built["model"].eval()
        if not entry.get("own"):
            randomize(model, torch.randn(8, *entry["row"]))
            torch.save(model.state_dict(), folder / "weights.pth")
        rows = torch.randn(5, *entry["row"])
        with torch.no_grad():
            scores = _primary(copy.deepcopy(model).double()(rows.double()))
        kept: dict[str, Any] = {"rows": rows.numpy(), "scores": scores.numpy()}
        if "transform" in built:
            kept |= images(built["transform"], tuple(entry["row"]), folder)
    np.savez(folder / "reference.npz", **kept)
    (folder / "labels.json").write_text(json.dumps(built.get("labels")), encoding="utf-8")
    spread = float(np.ptp(kept["scores"], axis=0).max())
    largest = float(np.abs(kept["scores"]).max())
    compared = sum(name.startswith("tensor") for name in kept)
    print(json.dumps({"scores": list(scores.shape), "largest": largest, "spread": spread, "images": compared}))
    if not spread > 0.01 * largest:
        raise SystemExit("the five rows' outputs are too alike to tell one model from another")


def randomize(model: nn.Module, batch: torch.Tensor) -> None:
    """Weights near what was drawn, so that a deep network stands them, yet none that two models share by chance: what an
    initializer leaves constant (zero heads, unit norms, closed branches) is drawn, and batch-norm statistics are measured."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            constant = bool((value == value.flatten()[0]).all())
            if not constant:
                value.mul_(1 + 0.1 * torch.randn_like(value))
            elif value.dim() > 1:
                value.copy_(torch.randn_like(value) / max(1, value[0].numel()) ** 0.5)
            elif name.endswith("weight"):
                value.copy_(max(float(value.flatten()[0]), 0.2) * (0.75 + 0.5 * torch.rand_like(value)))
            else:
                value.add_(0.1 * torch.randn_like(value))
        norms = [module for module in model.modules() if isinstance(getattr(module, "running_mean", None), torch.Tensor)]
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.momentum = 1.0
            norm.train()
        model(batch)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
            norm.eval()
            deviation = norm.running_var.clamp(min=1e-3).sqrt()
            norm.running_mean.add_(0.1 * deviation * torch.randn_like(deviation))
            norm.running_var.copy_((deviation * (0.9 + 0.2 * torch.rand_like(deviation))) ** 2)


def images(transform: Any, row: tuple[int, ...], folder: Path) -> dict[str, Any]:
    """Images and the tensors made of them. Where the transform keeps an image's size, only one of the row's size counts."""
    found: dict[str, Any] = {}
    ends = [torch.as_tensor(transform(Image.new("RGB", row[:0:-1], (grey,) * 3))).double() for grey in (0, 255)]
    found["level"] = ((ends[1] - ends[0]).abs().amax(dim=(1, 2)) / 255).numpy()  # one grey level, as every channel counts it
    random = np.random.default_rng(0)
    for index, (height, width) in enumerate((row[1:], *SIZES)):
        coarse = random.integers(0, 256, (height // 6 + 2, width // 6 + 2, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        for mode in ("RGB", "L"):
            tensor = torch.as_tensor(transform(smooth.convert(mode).convert("RGB")))
            if tuple(tensor.shape) == row:
                smooth.convert(mode).save(folder / f"{index}-{mode}.png")
                found[f"tensor-{index}-{mode}"] = tensor.numpy()
    return found


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules for libraries that are not installed; an installed one is itself, with what it finds in its own way."""

    def __init__(self, names: list[str]) -> None:
        self.names = [name for name in names if importlib.util.find_spec(name) is None]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] in self.names:
            return importlib.util.spec_from_loader(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: MagicMock(name=name)  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to execute."""


def check(package: Path, folder: Path) -> dict[str, str]:
    """What of the package agrees with what `make` left: "same", "differs: ..." or "not checked: ..." for each part."""
    from headrace.runtime.graph.loaded import load

    graph = load(package)
    artifact = graph.artifact
    kept = np.load(folder / "reference.npz")
    said = {"outputs": _outputs(graph, kept), "preprocessing": "not checked: not stated", "labels": "not checked: not stated"}
    labels = json.loads((folder / "labels.json").read_text(encoding="utf-8"))
    if labels is not None:
        ours = [] if artifact.labels is None else list(artifact.labels.names)
        wrong = next((pair for pair in zip(ours, labels, strict=False) if pair[0] != pair[1]), (len(ours), len(labels)))
        said["labels"] = (
            "same" if ours == labels else f"differs: {wrong[0]!r}, by hand {wrong[1]!r}" if ours else "none packaged"
        )
    if "level" in kept:
        steps = None if artifact.preprocessing is None else artifact.preprocessing.to_json()["steps"]
        said["preprocessing"] = "none packaged" if steps is None else _preprocessing(steps, kept, folder)
    return said


def _outputs(graph: Any, kept: Any) -> str:
    rows, scores = kept["rows"], kept["scores"]
    takes = [spec.shape[1:] for spec in graph.signature.inputs]
    if len(takes) != 1 or any(
        isinstance(pair[0], int) and pair[0] != pair[1] for pair in zip_longest(takes[0], rows.shape[1:])
    ):
        return f"differs: takes {takes}, by hand {rows.shape[1:]}"
    ours = _primary(graph(torch.from_numpy(rows))).double().numpy()
    if ours.shape != scores.shape:
        return f"differs: outputs {list(ours.shape)}, by hand {list(scores.shape)}"
    largest, error = float(np.abs(scores).max()), float(np.abs(ours - scores).max())
    stated = graph.artifact.parity.get("tolerance") or 0.0
    agrees = error <= max(1e-3 * largest, min(stated, 1e-2 * largest))  # a tolerance that would hide a difference is no excuse
    return f"{'same' if agrees else 'differs'}: max error {error:.1e} of {largest:.3g}"


def _preprocessing(steps: Any, kept: Any, folder: Path) -> str:
    from headrace.runtime.images.preprocessing import image_to_row

    worst = 0.0
    names = [name for name in kept if name.startswith("tensor-")]
    if not names:
        return "not checked: no image becomes a row"
    for name in names:
        ours = image_to_row((folder / f"{name.removeprefix('tensor-')}.png").read_bytes(), steps)
        if ours.shape != kept[name].shape:
            return f"differs: {name} becomes {list(ours.shape)}, by hand {list(kept[name].shape)}"
        worst = max(worst, float((np.abs(ours - kept[name]) / kept["level"][:, None, None]).max()))
    return f"{'same' if worst <= 2 else 'differs'}: {worst:.2g} of 255 levels at most, {len(names)} images"


def _primary(output: Any) -> torch.Tensor:
    """The scores: the first tensor of a tuple, list or mapping, or what is named logits."""
    if isinstance(output, torch.Tensor):
        return output
    if isinstance(getattr(output, "logits", None), torch.Tensor):
        return output.logits
    return next(value for value in (output.values() if isinstance(output, dict) else output) if isinstance(value, torch.Tensor))


if __name__ == "__main__":
    main()
