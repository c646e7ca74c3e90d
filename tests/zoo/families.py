"""Which models stand for the classification families of torchvision and timm: the smallest variant of each."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

MOST_PARAMETERS = 150_000_000
_CACHE_VERSION = 2


def make_torchvision_importable() -> None:
    """A CUDA build of torchvision asks for two operators whose libraries a CPU-only machine lacks; their names are enough."""
    if hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    make_torchvision_importable.library = library  # its definitions live as long as it does


def families(cache: Path) -> list[dict]:
    """Every family as {"source", "family", "model", "parameters"}; counting parameters takes a minute, so it is kept."""
    if cache.exists():
        kept = json.loads(cache.read_text())
        if kept["version"] == _CACHE_VERSION:
            return kept["families"]
    make_torchvision_importable()
    found = _smallest("torchvision", _torchvision()) + _smallest("timm", _timm())
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text(json.dumps({"version": _CACHE_VERSION, "families": found}, indent=1))
    return found


def build(source: str, name: str, size: int | None = None) -> torch.nn.Module:
    """The model with random weights; `size` is the side of its images, where it can be chosen."""
    make_torchvision_importable()
    if source == "timm":
        import timm

        return timm.create_model(name, pretrained=False, **({} if size is None else {"img_size": size}))
    import torchvision

    options = {"image_size": size} if size is not None and name.startswith("vit") else {}
    if name in ("googlenet", "inception_v3"):
        options |= {"init_weights": False, "aux_logits": True}
    return torchvision.models.get_model(name, weights=None, **options)


def sizes(source: str, name: str) -> list[int]:
    """Sides of images to try, the small ones first; the last is the model's own."""
    if source == "timm":
        import timm

        config = timm.models.get_pretrained_cfg(name)
        own = config.input_size[-1] if config is not None else 224
        if config is not None and config.fixed_input_size:
            return [own]
        least = config.min_input_size[-1] if config is not None and config.min_input_size else 64
        return sorted({max(least, 64), max(least, 96), max(least, 128), own})
    return [224] if name.startswith(("maxvit", "vit", "inception")) else [64, 128, 224]


def _torchvision() -> dict[str, list[str]]:
    import torchvision

    names: dict[str, list[str]] = {}
    for name in torchvision.models.list_models(module=torchvision.models):
        module = torchvision.models.get_model_builder(name).__module__.rsplit(".", 1)[-1]
        names.setdefault(module, []).append(name)
    return names


def _timm() -> dict[str, list[str]]:
    import timm

    modules = sorted({timm.models.model_entrypoint(name).__module__.rsplit(".", 1)[-1] for name in timm.list_models()})
    return {module: timm.list_models(module=module) for module in modules}


def _smallest(source: str, by_family: dict[str, list[str]]) -> list[dict]:
    found = []
    for family, names in sorted(by_family.items()):
        counted = [(count, name) for name in names if (count := _parameters(source, name)) is not None]
        if counted:
            count, name = min(counted)
            found.append({"source": source, "family": family, "model": name, "parameters": count})
    return found


def _parameters(source: str, name: str) -> int | None:
    """Counted without memory for them; None for a model that cannot even be built."""
    for without_memory in (lambda: torch.device("meta"), FakeTensorMode):
        try:
            with without_memory():
                return sum(value.numel() for value in build(source, name).parameters())
        except Exception:  # noqa: BLE001 - some models read values while they are built; fake ones may do
            continue
    return None
