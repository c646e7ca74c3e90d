"""How much a running program has added to folders: what lies there, and what its processes still hold open but have deleted."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

_BLOCK = 512  # the unit of st_blocks, whatever the file system's own is
_SHARE = 0.02
"""At most so much of the time goes into counting."""
_OF_FREE = 0.9


class DiskUse:
    """The growth of `folders` since it was made, in bytes on disk: sparse files count what they occupy, links once."""

    def __init__(self, folders: Iterable[Path]) -> None:
        resolved = {folder.resolve() for folder in folders}
        self.folders = [folder for folder in resolved if not any(other in folder.parents for other in resolved)]
        self._next = 0.0
        self._hidden = False
        self._free = self._left()
        self._before = self._occupied(())
        self._seen = 0

    def allowance(self, wanted: int) -> int:
        """The bytes that may be added: `wanted`, or less where the disk has not that much left."""
        return min([wanted, *(int(_OF_FREE * amount) for amount in self._left())])

    def _left(self) -> list[int]:
        return [shutil.disk_usage(folder).free for folder in self.folders if folder.exists()]

    def growth(self, processes: Sequence[psutil.Process], *, now: bool = False) -> int:
        """Bytes added so far; counted anew from time to time, or `now`."""
        if now or time.monotonic() >= self._next:
            started = time.monotonic()
            self._seen = self._occupied(processes) - self._before
            if self._hidden:  # what others write counts too then: more than the bound is better than less
                self._seen = max([self._seen, *(then - now for then, now in zip(self._free, self._left(), strict=False))])
            ended = time.monotonic()
            self._next = ended + max(0.2, (ended - started) / _SHARE)
        return self._seen

    def _occupied(self, processes: Sequence[psutil.Process]) -> int:
        found: dict[tuple[int, int], int] = {}
        waiting = [os.fspath(folder) for folder in self.folders]
        while waiting:
            try:
                with os.scandir(waiting.pop()) as entries:
                    for entry in entries:
                        with contextlib.suppress(FileNotFoundError):  # gone meanwhile
                            status = entry.stat(follow_symlinks=False)
                            found[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
                            if entry.is_dir(follow_symlinks=False):
                                waiting.append(entry.path)
            except FileNotFoundError:
                continue
            except OSError:  # closed to us, or deeper than a path may be long
                self._hidden = True
        devices = {device for device, _ in found}
        for process in processes:
            with contextlib.suppress(OSError), os.scandir(f"/proc/{process.pid}/fd") as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        status = entry.stat()
                        if status.st_nlink == 0 and status.st_dev in devices:
                            found[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
        return sum(found.values())
