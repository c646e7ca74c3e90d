"""An image on its way: where it stands in its shard, and its bytes or what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Image"]


@dataclass(slots=True)
class Image:
    """The `row`-th image of its shard. It has `data`, or a `location` to read them from, or an `error`."""

    row: int
    name: str
    data: bytes | None = None
    location: str = ""
    error: str | None = None
