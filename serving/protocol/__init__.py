"""The Open Inference Protocol as values and pure functions, tied to no transport."""
