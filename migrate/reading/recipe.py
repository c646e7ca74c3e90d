"""A part of a user's script that can be run again, in another process: how to build a model, a transform, class names."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

Place = tuple[str | int, ...]
"""Where a value lies in a nested one: indices of sequences, keys of mappings, names of attributes with a dot before them."""
Digests = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class LiveModel:
    """Which model of a script's run is meant: the `ordinal`-th that it calls with images, taken at its first call while
    `evaluating` or not.

    `slot` is where the images lie in the call's (args, kwargs), `flat` that they lie there as rows of pixels, of images of the
    shape `row`, and `output` where the scores lie in what it gives; None: the output as it is. `column` says that there is one
    number for each image, [rows], as `squeeze(1)` leaves of a binary classifier's scores, [rows, 1].
    """

    class_name: str
    ordinal: int
    evaluating: bool
    row: tuple[int, int, int]
    slot: Place = (0, 0)
    flat: bool = False
    output: Place | None = None
    column: bool = False
    weights: Digests = ()
    """Digests of its weights in another run, with other random numbers: at that call, but before the run trained it."""
    random: bool = False
    """Its weights need not be anybody's."""
    settled: bool = False
    """That first call was one in training mode, as where the accuracy of a step is measured, and others in evaluation mode
    follow: what is done to their images is what is done in evaluation."""
    drawing: bool = False
    """Dropout draws in its calls though it is in evaluation mode, as estimates of uncertainty have it: no two are alike."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        tuples = {name: _tuples(value) for name, value in data.items()}
        return cls(**tuples)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """`source` is the script reduced to what is needed, and `expression` names its result after it ran.

    It runs as `script`, with the command line `argv`, in the folder `directory` of the repository `root`. With `live` the whole
    script runs instead, and the result is taken from the run.
    """

    root: str
    script: str
    source: str = ""
    expression: str = ""
    directory: str = "."
    argv: tuple[str, ...] = ()
    live: LiveModel | None = None
    checkpoint: str | None = None
    """A file of weights to load into a live model; made data has as many classes as they tell apart."""
    fetches: bool = True
    """Stored weights that building the model would fetch are fetched; else it keeps those that it was made with."""

    def in_copy(self, root: Path) -> Self:
        """The same in a copy of the repository."""
        return replace(self, root=str(root))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        made = cls(**data)
        return replace(made, argv=tuple(made.argv), live=LiveModel.from_json(data["live"]) if made.live is not None else None)


@dataclass(frozen=True, kw_only=True)
class TransformRecipe(Recipe):
    """A recipe of a callable that takes a PIL image ("image") or a file's path ("path")."""

    takes: Literal["image", "path"]
    convert: str | None = None
    """The PIL mode that the image is brought to before the callable gets it; None where the code does not say."""
    source_at: str = ""
    """ "path:line" of the transform's definition."""
