"""How one model is built, and what belongs to it."""
