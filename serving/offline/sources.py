"""Images that many lie in one file: tar archives as webdataset writes them, and columns of Parquet files.

A column holds encoded images, structs with a field "bytes" as Hugging Face writes them, or paths.
"""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import ClassifyError
from .locations import UnreadableError, join, open_file, parent, raise_if_lost

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_DAMAGED_TAR = (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError, ValueError)
PARQUET_SUFFIXES = (".parquet", ".parq")
_COLUMNS = (
    "image",
    "img",
    "jpg",
    "jpeg",
    "png",
    "webp",
    "bytes",
    "image_bytes",
    "path",
    "file",
    "file_name",
    "filename",
    "url",
)
_ROWS = 16  # read at once
_DAMAGED_PARQUET = (UnreadableError, pa.ArrowException, OSError, ValueError)


@dataclass(slots=True)
class Image:
    """The `row`-th image of its shard. It has `data`, or a `location` to read them from, or an `error`."""

    row: int
    name: str
    data: bytes | None = None
    location: str = ""
    error: str | None = None


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
                link = member.islnk() or member.issym()
                if not (member.isreg() or link) or not member.name.lower().endswith(suffixes) or _hidden(member.name):
                    continue
                image = Image(row, f"{name}/{member.name}")
                if link:  # tar writes a file that has two names once
                    image.error = f"the archive holds only a link to {member.linkname}, which is not followed"
                elif member.size > limit:
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
        raise_if_lost(error.__cause__, location, archive=True)
        yield Image(row, name, error=f"the archive cannot be read: {error}")
    except _DAMAGED_TAR as error:
        raise_if_lost(error, location, archive=True)
        yield Image(row, name, error=f"the archive is damaged after {row} images: {error}")


def _hidden(name: str) -> bool:
    return name.rpartition("/")[2].startswith(".")


def is_parquet(name: str) -> bool:
    """Whether a file's name is that of a Parquet file."""
    return name.lower().endswith(PARQUET_SUFFIXES)


def images_in(location: str, name: str, column: str | None) -> int:
    """How many rows it has. Raises ClassifyError when it cannot be read or no column of it holds images."""
    try:
        with open_file(location) as file:
            parquet = _opened(file)
            _column(parquet.schema_arrow, name, column)
            return int(parquet.metadata.num_rows)
    except _DAMAGED_PARQUET as error:
        raise ClassifyError(
            f"{name} cannot be read as Parquet: {error}; write it again or move it out of the source"
        ) from error


def parquet_images(location: str, name: str, column: str | None, limit: int) -> Iterator[Image]:
    """One image per row, called after the file's `name` and the path or number of the row.

    Rows that hold paths have them below the file's folder. What is damaged ends the file with an image that says so.
    """
    row, folder = 0, parent(location)
    try:
        with open_file(location) as file:
            parquet = _opened(file)
            field = _column(parquet.schema_arrow, name, column)
            for batch in parquet.iter_batches(batch_size=_ROWS, columns=[field], use_threads=False):
                for value in batch.column(0).to_pylist():
                    yield _image(row, name, value, folder, limit)
                    row += 1
    except (*_DAMAGED_PARQUET, ClassifyError) as error:
        raise_if_lost(error.__cause__ or error, location, archive=True)
        yield Image(row, name, error=f"the file is damaged after {row} images: {error}")


def _opened(file: Any) -> Any:
    # A row group of images may have gigabytes: it is read in parts, not ahead.
    return pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)


def _column(schema: pa.Schema, name: str, wanted: str | None) -> str:
    """The column of images. Raises ClassifyError."""
    fields = {field.name: field.type for field in schema}
    if wanted is not None:
        if wanted not in fields:
            raise ClassifyError(f"{name} has no column {wanted!r}; it has {', '.join(fields) or 'none'}: choose with --column")
        if not _holds_images(fields[wanted]) and not _is_text(fields[wanted]):
            raise ClassifyError(
                f"column {wanted!r} of {name} is {fields[wanted]}; images are binary, structs of bytes, or paths"
            )
        return wanted
    candidates = [key for key, kind in fields.items() if _holds_images(kind)]
    candidates = candidates or [key for key, kind in fields.items() if _is_text(kind) and key.lower() in _COLUMNS]
    named = [key for key in _COLUMNS if key in candidates]
    if len(candidates) == 1 or named:
        return named[0] if named else candidates[0]
    which = f"several columns that may hold images ({', '.join(candidates)})" if candidates else "no column of images or paths"
    raise ClassifyError(f"{name} has {which}; its columns are {', '.join(fields)}: choose with --column, or move it away")


def _holds_images(kind: Any) -> bool:
    types = pa.types
    if types.is_struct(kind):
        return any(field.name == "bytes" and _holds_images(field.type) for field in kind)
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)


def _is_text(kind: Any) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _image(row: int, name: str, value: Any, folder: str, limit: int) -> Image:
    path = None
    if isinstance(value, dict):
        value, path = value.get("bytes"), value.get("path")
        value = path if value is None else value
    image = Image(row, f"{name}#{path if isinstance(path, str) else row}")
    if isinstance(value, str):
        image.name, image.location = f"{name}#{value}", join(folder, value)
    elif value is None:
        image.error = "the row holds no image"
    elif len(value) > limit:
        image.error = f"the image has {len(value)} bytes, more than {limit}"
    else:
        image.data = value
    return image
