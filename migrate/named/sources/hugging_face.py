"""`hf:ORG/NAME[@REVISION]` of the Hugging Face hub, or a folder as `save_pretrained` writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....errors import MigrateError
from ...reading.recipe import Recipe
from ...stages.worker_client import model_name
from ..code import Code
from ..source import Options, Source, file_digest, versions

_MOST_CONFIG = 1 << 24

# PLACE, REVISION, REMOTE (run its own code), PICKLED (read pickled weights) and RANDOM stand before it.
SOURCE_CODE = """
import torch
from PIL import Image
from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageClassification
from transformers.image_utils import load_image

torch.manual_seed(0)
options = dict(trust_remote_code=REMOTE, **({"revision": REVISION} if REVISION else {}))

def fetch():
    from huggingface_hub import snapshot_download
    weights = ["*.safetensors", "*.safetensors.index.json", *(["*.bin", "*.bin.index.json"] if PICKLED else [])]
    snapshot_download(PLACE, revision=REVISION or None, allow_patterns=["*.json", *(["*.py"] if REMOTE else []), *weights])

def model():
    if RANDOM:
        config = AutoConfig.from_pretrained(PLACE, **options)
        return AutoModelForImageClassification.from_config(config, trust_remote_code=REMOTE)
    made, found = AutoModelForImageClassification.from_pretrained(
        PLACE, use_safetensors=None if PICKLED else True, output_loading_info=True, dtype=torch.float32, **options
    )
    if lacking := sorted(found["missing_keys"]):  # which transformers fills with random numbers
        raise LookupError(f"the stored weights have no {', '.join(lacking[:3])}: this is no finished image classifier")
    return made

def transform():
    processor = AutoImageProcessor.from_pretrained(PLACE, **options)
    return lambda path: processor(images=load_image(str(path)), return_tensors="np")["pixel_values"][0]

def facts():
    config = AutoConfig.from_pretrained(PLACE, **options)
    processor = AutoImageProcessor.from_pretrained(PLACE, **options)
    shape = processor(images=Image.new("RGB", (640, 480)), return_tensors="np")["pixel_values"][0].shape
    names = [config.id2label[index] for index in range(config.num_labels)]
    told = names != [f"LABEL_{index}" for index in range(config.num_labels)]
    return {"input": list(shape), "labels": [names] if told else None, "notes": []}
"""


def read(name: str, options: Options) -> Code:
    """A model of the hub. Raises MigrateError."""
    name, _, revision = name.partition("@")
    if name.count("/") > 1 or not all(part and not part.startswith(".") for part in name.split("/")):
        raise MigrateError(f"hf:{name} is no name of the hub; it is hf:ORG/NAME, or a folder by its path")
    return _code(f"hf:{name}{revision and '@'}{revision}", name, revision, (), options, {})


def read_folder(what: str, options: Options) -> Code:
    """A folder of `save_pretrained`. Raises MigrateError."""
    folder = Path(what).resolve()
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return _code(what, str(folder), "", (folder,), options, {"files": {path.name: file_digest(path) for path in files}})


def is_folder(what: str) -> bool:
    """Whether it is a folder whose config.json tells the type of a model, as transformers' do."""
    config = Path(what) / "config.json"
    try:
        content = json.loads(config.read_bytes()) if config.stat().st_size <= _MOST_CONFIG else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and isinstance(content.get("model_type"), str)


def _code(what: str, place: str, revision: str, readable: tuple[Path, ...], options: Options, key: Mapping[str, Any]) -> Code:
    if options.checkpoint is not None:
        raise MigrateError(f"--checkpoint does not go with {what}, whose weights lie beside its config.json")
    remote, pickled = options.trust_remote_code, options.trust_checkpoint
    installed = versions("transformers", "torch")
    named = f"PLACE, REVISION, REMOTE = {place!r}, {revision!r}, {remote!r}\n"
    named += f"PICKLED, RANDOM = {pickled!r}, {options.random_weights!r}\n"
    return Code(
        what=what,
        recipe=Recipe(root="", script="hugging_face_model.py", source=named + SOURCE_CODE, expression="model()"),
        facts="facts()",
        transform="transform()",
        title=model_name(Path(place).name),
        library="transformers",
        preload=("transformers", "transformers.modeling_utils", "transformers.image_utils", "torchvision"),
        readable=readable,
        strange=remote,
        fetch="" if readable else "fetch()",
        known_weights=not options.random_weights,
        facts_of_key={**installed, **key},
    )


SOURCE = Source(form="hf:ORG/NAME", prefix="hf:", read=read)
