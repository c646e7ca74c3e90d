"""The images of the shards that are to be done, in pieces that a thread decodes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from .config import ClassifyConfig
from .images import Image
from .locations import UnreadableError, read_file
from .parquet_source import parquet_images
from .plan import IMAGE_SUFFIXES, Plan, Shard
from .tar_source import tar_images

__all__ = ["Piece", "fill", "pieces"]

MOST_IMAGES = 8
# So many pieces are on their way that large images must not come in eights.
_MOST_BYTES = 8 << 20


@dataclass(slots=True)
class Piece:
    """Images of one shard that follow each other. `last` says that the shard ends with them, of which there may be none."""

    shard: Shard
    images: list[Image] = field(default_factory=list)
    last: bool = False


def pieces(
    plan: Plan, shards: Iterable[Shard], config: ClassifyConfig, *, images: int, stopped: Callable[[], bool]
) -> Iterator[Piece]:
    """At most `images` images at a time, in order, until `stopped`. Those of folders and lists are still to be read."""
    for shard in shards:
        piece, size = Piece(shard), 0
        for image, weight in _images(plan, shard, config):
            if piece.images and (len(piece.images) == images or size + weight > _MOST_BYTES):
                yield piece
                piece, size = Piece(shard), 0
            if stopped():
                return
            piece.images.append(image)
            size += weight
        piece.last = True
        yield piece


def fill(piece: Piece, limit: int) -> Piece:
    """Read the images that are still in their files; those that cannot be read say why."""
    for image in piece.images:
        if image.data is None and image.error is None:
            try:
                image.data = read_file(image.location, limit)
            except UnreadableError as error:
                image.error = f"the file cannot be read: {error}"
    return piece


def _images(plan: Plan, shard: Shard, config: ClassifyConfig) -> Iterator[tuple[Image, int]]:
    """Every image of a shard with the bytes it takes or will take."""
    if shard.kind == "files":
        for row, (name, location, size) in enumerate(plan.members(shard)):
            yield Image(row, name, location=location), max(size, 0)
        return
    if shard.kind == "tar":
        found = tar_images(shard.location, shard.name, IMAGE_SUFFIXES, config.max_image_bytes)
    else:
        found = parquet_images(shard.location, shard.name, config.column, config.max_image_bytes)
    for image in found:
        yield image, len(image.data or b"")
