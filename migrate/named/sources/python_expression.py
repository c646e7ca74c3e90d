"""`FILE.py:EXPRESSION` or `package.module:EXPRESSION`: a model of one's own, or what makes one."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

from ....errors import MigrateError
from ...reading.recipe import Recipe
from ..code import Code
from ..source import Options, Source, existing_checkpoint, file_digest, versions

# EXPRESSION is read in the namespace of the module, so it can be a factory, a call with arguments, or a finished model.
SOURCE_CODE = """\
import importlib
import torch
torch.manual_seed(0)
globals().update(vars(importlib.import_module({module!r})))
model = {expression}
if isinstance(model, type) or not hasattr(model, "forward"):
    model = model()
"""
LOAD = """\
from headrace.migrate.worker.checkpoint import load_weights
load_weights(model, {path!r})
"""


def takes(what: str) -> bool:
    """Whether it is two texts with a colon between, the first a file's name or that of a module which is there."""
    place, _, expression = what.partition(":")
    if not expression or place.endswith(".py"):
        return bool(expression)
    first = place.partition(".")[0]
    here = Path(first).is_dir() or Path(f"{first}.py").is_file()
    return all(part.isidentifier() for part in place.split(".")) and (here or importlib.util.find_spec(first) is not None)


def read(what: str, options: Options) -> Code:
    """Raises MigrateError when it names no model."""
    place, _, expression = what.partition(":")
    try:
        ast.parse(expression, mode="eval")
    except SyntaxError:
        raise MigrateError(f"{expression!r} in {what!r} is not a Python expression") from None
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise MigrateError(f"{place}: no such file")
        root, script, module = path.parent, path.name, path.stem
    else:
        root, script, module = Path.cwd(), "compile.py", place
    source = SOURCE_CODE.format(module=module, expression=expression)
    checkpoint = existing_checkpoint("", options)
    if checkpoint is not None:
        source += LOAD.format(path=str(checkpoint.resolve()))
    return Code(
        what=what,
        recipe=Recipe(root=str(root), script=script, source=source, expression="model"),
        readable=(*_shown(root), *([checkpoint.resolve()] if checkpoint is not None else [])),
        strange=True,
        known_weights=checkpoint is not None,
        folder=root,
        facts_of_key={
            **versions("torch"),
            "root": str(root),
            "checkpoint": None if checkpoint is None else file_digest(checkpoint),
        },
    )


def _shown(root: Path) -> tuple[Path, ...]:
    """The folder of the model's code, without the hidden files of a home folder."""
    home = Path.home().resolve()
    if not home.is_relative_to(root):
        return (root,)
    return tuple(path for path in root.iterdir() if not path.name.startswith(".") and path.resolve() != home)


SOURCE = Source(form="FILE.py:EXPRESSION", order=50, takes=takes, read=read)
