"""A page of several measurements: each writes its own part and leaves the others."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.runtime.base.atomic import write_aside


def write_part(path: Path, text: str) -> None:
    """Put `text` in place of the part that begins with the same heading, or at the end. The part of a "# " heading ends where
    the first "## " begins."""
    parts = re.split(r"(?m)^(?=## )", path.read_text(encoding="utf-8")) if path.exists() else []
    heading, text = text.partition("\n")[0], text.rstrip("\n") + "\n"
    if heading.startswith("# "):
        parts = [text, *(part for part in parts if part.startswith("## "))]
    elif any(part.startswith(f"{heading}\n") for part in parts):
        parts = [text if part.startswith(f"{heading}\n") else part for part in parts]
    else:
        parts.append(text)
    write_aside(path, "\n".join(part.rstrip("\n") + "\n" for part in parts).encode())
