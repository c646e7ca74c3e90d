"""transformers' models by their names: made with the defaults of their kind, where their files are not in the cache."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import types
from pathlib import Path
from typing import Any

from ... import hints
from ...places import frames
from ...stage import Stage

_CONFIGURATION, _PROCESSOR = "config.json", "preprocessor_config.json"


def stand_in(stage: Stage) -> None:
    stage.when_imported("transformers.utils.hub", lambda library: _files(stage, library))
    stage.when_imported("transformers.modeling_utils", lambda library: _models(stage, library))


def asks() -> bool:
    """Whether it is transformers that fetches a file, which reads weights by itself."""
    frame = next((frame for frame in frames() if not _is_hubs(frame)), None)
    return frame is not None and str(frame.f_globals.get("__name__")).startswith("transformers.")


def _is_hubs(frame: types.FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("huggingface_hub.")


def _files(stage: Stage, library: types.ModuleType) -> None:
    """The file that tells a model's kind, and that which says how its images are prepared, with the defaults of that kind."""

    def cached(original: Any, repo: Any, filenames: list[str], *args: Any, **named: Any) -> Any:
        try:
            found, error = original(repo, filenames, *args, **named), None
        except OSError as raised:
            found, error = None, raised
        if found is None and len(filenames) == 1 and not Path(str(repo)).exists():
            made = _made(stage, str(repo), filenames[0])
            found = None if made is None else [made]
        if found is None and error is not None:
            raise error
        return found

    stage.wrap(library, "cached_files", cached)


def _made(stage: Stage, repo: str, filename: str) -> str | None:
    kind = kind_of(repo) if filename in (_CONFIGURATION, _PROCESSOR) else None
    content = kind and (_configuration(stage, kind) if filename == _CONFIGURATION else _processor(kind, repo))
    if not content:
        return None
    path = stage.made / "hugging-face" / repo / filename
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    stage.weights_stand_in(repo)  # nor is what prepares the images the user's
    stated = f" and the {len(content['id2label'])} classes that the sources name" if "id2label" in content else ""
    stage.note("network", f"{filename} of {repo} was made, with the defaults of {kind}{stated}")
    return str(path)


def kind_of(name: str) -> str | None:
    """The kind of model that a name tells, as transformers calls it: `vit` of google/vit-base-patch16-224."""
    known = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING_NAMES
    kinds = [kind for kind in known if re.search(rf"(^|[/_-]){re.escape(kind)}([/_-]|\d|$)", name.lower())]
    return max(kinds, key=len, default=None)


def _configuration(stage: Stage, kind: str) -> dict[str, Any]:
    classifiers = importlib.import_module("transformers.models.auto.modeling_auto").MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES
    names = classifiers.get(kind)  # of DeiT several, the plain one first
    name = names if isinstance(names, str) else next(iter(names or ()), None)
    content: dict[str, Any] = {"model_type": kind, **({"architectures": [name]} if name else {})}
    if names := hints.class_names(stage.root, stage.request.script):
        content["id2label"] = {str(number): name for number, name in enumerate(names)}
        content["label2id"] = {name: number for number, name in enumerate(names)}
    return content


def _processor(kind: str, repo: str) -> dict[str, Any] | None:
    """What says which of transformers' classes prepares the images of a kind of model.

    That of ConvNeXt, which ResNet and RegNet have too, takes images of 384 and a mean of a half by itself, and images of 224
    and ImageNet's mean with nearly all weights.
    """
    known = importlib.import_module("transformers.models.auto.image_processing_auto").IMAGE_PROCESSOR_MAPPING_NAMES.get(kind)
    names = list(known.values()) if isinstance(known, dict) else [known] if isinstance(known, str) else list(known or ())
    found = next(filter(None, names), None)
    of_imagenet = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    as_published = {"size": {"shortest_edge": 384 if "384" in repo else 224}, **of_imagenet}
    return None if found is None else {"image_processor_type": found, **(as_published if "ConvNext" in found else {})}


def _models(stage: Stage, library: Any) -> None:
    """A model as it is built, where its weights cannot be had."""

    def model(original: Any, own: Any, name: Any, *args: Any, **named: Any) -> Any:
        try:
            return original(name, *args, **named)
        except (OSError, ValueError):
            config = named.get("config") or _configured(str(name), named)
            if config is None:
                raise
            stage.weights_stand_in(str(name))
            made = own.from_config(config) if hasattr(own, "from_config") else own._from_config(config)
            return made.eval()  # as `from_pretrained` gives it

    auto = importlib.import_module("transformers.models.auto.auto_factory")._BaseAutoModelClass
    for owner in (library.PreTrainedModel, auto):
        inner = inspect.getattr_static(owner, "from_pretrained").__func__

        def start(own: Any, /, name: Any, *args: Any, _inner: Any = inner, **named: Any) -> Any:
            return model(types.MethodType(_inner, own), own, name, *args, **named)

        stage.patch(owner, "from_pretrained", classmethod(start))


def _configured(name: str, named: dict[str, Any]) -> Any:
    kind = kind_of(name)
    if kind is None:
        return None
    config = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING[kind]()
    for key in ("num_labels", "id2label", "label2id", "problem_type"):
        if key in named:
            setattr(config, key, named[key])
    return config
