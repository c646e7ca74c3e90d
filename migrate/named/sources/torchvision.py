"""`torchvision:NAME[:WEIGHTS]`: a classification model of torchvision, with weights by their name there, or those of a file."""

from __future__ import annotations

from pathlib import Path

from ....errors import MigrateError
from ..code import Code, library_code
from ..source import Options, Source, existing_checkpoint

# NAME, WEIGHTS, CHECKPOINT and RANDOM stand before it.
SOURCE_CODE = """
import difflib
import functools
import torch
import torchvision
from PIL import Image

torch.manual_seed(0)

def weights():
    names = torchvision.models.list_models(module=torchvision.models)
    if NAME not in names:
        near = difflib.get_close_matches(NAME, names, 5)
        hint = "did you mean " + ", ".join(near) + "?" if near else "torchvision.models.list_models() has all"
        raise LookupError(f"torchvision {torchvision.__version__} has no classification model {NAME!r}; {hint}")
    known = torchvision.models.get_model_weights(NAME)
    if WEIGHTS not in (*known.__members__, "DEFAULT"):
        raise LookupError(f"torchvision has no weights {WEIGHTS!r} of {NAME}; there are {', '.join(known.__members__)}")
    return known[WEIGHTS] if WEIGHTS != "DEFAULT" else known.DEFAULT

chosen = weights()
classes = len(chosen.meta["categories"])

@functools.cache
def stored_classes():
    from headrace.migrate.worker.checkpoint import classes_in
    if CHECKPOINT is None:
        return classes
    return classes_in(lambda: torchvision.models.get_model(NAME, weights=None, **_initialized()), CHECKPOINT, classes)

def _initialized():
    # what takes minutes to initialize, and warns that it will not be in the future, for nothing
    return {"init_weights": RANDOM} if NAME in ("googlenet", "inception_v3") else {}

def model():
    if RANDOM:
        return torchvision.models.get_model(NAME, weights=None, **_initialized())
    if CHECKPOINT is None:
        return torchvision.models.get_model(NAME, weights=chosen)
    from headrace.migrate.worker.checkpoint import load_weights, read_checkpoint, state_of
    if stored_classes() == classes:  # with the other options that torchvision gives its builders for its own weights
        type(chosen).get_state_dict = lambda *_, **__: state_of(read_checkpoint(CHECKPOINT), CHECKPOINT)
        return torchvision.models.get_model(NAME, weights=chosen)
    made = torchvision.models.get_model(NAME, weights=None, num_classes=stored_classes(), **_initialized())
    load_weights(made, CHECKPOINT)
    return made

def transform():
    pipeline = chosen.transforms()
    return lambda path: pipeline(Image.open(path).convert("RGB"))

def facts():
    labels, notes = list(chosen.meta["categories"]), []
    if stored_classes() != classes:
        labels, notes = None, [f"{CHECKPOINT} tells {stored_classes()} classes apart, of which nothing gives the names"]
    shape = chosen.transforms()(Image.new("RGB", (640, 480))).shape
    return {"input": list(shape), "labels": labels and [labels], "notes": notes}
"""


def read(name: str, options: Options) -> Code:
    """Raises MigrateError where torchvision is not installed or the checkpoint is not there."""
    name, _, given = name.partition(":")
    is_name = given.isidentifier() and not Path(given).is_file()
    checkpoint = existing_checkpoint("" if is_name else given, options)
    if is_name and options.random_weights:
        raise MigrateError(f"--random-weights does not go with the weights {given}")
    weights = given if is_name else "DEFAULT"
    given_names = {"NAME": name, "WEIGHTS": weights, "CHECKPOINT": checkpoint, "RANDOM": options.random_weights}
    return library_code("torchvision", f"torchvision:{name}:{weights}", SOURCE_CODE, given_names, preload=("torchvision",))


SOURCE = Source(form="torchvision:NAME[:WEIGHTS]", prefix="torchvision:", read=read)
