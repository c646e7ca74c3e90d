"""Convolutions of ResNet-50 and the patches of ViT-S/16, 64 images at a time, beside cuDNN in channels last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from gpu.cases import LEVELS, Arguments, Bound, Case, levels, normal
from torch import Tensor
from torch.nn import functional

_ONE = [1, 1]
# Sums of products that are about 1 together: their float32 sum is as good as exact beside bfloat16.
_SUM = Bound(relative=2**-7, absolute=1e-3)


@dataclass(frozen=True)
class Layer:
    """So many channels to so many, `taps` x `taps`, on maps of side x side."""

    given: int
    made: int
    taps: int
    side: int
    stride: int = 1
    padding: int = 0
    residual: bool = False
    relu: bool = True

    @property
    def out(self) -> int:
        return (self.side + 2 * self.padding - self.taps) // self.stride + 1

    def __str__(self) -> str:
        stride = f"/{self.stride}" if self.stride > 1 else ""
        return f"{self.given} to {self.made}, {self.taps}x{self.taps}{stride}, {self.side}x{self.side}" + (
            ", residual" if self.residual else ""
        )


# By how much of ResNet-50's time they take, roughly.
LAYERS = (
    Layer(64, 64, 3, 56, padding=1),
    Layer(256, 256, 3, 14, padding=1),
    Layer(256, 1024, 1, 14, residual=True),
    Layer(128, 128, 3, 28, padding=1),
    Layer(256, 64, 1, 56),
    Layer(512, 512, 3, 7, padding=1),
    Layer(1024, 256, 1, 14),
    Layer(3, 64, 7, 224, stride=2, padding=3),
    Layer(128, 128, 3, 56, stride=2, padding=1),
    Layer(3, 384, 16, 224, stride=16, relu=False),
)
INT8_LAYERS = (LAYERS[0], LAYERS[1], LAYERS[2], LAYERS[5])


def convolutions(*, quick: bool) -> Iterator[Case]:
    batch = 2 if quick else 64
    for number, layer in enumerate(LAYERS):
        yield _bf16(_small(layer) if quick else layer, batch)
        if number < len(INT8_LAYERS):
            yield _int8(_small(INT8_LAYERS[number]) if quick else INT8_LAYERS[number], batch)


def _small(layer: Layer) -> Layer:
    taps = min(layer.taps, 4)
    least, stride, padding = (min(value, most) for value, most in ((layer.given, 20), (layer.stride, taps), (layer.padding, 1)))
    return Layer(least, min(layer.made, 18), taps, 8, stride, padding, layer.residual, layer.relu)


def _tensors(layer: Layer, batch: int, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    fan = layer.given * layer.taps**2
    weight = normal((layer.made, layer.given, layer.taps, layer.taps), device, torch.float32, 1) / fan**0.5
    more = normal((batch, layer.made, layer.out, layer.out), device, seed=3) if layer.residual else None
    images = normal((batch, layer.given, layer.side, layer.side), device)
    return images, weight.to(torch.bfloat16), normal((layer.made,), device, seed=2), more


def _cudnn(x: Tensor, weight: Tensor, bias: Tensor, stride: list[int], padding: list[int]) -> Tensor:
    return functional.conv2d(x, weight, bias, stride, padding)


def _bf16(layer: Layer, batch: int) -> Case:
    geometry = ([layer.stride] * 2, [layer.padding] * 2)
    return Case(
        operator="conv2d",
        shape=f"{batch} x {layer}, bf16",
        make=lambda device: (*_tensors(layer, batch, device), *geometry, _ONE, layer.relu),
        peer=_cudnn,
        peer_arguments=lambda given: (*given[:3], *geometry),
        peer_is="F.conv2d by cuDNN, channels last, bf16, with the bias and without what follows it",
        bounds=(_SUM,),
        operations=_operations(layer, batch),
    )


def _int8(layer: Layer, batch: int) -> Case:
    geometry = ([layer.stride] * 2, [layer.padding] * 2)

    def make(device: str) -> Arguments:
        weight = levels((layer.made, layer.given, layer.taps, layer.taps), device, 1)
        more = levels((batch, layer.made, layer.out, layer.out), device, 3) if layer.residual else None
        # Levels are evenly spread, so a product has a deviation of 74^2; the results then fill the levels.
        scale = 30 / (74**2 * (layer.given * layer.taps**2) ** 0.5) * (1 + torch.arange(layer.made, device=device) % 3)
        bias = 30 * normal((layer.made,), device, torch.float32, 2)
        images = levels((batch, layer.given, layer.side, layer.side), device)
        return images, weight, scale, bias, more, 0.5, *geometry, _ONE, 0 if layer.relu else -128

    def peer_arguments(given: Arguments) -> Arguments:
        return given[0].bfloat16(), given[1].bfloat16(), given[3].bfloat16(), *geometry

    return Case(
        operator="conv2d_int8",
        shape=f"{batch} x {layer}, int8",
        make=make,
        peer=_cudnn,
        peer_arguments=peer_arguments,
        peer_is="F.conv2d by cuDNN, channels last, bf16, with the bias and without what follows it",
        bounds=(LEVELS,),
        operations=_operations(layer, batch),
        precision="int8",
    )


def _operations(layer: Layer, batch: int) -> int:
    return 2 * batch * layer.out**2 * layer.made * layer.given * layer.taps**2
