"""How a script comes to its model, told as steps."""

import ast
import re
from collections.abc import Iterable
from typing import Literal

from ..reading.arguments import flag_of
from ..reading.facts import Factory, Option
from ..slicing.interprocedural import SLICED
from ..survey.lightning_module import NOWHERE
from .construction import Construction
from .resolved import ChainStep


def chain_of(
    construction: Construction, factory: Factory | None, chooser: Option | None, value: str | None
) -> Iterable[ChainStep]:
    """The steps, in the order in which they stand: the option `chooser` with its `value`, what makes, wraps and loads the model
    in the script's program, and the factory that is called in the end."""
    path = construction.script.path
    if chooser is not None and value is not None:
        yield ChainStep("argument", path, chooser.line, f"{flag_of(chooser)} = {value}")
    model = {ast.unparse(construction.program.expression)}
    for statement in construction.statements:
        if statement.lineno == NOWHERE:
            continue
        if construction.names_model(statement) and isinstance(statement, ast.Assign):
            model |= {ast.unparse(target) for target in statement.targets}
        text = re.sub(rf"\b{SLICED}(?=\w)", "", ast.unparse(statement).partition("\n")[0])
        kind: Literal["argument", "import", "factory", "checkpoint", "wrapper", "statement"] = "statement"
        if re.search(r"torch\.load|load_state_dict|load(_from)?_checkpoint|load_weights", text):
            kind = "checkpoint"
        elif re.search(r"DataParallel|DDP\(|convert_sync_batchnorm|\.to\(|\.cuda\(", text) and (
            model & {ast.unparse(node) for node in ast.walk(statement) if isinstance(node, ast.Name | ast.Attribute)}
        ):  # and not `images = images.to(device)`
            kind = "wrapper"
        elif construction.names_model(statement):
            kind = "factory"
        else:
            continue
        place = construction.path_of(statement)
        yield ChainStep(kind, place, statement.lineno, text if len(text) <= 160 else f"{text[:157]}...")
    if factory is not None:
        yield ChainStep("factory", factory.path, factory.line, factory.name)
