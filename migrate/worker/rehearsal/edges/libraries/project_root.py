"""What rootutils does, where it is not installed: it finds the folder of a project by a file in it, and sets PROJECT_ROOT."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBRARIES = ("rootutils", "pyrootutils")
_INDICATORS = (".project-root", "setup.cfg", "setup.py", ".git", "pyproject.toml")


def functions(root: str) -> dict[str, Callable[..., Any]]:
    """The functions of the library for a repository in `root`, beyond which nothing is looked for."""

    def find_root(search_from: Any = ".", indicator: Any = _INDICATORS) -> Path:
        wanted = [indicator] if isinstance(indicator, str) else list(indicator)
        start = Path(search_from).resolve()
        for folder in (start, *start.parents):
            if folder.is_relative_to(root) and any((folder / name).exists() for name in wanted):
                return folder
        return Path(root)  # a clone's `.git` is not in the copy that is run

    def set_root(
        path: Any, project_root_env_var: bool = True, dotenv: bool = True, pythonpath: bool = False, cwd: bool = False
    ) -> None:
        if project_root_env_var:
            os.environ["PROJECT_ROOT"] = str(path)
        if pythonpath:
            sys.path.insert(0, str(path))
        if cwd:
            os.chdir(path)

    def setup_root(search_from: Any = ".", indicator: Any = _INDICATORS, *args: Any, **named: Any) -> Path:
        path = find_root(search_from, indicator)
        set_root(path, *args, **named)
        return path

    return {"find_root": find_root, "set_root": set_root, "setup_root": setup_root}
