"""A part of a user's script that can be run again, in another process: how to build a model, a transform, class names."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """`source` is the script reduced to what is needed, and `expression` names its result after it ran.

    It runs as `script`, with the command line `argv`, in the folder `directory` of the repository `root`.
    """

    root: str
    script: str
    source: str
    expression: str
    directory: str = "."
    argv: tuple[str, ...] = ()

    def in_copy(self, root: Path) -> Self:
        """The same in a copy of the repository."""
        return replace(self, root=str(root))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{**data, "argv": tuple(data.get("argv", ()))})


@dataclass(frozen=True, kw_only=True)
class TransformRecipe(Recipe):
    """A recipe of a callable that takes a PIL image ("image") or a file's path ("path")."""

    takes: Literal["image", "path"]
    convert: str | None = None
    """The PIL mode that the image is brought to before the callable gets it; None where the code does not say."""
    source_at: str = ""
    """ "path:line" of the transform's definition."""
