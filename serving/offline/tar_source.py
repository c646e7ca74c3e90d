"""Images of a tar archive, as webdataset writes them; compressed or not, read once from beginning to end."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Iterator

from .images import Image
from .locations import UnreadableError, open_file

__all__ = ["TAR_SUFFIXES", "is_tar", "tar_images"]

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_DAMAGED = (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError, ValueError)


def is_tar(name: str) -> bool:
    """Whether a file's name is that of a tar archive."""
    return name.lower().endswith(TAR_SUFFIXES)


def tar_images(location: str, name: str, suffixes: tuple[str, ...], limit: int) -> Iterator[Image]:
    """The members that are images by their suffixes, called after the archive's `name` and their own.

    Nothing is ever unpacked to disk, so that members may be called what they like. What is damaged ends the archive with an
    image that says so.
    """
    row = 0
    try:
        with open_file(location) as file, tarfile.open(fileobj=file, mode="r|*") as archive:
            for member in archive:
                archive.members = []  # type: ignore[attr-defined]  # it would keep every one
                if not member.isreg() or not member.name.lower().endswith(suffixes) or _hidden(member.name):
                    continue
                image = Image(row, f"{name}/{member.name}")
                if member.size > limit:
                    image.error = f"the file has {member.size} bytes, more than {limit}"
                else:
                    content = archive.extractfile(member)
                    assert content is not None, "a regular file has content"
                    image.data = content.read()
                yield image
                row += 1
            # What is cut between two members, or in the middle of a header, tarfile takes for the end.
            if archive.fileobj.tell() < archive.offset + tarfile.BLOCKSIZE:
                yield Image(row, name, error=f"the archive ends after {row} images without its end mark: it was cut short")
    except UnreadableError as error:
        yield Image(row, name, error=f"the archive cannot be read: {error}")
    except _DAMAGED as error:
        yield Image(row, name, error=f"the archive is damaged after {row} images: {error}")


def _hidden(name: str) -> bool:
    return name.rpartition("/")[2].startswith(".")
