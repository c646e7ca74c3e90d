"""What a source holds, cut into shards in a stable order and written down, so that memory does not grow with it.

shards.jsonl    one line per shard
members.jsonl   the files of the shards that are cut from folders and lists: [name, size, stamp]
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from ...errors import ClassifyError
from .config import ClassifyConfig
from .locations import IMAGE_SUFFIXES, Found, UnreadableError, describe, is_folder, is_remote, join, open_file, parent, walk
from .sources import images_in, is_parquet, is_tar

_LISTS = (".txt", ".lst", ".list")
_TOLD = 10_000  # files between two remarks
_SHARDS, _MEMBERS = "shards.jsonl", "members.jsonl"


@dataclass(frozen=True, kw_only=True)
class Shard:
    """What one output file is made of: a tar archive, a Parquet file, or some files.

    `name` is that of the archive or file below the source, "" for files. `count` is how many images it has, None where only
    reading tells; `size` their bytes on disk, -1 where that is not known. `offset` is where its files begin in members.jsonl.
    """

    number: int
    kind: str
    name: str
    location: str
    count: int | None
    size: int
    offset: int
    digest: str

    @property
    def output(self) -> str:
        """The name of its output file."""
        return f"part-{self.number:06d}.parquet"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan in `folder`. `left_out` counts files that are neither images nor hold any; `base` is where names begin."""

    folder: Path
    shards: tuple[Shard, ...]
    base: str
    left_out: int

    @property
    def images(self) -> int | None:
        """All images, None where only reading tells."""
        counts = [shard.count for shard in self.shards]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def digest(self) -> str:
        """Tells this plan from that of any other source, or of the same one after a change."""
        return hashlib.sha256("".join(shard.digest for shard in self.shards).encode()).hexdigest()

    def members(self, shard: Shard) -> Iterator[tuple[str, str, int]]:
        """Name, location and size of each file of a shard of files, in order."""
        with (self.folder / _MEMBERS).open("rb") as file:
            file.seek(shard.offset)
            for _ in range(shard.count or 0):
                name, size, _ = json.loads(file.readline())
                yield name, join(self.base, name), size

    def difference(self, other: Plan) -> str:
        """In words, the first thing in which two plans of a source differ; "" for none."""
        for one, two in zip(self.shards, other.shards, strict=False):
            if one.digest != two.digest:
                return self._difference(one, other, two)
        if len(self.shards) != len(other.shards):
            return f"it had {len(self.shards)} shards and has {len(other.shards)}"
        return ""

    def _difference(self, one: Shard, other: Plan, two: Shard) -> str:
        if (one.kind, two.kind) != ("files", "files"):
            return f"{two.name or one.name or 'a file'} is new or has changed"
        pairs = zip(self.members(one), other.members(two), strict=False)
        changed = next((b[0] for a, b in pairs if a != b), None)
        if changed is None:
            return f"shard {one.number} had {one.count} files and has {two.count}, or one of them was written again"
        return f"{changed} is new, has changed, or follows a file that is gone"


def write_plan(config: ClassifyConfig, folder: Path, *, report: Callable[[int], None] = lambda found: None) -> Plan:
    """Look through the source and write its plan into an empty folder; `report` gets the number of files now and then.

    Raises ClassifyError when the source cannot be read or holds no images.
    """
    if "::" in config.source:
        raise ClassifyError(f"{config.source}: chained addresses cannot be read; copy or mount what they name")
    with (folder / _SHARDS).open("w", encoding="utf-8") as shards, (folder / _MEMBERS).open("wb") as members:
        writer = _Writer(config, shards, members)
        base = _survey(config, writer, report)
        writer.cut()
        for file in (shards, members):
            file.flush()
            os.fsync(file.fileno())
    if not writer.shards:
        what = f"{', '.join(IMAGE_SUFFIXES)} files, tar archives or Parquet files"
        raise ClassifyError(f"{config.source} holds no images; expected {what}, or a list of paths in a .txt file")
    return Plan(folder=folder, shards=tuple(writer.shards), base=base, left_out=writer.left_out)


