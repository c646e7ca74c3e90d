"""A model by its name, or by where it lies: `packaged.packaged(what, cache=...)` makes a model repository of it."""
