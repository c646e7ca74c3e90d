"""The models that serve: their folder, versions, loading and warm-up."""
