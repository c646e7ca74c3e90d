"""Lines as Python counts them."""

import io


def split_lines(text: str) -> list[str]:
    """Split at \\r\\n, \\r and \\n only, keeping them. `str.splitlines` also splits at form feeds and Unicode separators."""
    return list(io.StringIO(text, newline=""))
