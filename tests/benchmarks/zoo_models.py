"""The models that benchmarks run: random weights from a seed, settled batch norm, and a head fitted to real photos."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

ROOT = Path(__file__).parents[2]
PHOTOS = ROOT / "examples" / "photos"
sys.path.insert(0, str(ROOT / "tests" / "zoo"))

from torchvision_support import torchvision  # noqa: E402


def photos() -> dict[str, np.ndarray]:
    """{"fit", "fit_labels", "test", "test_labels"}: preprocessed crops of a dozen and more classes of examples/photos."""
    if not (PHOTOS / "data" / "test").is_dir():
        subprocess.run([sys.executable, "prepare.py"], cwd=PHOTOS, check=True)
    sys.path.insert(0, str(PHOTOS))
    import os

    before = Path.cwd()
    os.chdir(PHOTOS)
    try:
        from dataset import PhotoDataset

        found = {}
        for part in ("fit", "test"):
            items = list(PhotoDataset("data", part))
            found[part] = np.stack([np.asarray(image) for image, _ in items])
            found[f"{part}_labels"] = np.array([label for _, label in items])
        return found
    finally:
        os.chdir(before)


def _torchvision(name: str) -> Callable[[int], nn.Module]:
    def build(classes: int) -> nn.Module:
        return torchvision().models.get_model(name, weights=None, num_classes=classes)

    return build


def _timm(name: str) -> Callable[[int], nn.Module]:
    def build(classes: int) -> nn.Module:
        torchvision()  # which timm imports
        import timm

        return timm.create_model(name, num_classes=classes)

    return build


MODELS: dict[str, Callable[[int], nn.Module]] = {
    "resnet50": _torchvision("resnet50"),
    "resnet101": _torchvision("resnet101"),
    "vit_small_patch16_224": _timm("vit_small_patch16_224"),
    "mobilenet_v3_large": _torchvision("mobilenet_v3_large"),
}


def build(name: str, data: dict[str, np.ndarray]) -> nn.Module:
    """A model whose predictions on the photos have margins, so that a lossy precision can be judged."""
    torch.manual_seed(0)
    model = MODELS[name](int(data["fit_labels"].max()) + 1)
    fit = torch.from_numpy(data["fit"])
    for module in model.modules():  # calm residual branches, as training leaves them: random ones amplify any rounding
        if isinstance(getattr(module, "bn3", None), nn.BatchNorm2d):
            nn.init.constant_(module.bn3.weight, 0.25)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    if norms:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the plain average over what follows
        model.train()
        with torch.no_grad():
            for start in range(0, 96, 32):
                model(fit[start : start + 32])
    model.eval()
    head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    features: list[torch.Tensor] = []
    hook = head.register_forward_hook(lambda module, inputs, output: features.append(inputs[0].detach().double()))
    with torch.no_grad():
        for start in range(0, len(fit), 32):
            model(fit[start : start + 32])
    hook.remove()
    x = torch.cat(features)
    mean = x.mean(0)
    centred = x - mean
    target = nn.functional.one_hot(torch.from_numpy(data["fit_labels"])).double() - 1 / head.out_features
    gram = centred.T @ centred
    ridge = 1e-3 * gram.diagonal().mean() * torch.eye(len(gram), dtype=torch.float64)
    weight = torch.linalg.solve(gram + ridge, centred.T @ target).T
    with torch.no_grad():
        head.weight.copy_(10 * weight)
        head.bias.copy_(-10 * weight @ mean)
    return model