def read_plan(folder: Path, base: str, left_out: int) -> Plan:
    """A plan that was written. Raises OSError, ValueError or TypeError when it cannot be read."""
    with (folder / _SHARDS).open(encoding="utf-8") as file:
        shards = tuple(Shard(**json.loads(line)) for line in file)
    return Plan(folder=folder, shards=shards, base=base, left_out=left_out)


class _Writer:
    """Takes files in order; cuts images into shards."""

    def __init__(self, config: ClassifyConfig, shards: IO[str], members: IO[bytes]) -> None:
        self._config = config
        self._shards_file, self._members_file = shards, members
        self.shards: list[Shard] = []
        self.left_out = 0
        self._lines: list[bytes] = []
        self._size = 0
        self._offset = 0

    def image(self, found: Found) -> None:
        """One image in a file of its own."""
        self._lines.append(json.dumps([found.name, found.size, found.stamp]).encode() + b"\n")
        self._size = -1 if found.size < 0 or self._size < 0 else self._size + found.size
        if len(self._lines) == self._config.shard_images:
            self.cut()

    def cut(self) -> None:
        """End the shard of images, if one has begun."""
        if not self._lines:
            return
        text = b"".join(self._lines)
        self._members_file.write(text)
        digest = hashlib.sha256(text).hexdigest()
        self._add(kind="files", name="", location="", count=len(self._lines), size=self._size, digest=digest)
        self._offset += len(text)
        self._lines, self._size = [], 0

    def whole(self, found: Found, kind: str) -> None:
        """A tar archive or a Parquet file."""
        count = images_in(found.location, found.name, self._config.column) if kind == "parquet" else None
        digest = hashlib.sha256(json.dumps([kind, found.name, found.size, found.stamp]).encode()).hexdigest()
        self._add(kind=kind, name=found.name, location=found.location, count=count, size=found.size, digest=digest)

    def _add(self, **values: Any) -> None:
        shard = Shard(number=len(self.shards), offset=self._offset, **values)
        self.shards.append(shard)
        self._shards_file.write(json.dumps(asdict(shard)) + "\n")


def _survey(config: ClassifyConfig, writer: _Writer, report: Callable[[int], None]) -> str:
    """Give the writer everything that the source holds; the location under which the names lie."""
    source = config.source
    if is_folder(source):
        for number, found in enumerate(walk(source, without=str(config.out)), 1):
            _take(found, writer)
            if number % _TOLD == 0:
                report(number)
        return source
    found = describe(source, source.rstrip("/").rpartition("/")[2])
    if found.name.lower().endswith(_LISTS):
        _survey_list(source, writer, report)
    elif not _take(found, writer):
        kinds = "a folder, an image, a tar archive, a Parquet file, or a list of paths in a .txt file"
        raise ClassifyError(f"{source} is none of what can be classified: {kinds}")
    return parent(source)


def _take(found: Found, writer: _Writer) -> bool:
    if is_tar(found.name):
        writer.whole(found, "tar")
    elif is_parquet(found.name):
        writer.whole(found, "parquet")
    elif found.name.lower().endswith(IMAGE_SUFFIXES):
        writer.image(found)
    else:
        writer.left_out += 1
        return False
    return True


def _survey_list(source: str, writer: _Writer, report: Callable[[int], None]) -> None:
    """Every line is an image, whatever its name ends with; files of this machine are looked at, addresses are not."""
    folder = parent(source)
    try:
        with open_file(source) as file:
            for number, line in enumerate(file, 1):
                name = os.fsdecode(line.rstrip(b"\r\n"))
                if not name:
                    continue
                location = join(folder, name)
                known = Found(location=location, name=name, size=-1, stamp="")
                writer.image(known if is_remote(location) else describe(location, name))
                if number % _TOLD == 0:
                    report(number)
    except UnreadableError as error:
        raise ClassifyError(f"cannot read {source}: {error}") from error
