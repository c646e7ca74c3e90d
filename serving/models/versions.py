"""Which versions of a model are to serve, and whether what lies in its folder is still what was loaded."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...runtime.artifact.model_config import FILE, ModelConfig


@dataclass(frozen=True)
class VersionPolicy:
    """Triton's `version_policy`: the `latest` so many versions (None: all), or the `specific` ones and no others.

    Triton tries the newest N folders whether they load or not; here "latest N" are the newest N that can be served, so that a
    broken new version leaves the old one serving, after a restart as before it.
    """

    latest: int | None = 1
    specific: tuple[int, ...] | None = None

    @classmethod
    def of(cls, config: ModelConfig) -> VersionPolicy:
        """What a config says; the newest version alone where it says nothing."""
        declared = config.message.get("version_policy", {})
        if "specific" in declared:
            return cls(specific=tuple(int(version) for version in declared["specific"].get("versions", ())))
        if "all" in declared:
            return cls(latest=None)
        return cls(latest=max(1, int(declared.get("latest", {}).get("num_versions", 1))))

    def candidates(self, found: Iterable[int]) -> list[int]:
        """The versions to try, newest first."""
        return sorted((version for version in found if self.specific is None or version in self.specific), reverse=True)

    def satisfied(self, serving: int) -> bool:
        """Whether so many versions are all that is wanted."""
        return self.specific is None and self.latest is not None and serving >= self.latest

    def absent(self, found: Iterable[int]) -> list[int]:
        """Versions that are asked for by number and are not there."""
        return sorted(set(self.specific or ()) - set(found))


def version_signature(folder: Path, version: int, config: ModelConfig) -> str:
    """Differs when a file of the version or the model's labels was written or exchanged, or its config says something else.
    Contents are not read: loading compares them with their digests. Which versions serve is no matter of one version."""
    declared = {name: value for name, value in config.message.items() if name != "version_policy"}
    total = hashlib.blake2b(json.dumps(declared, sort_keys=True).encode(), digest_size=16)
    beside = [path for path in sorted(folder.glob("*")) if path.name != FILE and not path.name.isdecimal()]
    for path in (folder / str(version), *beside):
        total.update(tree_signature(path).encode())
    return total.hexdigest()


def tree_signature(path: Path) -> str:
    """Differs when a file at or below `path` was written, exchanged, added or removed: names, sizes, times and inodes."""
    total = hashlib.blake2b(digest_size=16)
    for line in _lines(path):
        total.update(line.encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def _lines(path: Path) -> Sequence[str]:
    lines = [_line(path)]
    for place, folders, files in os.walk(path):
        folders.sort()
        lines += [_line(Path(place) / name) for name in (*folders, *sorted(files))]
    return lines


def _line(path: Path) -> str:
    try:
        found = path.stat(follow_symlinks=False)
    except OSError:  # it went away between being listed and being looked at
        return f"{path} gone\n"
    # A folder's own times change with every file in it, written or not.
    times = "" if path.is_dir() else f"{found.st_size} {found.st_mtime_ns}"
    return f"{path} {found.st_mode} {found.st_ino} {times}\n"
