"""What is to be predicted: files, folders, patterns, addresses and the standard input, in the order in which they are named."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...errors import ClassifyError, InputError
from ..offline.locations import IMAGE_SUFFIXES, UnreadableError, is_remote, read_file, walk
from .config import PredictConfig
from .download import download

STDIN = "-"
_OF_IMAGES = (
    *IMAGE_SUFFIXES,
    *(f".{name}" for name in ("tif", "tiff", "avif", "heic", "heif", "jp2", "jxl", "tga", "psd", "mpo")),
)
"""Of files with the last ones most are of a format that is not read, which is said of each."""


@dataclass(frozen=True, kw_only=True)
class Named:
    """An image that is still to be read, or an `error` that says why there is none under that name."""

    name: str
    error: str | None = None

    def read(self, config: PredictConfig) -> bytes:
        """Its bytes. Raises InputError."""
        if self.error is not None:
            raise InputError(self.error)
        limit = config.max_image_bytes
        if self.name == STDIN:
            data = sys.stdin.buffer.read(limit + 1)
            if len(data) > limit:
                raise InputError(f"the image has more than {limit} bytes")
            return data
        if is_remote(self.name):
            return download(self.name, limit=limit, seconds=config.download_seconds)
        try:
            return read_file(self.name, limit)
        except UnreadableError as error:
            raise InputError(f"the file cannot be read: {error}") from None


def named_images(given: Sequence[str]) -> Iterator[Named]:
    """Every image that the arguments stand for. Of folders those files count that are images by their names, hidden ones not;
    of patterns too. What stands for none is one that says so."""
    for item in given:
        if item == STDIN or is_remote(item):
            yield Named(name=item)
        elif os.path.isdir(item):
            yield from _inside(item)
        elif os.path.lexists(item) or not glob.has_magic(item):  # a file may be called a[1].png
            yield Named(name=item)
        else:
            yield from _matching(item)


def _inside(folder: str) -> Iterator[Named]:
    found = False
    try:
        for file in walk(folder):
            if file.name.lower().endswith(_OF_IMAGES):
                found = True
                yield Named(name=file.location)
    except ClassifyError as error:
        yield Named(name=folder, error=str(error))
        return
    if not found:
        yield Named(name=folder, error=f"the folder holds no images ({', '.join(IMAGE_SUFFIXES)})")


def _matching(pattern: str) -> Iterator[Named]:
    """What a pattern that the shell left alone stands for; "**" is any number of folders."""
    found = False
    for path in sorted(glob.glob(pattern, recursive=True)):
        if not os.path.isdir(path) and path.lower().endswith(_OF_IMAGES):
            found = True
            yield Named(name=path)
    if not found:
        yield Named(name=pattern, error="no image matches the pattern")
