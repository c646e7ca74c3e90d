"""Triton-language kernels, each beside its plain-torch reference. None yet: the plan uses the backends alone."""
