"""Files of settings that everybody writes for themselves, and that a repository has an example of."""

from __future__ import annotations

import os

_ENDINGS = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".env", ".properties")
_WORDS = ("example", "sample", "template", "dist", "default", "tmpl")
_SIGNS = (".", "-", "_", "")


def example_of(path: str) -> str | None:
    """The file beside a missing one of settings that says what it looks like: `config.yaml.example`, `config.sample.yaml`."""
    folder, name = os.path.split(os.path.abspath(path))
    stem, ending = os.path.splitext(name.lower())
    if (ending or stem) not in _ENDINGS or not os.path.isdir(folder):
        return None
    wanted = {f"{name.lower()}{sign}{word}" for sign in _SIGNS for word in _WORDS}
    wanted |= {f"{stem}{sign}{word}{ending}" for sign in _SIGNS for word in _WORDS}
    wanted |= {f"{word}{sign}{name.lower().lstrip('.')}" for sign in _SIGNS for word in _WORDS}
    found = sorted(item for item in os.listdir(folder) if item.lower() in wanted)
    return os.path.join(folder, found[0]) if found else None
