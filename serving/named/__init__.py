"""A model that is served by its name: what may be asked of it, and its plan, which is measured while it serves."""
