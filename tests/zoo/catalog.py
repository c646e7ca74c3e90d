"""What `make zoo` compiles: the smallest variant of each torchvision and timm family, at a small legal resolution.

A family is a module of torchvision.models or timm.models; its variants are the models registered there. A catalog is a
Python file with `families()` and `candidate(name)`, so the runner can be tried on another one.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torchvision_support import torchvision

MOST_PARAMETERS = 150e6
_SIZES = (64, 96, 128, 160, 192, 224, 256)
_ROWS = 8  # as many as `randomize` settles statistics with
_CLASSES = 1000
_TOYS = "test_"  # timm's prefix for models that exist for its own tests


class NotRun(Exception):
    """A family that cannot take part, with the reason."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One variant, built with random weights, and an input it accepts: float32 [8, 3, size, size]."""

    variant: str
    model: nn.Module
    images: torch.Tensor

    @property
    def parameters(self) -> int:
        return sum(value.numel() for value in self.model.parameters())


def families() -> list[str]:
    """Every family as "library/module", in alphabetical order."""
    found = {"torchvision": _Torchvision.variants(), "timm": _Timm.variants()}
    return sorted(f"{source}/{module}" for source, modules in found.items() for module in modules)


def candidate(family: str) -> Candidate:
    """The family's variant with the fewest parameters, built from a seed. Raises NotRun when even that one is too large."""
    source, _, module = family.partition("/")
    library = {"torchvision": _Torchvision, "timm": _Timm}[source]()
    counted = sorted((count, name) for name in library.variants()[module] if (count := library.count(name)) is not None)
    if not counted:
        raise NotRun("the parameters of no variant can be counted without allocating them")
    parameters, variant = counted[0]
    if parameters > MOST_PARAMETERS:
        raise NotRun(f"the smallest variant, {variant}, has {parameters / 1e6:.0f} M parameters")
    own = library.own_size(variant)
    return smallest_legal(variant, functools.partial(library.build, variant), [*(size for size in _SIZES if size < own), own])


def smallest_legal(variant: str, build: Callable[[int], nn.Module], sizes: Sequence[int]) -> Candidate:
    """The variant at the first size that it can be built for and run at; what the last one raises is raised."""
    for size in sizes:
        images = torch.randn(_ROWS, 3, size, size, generator=torch.Generator().manual_seed(0))
        try:
            torch.manual_seed(0)
            model = build(size).eval()
            with torch.no_grad():
                model(images[:2])
        except Exception:  # the model's own check, or a shape that does not fit: the size is too small for it
            if size == sizes[-1]:
                raise
        else:
            return Candidate(variant, model, images)
    raise AssertionError("the last size either returns or raises")


class _Torchvision:
    @staticmethod
    @functools.cache
    def variants() -> dict[str, list[str]]:
        models = torchvision().models
        found: dict[str, list[str]] = collections.defaultdict(list)
        for name in models.list_models(module=models):
            found[models.get_model_builder(name).__module__.rpartition(".")[2]].append(name)
        return dict(found)

    def count(self, name: str) -> int | None:
        return int(self._weights(name).meta["num_params"])

    def own_size(self, name: str) -> int:
        return int(self._weights(name).transforms().crop_size[0])

    def build(self, name: str, size: int) -> nn.Module:
        options: dict[str, Any] = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        if name.startswith("vit_"):
            options["image_size"] = size
        return torchvision().models.get_model(name, weights=None, **options)

    @staticmethod
    def _weights(name: str) -> Any:
        return torchvision().models.get_model_weights(name).DEFAULT


class _Timm:
    @staticmethod
    @functools.cache
    def variants() -> dict[str, list[str]]:
        timm = _timm()
        found: dict[str, list[str]] = collections.defaultdict(list)
        for name in timm.list_models():
            if not name.startswith(_TOYS):
                found[timm.model_entrypoint(name).__module__.rpartition(".")[2]].append(name)
        return dict(found)

    def count(self, name: str) -> int | None:
        try:
            with torch.device("meta"):  # shapes only: nothing is allocated
                return sum(value.numel() for value in _timm().create_model(name).parameters())
        except Exception:  # noqa: BLE001 - an initializer that reads values, which the meta device lacks; a sibling stands in
            return None

    def own_size(self, name: str) -> int:
        return int(_timm().get_pretrained_cfg(name).input_size[-1])

    def build(self, name: str, size: int) -> nn.Module:
        """With a class head, also where timm offers only a feature extractor."""
        configuration = _timm().get_pretrained_cfg(name)
        resized = {"img_size": size} if configuration.fixed_input_size and size != configuration.input_size[-1] else {}
        return _timm().create_model(name, pretrained=False, num_classes=_CLASSES, **resized)


def _timm() -> Any:
    torchvision()  # which timm imports
    import timm

    return timm
