"""One Parquet file per shard, which appears under its name when it is whole and on disk, or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import ClassifyError
from ...runtime.base.atomic import flush_folder

SCHEMA = pa.schema(
    [
        pa.field("image", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("label", pa.string()),
        pa.field("probability", pa.float64()),
        pa.field(
            "predictions", pa.list_(pa.struct([("label", pa.string()), ("index", pa.int32()), ("probability", pa.float64())]))
        ),
        pa.field("error", pa.string()),
    ]
)
_JOB, _SHARD, _ERRORS = "headrace.job", "headrace.shard", "headrace.errors"
# Rows are held in memory until so many are there, whatever a shard has.
_ROW_GROUP = 4096


@dataclass(frozen=True, kw_only=True)
class Finished:
    """An output file that is there: its rows, and how many of them are errors."""

    images: int
    errors: int


class ShardWriter:
    """Writes one shard's file aside, and puts it in its place at `commit`. Raises ClassifyError when the disk fails."""

    def __init__(self, target: Path, aside: Path, *, job: str, shard: str) -> None:
        self._target, self._aside = target, aside
        self._rows: list[dict[str, Any]] = []
        self.images = self.errors = 0
        try:
            self._file = aside.open("wb")
            self._writer = pq.ParquetWriter(self._file, SCHEMA, compression="zstd")
            self._writer.add_key_value_metadata({_JOB: job, _SHARD: shard})
        except OSError as error:
            raise _failed(target, error) from error

    def add(self, name: str, row: int, predictions: Sequence[Mapping[str, Any]]) -> None:
        """An image and its labels, the most probable first; there may be none where several may hold."""
        first = predictions[0] if predictions else {"label": None, "probability": None}
        self._append(
            {
                "image": spelled(name), "row": row, "label": first["label"], "probability": first["probability"],
                "predictions": predictions, "error": None,
            }
        )  # fmt: skip

    def add_error(self, name: str, row: int, error: str) -> None:
        """An image that could not be classified, and why."""
        self.errors += 1
        self._append({"image": spelled(name), "row": row, "error": spelled(error)})

    def commit(self) -> None:
        """The file is there and on disk when this returns."""
        try:
            self._write()
            self._writer.add_key_value_metadata({_ERRORS: str(self.errors)})
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._aside.replace(self._target)
            flush_folder(self._target.parent)
        except OSError as error:
            raise _failed(self._target, error) from error

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._rows = []
        for end in (self._writer.close, self._file.close):
            with contextlib.suppress(OSError):  # a full disk takes no footer either, and nobody wants it
                end()
        self._aside.unlink(missing_ok=True)

    def _append(self, values: dict[str, Any]) -> None:
        self._rows.append(values)
        self.images += 1
        if len(self._rows) == _ROW_GROUP:
            try:
                self._write()
            except OSError as error:
                raise _failed(self._target, error) from error

    def _write(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=SCHEMA))
            self._rows = []


def finished(path: Path, *, job: str, shard: str) -> Finished | None:
    """What an output file holds; None when there is none. Raises ClassifyError when it is another job's, or damaged."""
    if not path.exists():
        return None
    try:
        footer = pq.read_metadata(path)
        about = {key.decode(): value.decode() for key, value in (footer.metadata or {}).items()}
        ours = about.get(_JOB) == job and about.get(_SHARD) == shard
        found = Finished(images=footer.num_rows, errors=int(about.get(_ERRORS, "-1")))
    except (OSError, ValueError) as error:
        raise ClassifyError(f"{path} is damaged ({error}); delete it, and the same command writes it again") from error
    if not ours or found.errors < 0:
        raise ClassifyError(f"{path} was not written by this job; move it away, or give --restart to begin anew")
    return found


def spelled(name: str) -> str:
    """Names that are no UTF-8, as a Linux file system may have, with their odd bytes spelled out."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _failed(path: Path, error: OSError) -> ClassifyError:
    reason = error.strerror or str(error)
    return ClassifyError(f"cannot write {path}: {reason}; once that is put right, the same command goes on from here")
