"""Survey: read every Python file of a repository once and state what is there. Nothing of it is run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .facts import CheckpointSite, Factory, Loop, Option, Script, Survey, TransformSite
from .finding import Finding

__all__ = ["CheckpointSite", "Factory", "Finding", "Loop", "Option", "Script", "Survey", "TransformSite", "survey"]


def survey(root: Path, progress: Callable[[float, str], None] | None = None) -> Survey:
    """Survey the repository at `root`.

    `progress` is called with a fraction from 0 to 1 and the path at hand. One bad file is one Finding, and stops nothing.
    Raises MigrateError when `root` is not a folder, NothingToMigrateError when it holds no Python file that uses PyTorch.
    """
    raise NotImplementedError
