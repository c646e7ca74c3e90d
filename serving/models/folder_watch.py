"""Which model folders changed, once nobody writes to them any more. By looking, so that it works on any file system."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .scan import model_folders
from .versions import tree_signature


class FolderWatch:
    """Remembers how the folders of a models folder looked when they were last reported, at first when this was made."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen = self._look()

    def changes(self, pause: Callable[[], object]) -> tuple[set[str], set[str]]:
        """The folders that were changed, added or removed and stayed as they are during a pause; and those that did not stay,
        which a later look reports. Raises OSError when the models folder cannot be read."""
        found = self._look()
        if found == self._seen:
            return set(), set()
        pause()
        now, before = self._look(), self._seen
        everything = {*before, *found, *now}
        restless = {name for name in everything if now.get(name) != found.get(name)}
        changed = {name for name in everything - restless if now.get(name) != before.get(name)}
        self._seen = {name: now[name] for name in now if name not in restless} | {
            name: before[name] for name in before if name in restless
        }
        return changed, restless

    def _look(self) -> dict[str, str]:
        return {name: tree_signature(self._root / name) for name in model_folders(self._root)}
