"""A recipe as a value and as JSON."""

import json
from pathlib import Path

import pytest

from headrace.migrate.reading.recipe import Recipe, TransformRecipe


def test_a_recipe_goes_through_json():
    recipe = Recipe(root="/r", script="a.py", source="model = 1\n", expression="model", argv=("--x",))
    assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe
    with pytest.raises(TypeError):
        Recipe.from_json({"root": "/r"})


def test_a_copy_is_the_same_elsewhere():
    recipe = TransformRecipe(root="/r", script="a.py", source="", expression="transform", takes="image", source_at="a.py:3")
    moved = recipe.in_copy(Path("/copy"))
    assert isinstance(moved, TransformRecipe)
    assert moved.to_json() == {**recipe.to_json(), "root": "/copy"}
    assert len({recipe, moved, recipe.in_copy(Path("/copy"))}) == 2
