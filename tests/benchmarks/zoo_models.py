"""The models that benchmarks run: random weights from a seed, settled batch norm, fitted or shortly trained on real photos."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
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


TRAINED = {  # learning rate, pixels while training
    "vit_small_patch16_224": (5e-4, 224),
    "mobilenet_v3_large": (2e-3, 96),
    "efficientnet_b0": (2e-3, 96),
    "regnet_y_1_6gf": (2e-3, 96),
    "convnext_tiny": (1e-3, 96),
}
STEPS, BATCH = 120, 32


def build(name: str, data: dict[str, np.ndarray]) -> nn.Module:
    """A model whose predictions on the photos have margins, so that a lossy precision can be judged.

    Random features do for ResNets; the others are trained for a few minutes, once: build/benchmark-models keeps them.
    """
    torch.manual_seed(0)
    model = MODELS[name](int(data["fit_labels"].max()) + 1)
    if name not in TRAINED:
        return _fitted(_settled(_calm(model), data), data)
    path = ROOT / "build" / "benchmark-models" / f"{name}-{STEPS}.pt"
    if not path.exists():
        _train(model, data, *TRAINED[name])
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".{os.getpid()}")
        torch.save(_fitted(_settled(model, data), data).state_dict(), aside)
        aside.replace(path)
    model.load_state_dict(torch.load(path, weights_only=True))
    return model.eval()


def _train(model: nn.Module, data: dict[str, np.ndarray], rate: float, size: int) -> None:
    """AdamW with warm-up and cosine decay on shifted photos, in bfloat16 where autocast says so."""
    images, labels = torch.from_numpy(data["fit"]), torch.from_numpy(data["fit_labels"])
    images = nn.functional.interpolate(images, size=(size, size), mode="area")
    model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=STEPS, pct_start=0.15)
    model.train()
    for _ in track(range(STEPS), f"training {type(model).__name__} (once)", console=Console(stderr=True)):
        chosen = torch.randint(len(images), (BATCH,))
        shift = [int(value) for value in torch.randint(-size // 16, size // 16 + 1, (2,))]
        rows = images[chosen].roll(shift, (2, 3)).contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(rows).float(), labels[chosen], label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.to(memory_format=torch.contiguous_format).eval()


def _calm(model: nn.Module) -> nn.Module:
    """With small residual branches, as training leaves them: random ones amplify any rounding."""
    for module in model.modules():
        if isinstance(getattr(module, "bn3", None), nn.BatchNorm2d):
            nn.init.constant_(module.bn3.weight, 0.25)
    return model


def _settled(model: nn.Module, data: dict[str, np.ndarray]) -> nn.Module:
    """With the batch-norm statistics of the photos."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain average over what follows
    model.train(bool(norms))
    with torch.no_grad():
        for rows in torch.from_numpy(data["fit"][:96]).split(32) if norms else ():
            model(rows)
    return model.eval()


def _fitted(model: nn.Module, data: dict[str, np.ndarray]) -> nn.Module:
    """With a head fitted to the photos by ridge regression."""
    head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    features: list[torch.Tensor] = []
    hook = head.register_forward_hook(lambda module, inputs, output: features.append(inputs[0].detach().double()))
    with torch.no_grad():
        for rows in torch.from_numpy(data["fit"]).split(32):
            model(rows)
    hook.remove()
    x = torch.cat(features)
    mean = x.mean(0)
    centered = x - mean
    target = nn.functional.one_hot(torch.from_numpy(data["fit_labels"])).double() - 1 / head.out_features
    gram = centered.T @ centered
    ridge = 1e-3 * gram.diagonal().mean() * torch.eye(len(gram), dtype=torch.float64)
    weight = torch.linalg.solve(gram + ridge, centered.T @ target).T
    with torch.no_grad():
        head.weight.copy_(10 * weight)
        head.bias.copy_(-10 * weight @ mean)
    return model
