"""The texts that the package's own files hold, as a user may read them: `…` stands for what is filled in."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("migrate", "runtime", "serving")


@functools.cache
def messages() -> str:
    """All of them, a line each."""
    files = [*ROOT.glob("*.py"), *(path for part in PARTS for path in (ROOT / part).rglob("*.py"))]
    return "\n".join(
        sorted({_text(node) for path in files for node in ast.walk(ast.parse(path.read_text())) if _is_text(node)})
    )


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    else:
        text = str(node.value) if isinstance(node, ast.Constant) else ""
    return re.sub(r"\s+", " ", text)
