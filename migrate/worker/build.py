"""The model that a recipe means: taken live from a run of its script, or built by a part of it."""

from __future__ import annotations

import torch

from ..reading.recipe import Recipe
from . import recipe as construction
from .live_model import take_model


def build_model(recipe: Recipe, notes: list[str] | None = None) -> torch.nn.Module:
    """The model without parallel wrappers, in evaluation mode; `notes` gets a sentence for each thing that was absent and not
    needed. Raises SandboxError naming the user's file and line."""
    return take_model(recipe) if recipe.live is not None else construction.build_model(recipe, notes)
