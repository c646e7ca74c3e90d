"""`FILE.pt2`: a program of torch.export, with what its metadata says of images and labels."""

from __future__ import annotations

from pathlib import Path

from ....errors import MigrateError
from ...reading.recipe import Recipe
from ...stages.worker_client import model_name
from ..code import Code
from ..source import Options, Source, file_digest, versions

# PATH stands before it. What the file says of itself is what `headrace export` writes beside a program (runtime/formats).
SOURCE_CODE = """
import json
import torch

said = dict.fromkeys(("headrace", "labels", "preprocessing", "task"), "")
program = torch.export.load(PATH, extra_files=said)
stated = {name: json.loads(text) for name, text in said.items() if text and name != "headrace"} if said["headrace"] else {}
inputs = [value for value in program.graph_signature.user_inputs if isinstance(value, str)]
shapes = {node.name: node.meta["val"].shape for node in program.graph.nodes if node.op == "placeholder"}

def model():
    return torch.export.unflatten(program)

def facts():
    if len(inputs) != 1 or len(shapes[inputs[0]]) != 4:
        raise LookupError(f"it takes inputs of shapes {[list(shapes[name]) for name in inputs]}, not one of images")
    batch, *row = shapes[inputs[0]]
    if isinstance(batch, int):
        raise LookupError(f"it was exported for batches of {batch} alone; export it with dynamic_shapes")
    if not all(isinstance(size, int) for size in row):
        raise LookupError("its images may have any size, so no batch can hold them; export it with one")
    notes = [] if "preprocessing" in stated else ["FILE.pt2 says nothing of images, so it takes tensors"]
    heads, labels = stated.get("task", []), stated.get("labels")
    if isinstance(labels, dict):
        labels = [labels.get(head["output"]) for head in heads]
    elif labels is not None:
        labels = [labels]
    words = (f"{place}={head['kind']}:{'/'.join(map(str, head.get('thresholds', ())))}" for place, head in enumerate(heads))
    return {
        "input": row,
        "labels": labels,
        "notes": notes,
        "preprocessing": stated.get("preprocessing"),
        "task": ",".join(word.rstrip(":") for word in words),
    }
"""


def takes(what: str) -> bool:
    return what.endswith(".pt2") and Path(what).is_file()


def read(what: str, options: Options) -> Code:
    """Raises MigrateError for options that mean nothing here."""
    if options.checkpoint is not None or options.random_weights:
        raise MigrateError(f"{what} holds its weights; --checkpoint and --random-weights do not go with it")
    path = Path(what).resolve()
    return Code(
        what=what,
        recipe=Recipe(
            root="", script="exported_program.py", source=f"PATH = {str(path)!r}\n{SOURCE_CODE}", expression="model()"
        ),
        facts="facts()",
        title=model_name(path.stem),
        readable=(path,),
        facts_of_key={**versions("torch"), "file": file_digest(path)},
    )


SOURCE = Source(form="FILE.pt2", order=10, takes=takes, read=read)
