"""Resolve: how a repository builds its model, as a recipe that a subprocess can run (see `runtime/recipe.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from .facts import CheckpointSite, Loop, Script, Survey
from .finding import Finding


@dataclass(frozen=True)
class ChainStep:
    """One link of the construction chain, for the report."""

    kind: Literal["argument", "import", "factory", "checkpoint", "wrapper", "statement"]
    path: str
    line: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """One model of a repository, and how to build it again.

    A recipe is {"root", "directory", "script", "argv", "source", "model"}: `source` is the script reduced to what is needed,
    `model` the expression that names the model after it ran.
    """

    name: str
    recipe: dict[str, Any]
    fallback_recipe: dict[str, Any] | None = None
    """The same without the steps that load checkpoints; None when there are none."""
    factory: str | None = None
    """ "path:line" of the class or function that builds it, as far as static reading tells."""
    factory_name: str | None = None
    chain: tuple[ChainStep, ...] = ()
    script: Script | None = None
    loop: Loop | None = None
    """The model call whose model this is."""
    checkpoints: tuple[CheckpointSite, ...] = ()
    transform_recipe: dict[str, Any] | None = None
    """The recipe's keys without "model", plus "callable" (an expression), "takes" ("image": a PIL image, or "path"),
    and "source_at" ("path:line"); None when no evaluation transform was found."""
    class_names: tuple[str, ...] | None = None
    """Where they are literal in the source."""
    class_names_recipe: dict[str, Any] | None = None
    """The recipe's keys without "model", plus "names": an expression that evaluates to a list, or a dict by index or by name."""
    input_size: tuple[int, int, int] | None = None
    """(channels, height, width) where the repository states it."""
    image_argument: str | None = None
    findings: tuple[Finding, ...] = ()


def resolve(survey: Survey, *, entry: str | None = None, model: str | None = None, checkpoint: str | None = None) -> Resolved:
    """How the repository builds its model.

    `entry` is a script's relative path, `model` a factory's name or a value of the script's own model option, `checkpoint` a file.
    Raises AmbiguousError (with the candidates and the flag that chooses), NothingToMigrateError, or MigrateError.
    """
    raise NotImplementedError
