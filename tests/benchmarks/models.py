"""Plain-torch networks and made-up photographs for machines that have neither torchvision nor any images.

ResNet: He et al., "Deep Residual Learning for Image Recognition" (2015), with the stride in the 3x3 convolution.
ViT: Dosovitskiy et al., "An Image is Worth 16x16 Words" (2020); S/16 has 12 layers of width 384 with 6 heads.
"""

from __future__ import annotations

import math

import torch
from torch import nn

CLASSES = 12
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions around a shortcut; four times as many channels come out as are worked on."""

    def __init__(self, given: int, width: int, stride: int) -> None:
        super().__init__()
        made = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(given, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, made, 1, bias=False), nn.BatchNorm2d(made),
        )  # fmt: skip
        self.shortcut = nn.Identity()
        if given != made or stride != 1:
            self.shortcut = nn.Sequential(nn.Conv2d(given, made, 1, stride, bias=False), nn.BatchNorm2d(made))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.body(x) + self.shortcut(x)).relu()


class ResNet(nn.Module):
    """Images [batch, 3, height, width] to scores [batch, classes]."""

    def __init__(self, depths: tuple[int, ...], width: int = 64, classes: int = CLASSES) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        blocks, given = [], width
        for stage, depth in enumerate(depths):
            for index in range(depth):
                blocks.append(Bottleneck(given, width << stage, 2 if stage and not index else 1))
                given = 4 * (width << stage)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(given, classes)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        return self.blocks(self.stem(images)).mean((2, 3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images))


class Layer(nn.Module):
    """Pre-norm attention and a multi-layer perceptron, each around a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens, width = x.shape[1:]
        q, k, v = self.qkv(self.norm1(x)).reshape(-1, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, tokens, width)
        x = x + self.out(mixed)
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Images [batch, 3, size, size] to scores [batch, classes]."""

    def __init__(self, size: int, depth: int = 12, width: int = 384, heads: int = 6, classes: int = CLASSES) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, 1 + (size // 16) ** 2, width))
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.norm(self.layers(x)).mean(1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images))


def build(name: str, size: int, *, tiny: bool = False) -> nn.Module:
    """A network by its usual name with seeded weights, in evaluation mode; `tiny` keeps its structure and little else."""
    torch.manual_seed(0)
    if name == "vit_small_patch16_224":
        return (ViT(size, depth=2, width=48, heads=3) if tiny else ViT(size)).eval()
    depths = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3)}[name]
    return (ResNet((1, 1, 2, 1), width=8) if tiny else ResNet(depths)).eval()


def textures(count: int, size: int, *, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalized images [count, 3, size, size] and their classes [count]: gratings of an angle, a pitch and a color each,
    of random phase and contrast, under noise, as pictures of 8 bits have them."""
    draw = torch.Generator().manual_seed(seed)
    classes = torch.arange(count) % CLASSES
    axis = torch.linspace(0, 1, size)
    palette = torch.randn(CLASSES, 3, generator=torch.Generator().manual_seed(0))
    angle, pitch = math.pi * classes / CLASSES, 3.0 + 5 * (classes % 4)
    along = axis[None, None, :] * angle.cos()[:, None, None] + axis[None, :, None] * angle.sin()[:, None, None]
    phase = 2 * math.pi * torch.rand(count, generator=draw)
    wave = (2 * math.pi * pitch[:, None, None] * along + phase[:, None, None]).sin()
    contrast = 0.7 + 0.6 * torch.rand(count, generator=draw)
    images = (
        contrast[:, None, None, None] * wave[:, None] * palette[classes][:, :, None, None]
        + palette[classes].roll(1, 1)[:, :, None, None]
    )
    noisy = images + 0.3 * torch.randn(images.shape, generator=draw)
    mean, deviation = (torch.tensor(value).reshape(3, 1, 1) for value in (MEAN, STD))
    levels = ((noisy * deviation + mean) * 255).round().clamp(0, 255)
    return (levels / 255 - mean) / deviation, classes


def fitted(model: nn.Module, size: int, *, count: int) -> nn.Module:
    """The model, its head fitted to textures by ridge regression, so that scores have margins as a trained model's have."""
    device = next(model.parameters()).device
    images, classes = textures(count, size, seed=1)
    with torch.no_grad():
        parts = [model.features(part.to(device)).double().cpu() for part in images.split(32)]
        features = torch.cat(parts)
        mean, spread = features.mean(0), features.std(0).clamp(min=1e-6)
        x = torch.cat([(features - mean) / spread, torch.ones(count, 1, dtype=torch.float64)], dim=1)
        wanted = nn.functional.one_hot(classes, CLASSES).double()
        # Solved in the rows' space: there are more features than images.
        weights = x.T @ torch.linalg.solve(x @ x.T + 1e-2 * count * torch.eye(count, dtype=torch.float64), wanted)
        scale = weights[:-1] / spread[:, None]
        model.head.weight.copy_(10 * scale.T)
        model.head.bias.copy_(10 * (weights[-1] - mean @ scale))
    return model
