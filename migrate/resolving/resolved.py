"""The outcome of resolving: one model of a repository, and how to build it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..reading.facts import CheckpointSite, Loop, Script
from ..reading.finding import Finding
from ..reading.recipe import Recipe, TransformRecipe


@dataclass(frozen=True)
class ChainStep:
    """One link of the construction chain, for the report."""

    kind: Literal["argument", "import", "factory", "checkpoint", "wrapper", "statement", "call"]
    path: str
    line: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """One model of a repository, and how to build it again."""

    name: str
    recipe: Recipe
    fallback_recipe: Recipe | None = None
    """The same without the steps that load checkpoints; None when there are none."""
    factory: str | None = None
    """ "path:line" of the class or function that builds it, as far as static reading tells."""
    factory_name: str | None = None
    chain: tuple[ChainStep, ...] = ()
    script: Script | None = None
    told: tuple[str, ...] = ()
    """The script's arguments that somebody chose; the recipe's have neutral ones too, for what else it requires."""
    loop: Loop | None = None
    """The model call whose model this is."""
    checkpoints: tuple[CheckpointSite, ...] = ()
    transform_recipe: TransformRecipe | None = None
    """The evaluation transform; None when none was found."""
    stated_transform: TransformRecipe | None = None
    """The same as the sources state it, where the other is what a run of the script does."""
    class_names: tuple[str, ...] | None = None
    """Where they are literal in the source."""
    class_names_recipe: Recipe | None = None
    """Evaluates to a list, or a dict by index or name."""
    input_size: tuple[int, int, int] | None = None
    """(channels, height, width) where the repository states it."""
    image_size: tuple[int, int, int] | None = None
    """(channels, height, width) of the images before any transform, where they are those of a published data set."""
    findings: tuple[Finding, ...] = ()
    labels: tuple[tuple[str, ...] | None, ...] = ()
    """The class names of each output, where it has several."""
    task: str = ""
    """What its outputs are, in the words of `runtime.base.task`; empty where nothing tells."""
    widths: tuple[int | None, ...] = ()
    """How many numbers each of its outputs has, None for a map, and"""
    weights_from: tuple[str, ...] = ()
    """the files of weights that its script read, where it was taken from a run."""

    @property
    def place(self) -> str:
        """Where the repository has it: its script, or its factory where no script of the repository's builds it."""
        return self.factory if self.script is None and self.factory is not None else self.recipe.script

    @property
    def classes(self) -> int | None:
        """The numbers of the first output that has any, where it was taken from a run."""
        return next((width for width in self.widths if width is not None), None)
