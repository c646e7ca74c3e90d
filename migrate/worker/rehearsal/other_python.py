"""Errors that another version of Python would not give: what is written for it is no mistake of the repository's."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from .places import is_users

_PYTHON_2 = re.compile(
    r"Missing parentheses in call to '(print|exec)'|multiple exception types must be parenthesized|leading zeros in decimal"
    r"|inconsistent use of tabs|invalid decimal literal"
)
_NO_NAME = re.compile(
    r"cannot import name '(?P<name>\w+)' from '(?P<of>[\w.]+)'|module '(?P<of_2>[\w.]+)' has no attribute '(?P<name_2>\w+)'"
    r"|(?P<of_3>[\w.]+)\.(?P<name_3>\w+) is not in the installed"
)
_WANTED = (
    ("pyproject.toml", r"^\s*(?:requires-python|python)\s*=\s*[\"']([^\"']+)"),
    ("setup.cfg", r"^\s*python_requires\s*=\s*(.+)"),
    ("setup.py", r"python_requires\s*=\s*[\"']([^\"']+)"),
    (".python-version", r"^\s*([\d.]+)"),
    ("runtime.txt", r"^\s*python-([\d.]+)"),
)
"""Where a repository says which Python it takes."""


def said_of(error: BaseException, root: str) -> str | None:
    """What is to be done where a line, or a name of the standard library, is another Python's; None for other errors."""
    here = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    if isinstance(error, SyntaxError) and error.filename and is_users(os.path.realpath(error.filename), root):
        place = f"{os.path.relpath(os.path.realpath(error.filename), root)}:{error.lineno}"
        if _PYTHON_2.search(str(error)):
            return f"{place} is written for Python 2, and headrace's rules did not mend it: bring it to Python 3"
        return f"{place} is no syntax of {here}, in which Headrace runs: {_remedy(root)}"
    found = _NO_NAME.match(str(error)) if isinstance(error, ImportError | AttributeError) else None
    if found is None:
        return None
    library, name = found["of"] or found["of_2"] or found["of_3"], found["name"] or found["name_2"] or found["name_3"]
    if library.partition(".")[0] not in sys.stdlib_module_names or _is_own(library, root):
        return None
    return f"{library} of {here}, in which Headrace runs, has no {name}: {_remedy(root)}"


def _remedy(root: str) -> str:
    for name, pattern in _WANTED:
        path = Path(root, name)
        found = re.search(pattern, path.read_text(encoding="utf-8", errors="replace"), re.M) if path.is_file() else None
        if found is not None:
            return f"{name} asks for Python {found[1].strip()}; run headrace in a Python that is that and has it, else mend it"
    return "where it is written for another Python, run headrace in that one; else mend it"


def _is_own(library: str, root: str) -> bool:
    """Whether a module of the repository's has the name of one of the standard library: `types.py`."""
    file = getattr(sys.modules.get(library), "__file__", None)
    return file is not None and is_users(os.path.realpath(file), root)
