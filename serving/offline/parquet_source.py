"""Images of a Parquet file: a column of encoded images, of structs with a field "bytes" as Hugging Face writes, or of paths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import ClassifyError
from .images import Image
from .locations import UnreadableError, join, open_file, parent

__all__ = ["PARQUET_SUFFIXES", "images_in", "is_parquet", "parquet_images"]

PARQUET_SUFFIXES = (".parquet", ".parq")
_NAMES = ("image", "img", "jpg", "jpeg", "png", "webp", "bytes", "image_bytes", "path", "file", "file_name", "filename", "url")
_ROWS = 16  # read at once
_DAMAGED = (UnreadableError, pa.ArrowException, OSError, ValueError)


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
    except _DAMAGED as error:
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
    except (*_DAMAGED, ClassifyError) as error:
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
    candidates = candidates or [key for key, kind in fields.items() if _is_text(kind) and key.lower() in _NAMES]
    named = [key for key in _NAMES if key in candidates]
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
