"""Whose code may run with the rights of whoever runs a command, where no sandbox stands around it."""

from __future__ import annotations

import os

VARIABLE = "HEADRACE_TRUST_REPOSITORY"
REMEDY = f"where you trust whom it is from, say --trust-repository (or set {VARIABLE}=1)"


def is_trusted(asked: bool = False) -> bool:
    """Whether somebody said so: by the flag, or by the variable, as where a container is the wall."""
    return asked or os.environ.get(VARIABLE) == "1"
