"""From encoded images to rows of a model's input."""
