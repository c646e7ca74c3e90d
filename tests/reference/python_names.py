"""docs/reference/python.md: the public names of `headrace`, with their signatures and docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import headrace
from headrace import errors

LONGEST = 100  # characters of a signature in one line
INTRODUCTION = """# The Python API

What `import headrace` gives. Everything else in the package may change without notice. `make reference` writes this page.
"""


def python_names() -> str:
    """The page: functions and classes, then `headrace.parallel`, then the errors."""
    lines = [INTRODUCTION]
    for name in headrace.__all__:
        if name not in ("__version__", "parallel"):
            lines += _entry(f"headrace.{name}", _public(headrace, name), "##")
    parallel = headrace.parallel
    lines += ["## headrace.parallel", "", _docstring(parallel), ""]
    for name in parallel.__all__:
        lines += _entry(f"parallel.{name}", getattr(parallel, name), "###")
    lines += [
        "## Errors",
        "",
        "In `headrace.errors`; each message names the remedy.",
        "",
        "| error | is a | when |",
        "|---|---|---|",
    ]
    for name in errors.__all__:
        found = getattr(errors, name)
        if issubclass(found, Exception):
            base = found.__mro__[1].__name__
            lines.append(f"| `{name}` | `{base}` | {' '.join(_docstring(found).split())} |")
    return "\n".join(lines).rstrip() + "\n"


def _public(module: Any, name: str) -> Any:
    found = getattr(module, name)
    if inspect.ismodule(found):  # `headrace.migrate`, a module that is called
        return getattr(importlib.import_module("headrace.migrate.api"), name)
    return found


def _entry(name: str, found: Any, heading: str) -> list[str]:
    lines = [f"{heading} {name}", ""]
    if inspect.ismodule(found):
        return [*lines, _docstring(found), ""]
    lines += ["```python", f"{name}{_signature(found)}", "```", "", _docstring(found), ""]
    if inspect.isclass(found):
        package = found.__module__.partition(".")[0]
        bases = [base for base in found.__mro__ if base.__module__.partition(".")[0] == package]
        for method, value in {name: value for base in bases for name, value in vars(base).items()}.items():
            shown = value.fget if isinstance(value, property) else value
            if not method.startswith("_") and inspect.isfunction(shown) and shown.__doc__:
                what = method if isinstance(value, property) else f"{method}{_plain(str(inspect.signature(shown)))}"
                lines += [f"- `{what}`: {' '.join(_docstring(shown).split())}"]
        lines += [""]
    return lines


def _signature(found: Any) -> str:
    """Types by their last names, wherever they lie; a parameter a line where all do not fit in one."""
    signature = inspect.signature(found)
    text = _plain(str(signature))
    if len(text) <= LONGEST:
        return text
    parts = []
    for index, one in enumerate(signature.parameters.values()):
        before = list(signature.parameters.values())[:index]
        if one.kind is one.KEYWORD_ONLY and not any(other.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL) for other in before):
            parts.append("*")
        parts.append(_plain(str(one)))
    _, _, given = _plain(str(signature)).rpartition(") -> ")
    return "(\n    " + ",\n    ".join(parts) + f",\n) -> {given}"


def _plain(text: str) -> str:
    text = re.sub(r"""(: |-> )(["'])(.*?)\2(?=[,)=]| =|$)""", r"\1\3", text)  # types are written as texts
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", text)


def _docstring(found: Any) -> str:
    return inspect.cleandoc(found.__doc__ or "").strip()
