"""`timm:NAME[:CHECKPOINT]`: a model of timm, with its pretrained weights or those of a file."""

from __future__ import annotations

from ..code import Code, library_code
from ..source import Options, Source, existing_checkpoint

# NAME, CHECKPOINT and RANDOM stand before it.
SOURCE_CODE = """
import difflib
import functools
import timm
import torch
from PIL import Image
from timm.data import ImageNetInfo, create_transform, infer_imagenet_subset, resolve_data_config

torch.manual_seed(0)

def check_name():
    tagged = timm.list_pretrained()
    if NAME not in tagged and NAME not in timm.list_models():
        near = difflib.get_close_matches(NAME, [*timm.list_models(), *tagged], 5)
        hint = "did you mean " + ", ".join(near) + "?" if near else "timm.list_models() has all"
        raise LookupError(f"timm {timm.__version__} has no model {NAME!r}; {hint}")

check_name()
stated = timm.get_pretrained_cfg(NAME)
stated = stated.to_dict() if stated is not None else {}
config = resolve_data_config({}, pretrained_cfg=stated)
classes = stated.get("num_classes") or 1000

@functools.cache
def stored_classes():
    from headrace.migrate.worker.checkpoint import classes_in
    return classes if CHECKPOINT is None else classes_in(lambda: timm.create_model(NAME), CHECKPOINT, classes)

def model():
    if RANDOM:
        return timm.create_model(NAME)
    if CHECKPOINT is None:
        return timm.create_model(NAME, pretrained=True)
    if stored_classes() == classes:  # as timm reads its own files, whose names of weights may be those of another library
        return timm.create_model(NAME, pretrained=True, pretrained_cfg_overlay=dict(file=CHECKPOINT))
    from headrace.migrate.worker.checkpoint import load_weights
    made = timm.create_model(NAME, num_classes=stored_classes())
    load_weights(made, CHECKPOINT)
    return made

def transform():
    pipeline, mode = create_transform(**config, is_training=False), {1: "L", 3: "RGB"}[config["input_size"][0]]
    return lambda path: pipeline(Image.open(path).convert(mode))

def facts():
    subset, labels, notes = infer_imagenet_subset(stated) if stated.get("num_classes") else None, None, []
    if stored_classes() != classes:
        notes.append(f"{CHECKPOINT} tells {stored_classes()} classes apart, of which nothing gives the names")
    elif subset:
        labels = ImageNetInfo(subset).label_descriptions()
    return {"input": list(config["input_size"]), "labels": labels and [labels], "notes": notes}
"""


def read(name: str, options: Options) -> Code:
    """Raises MigrateError where timm is not installed or the checkpoint is not there."""
    name, _, given = name.partition(":")
    checkpoint = existing_checkpoint(given, options)
    given_names = {"NAME": name, "CHECKPOINT": checkpoint, "RANDOM": options.random_weights}
    return library_code("timm", f"timm:{name}", SOURCE_CODE, given_names, preload=("timm", "timm.data"))


SOURCE = Source(form="timm:NAME[:CHECKPOINT]", prefix="timm:", read=read)
