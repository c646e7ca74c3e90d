"""Data sets whose files are not here: a model's construction often makes one first, for no more than a count of classes.

    dataset, args.classes = build_dataset(args)        # ImageFolder(root), 1000

Where the code says the count itself, the files are not needed. What only they could tell is still an error: the data set
stays as bare as its constructor left it, so reading its classes or its length fails as before.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

_FOLDER = os.path.join("torchvision", "datasets") + os.sep


def is_missing_data(error: BaseException) -> bool:
    """Whether a data set of torchvision raised it because its files are not here and cannot be fetched."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, OSError | RuntimeError) and any(_FOLDER in frame.filename for frame in frames)


@contextlib.contextmanager
def stub_datasets_made() -> Iterator[list[tuple[object, BaseException]]]:
    """Within it, torchvision's data sets are made without their files where those are absent; gives those and their errors."""
    missing: list[tuple[object, BaseException]] = []
    active: list[object] = []
    datasets = sys.modules.get("torchvision.datasets")
    own = [
        kind
        for kind in vars(datasets).values()
        if isinstance(kind, type) and "__init__" in vars(kind) and kind.__module__.startswith("torchvision.datasets")
    ]
    before = {kind: vars(kind)["__init__"] for kind in own}
    for kind, init in before.items():
        kind.__init__ = _forgiving(init, missing, active)  # type: ignore[misc]
    try:
        yield missing
    finally:
        for kind, init in before.items():
            kind.__init__ = init  # type: ignore[misc]


def _forgiving(
    init: Callable[..., None], missing: list[tuple[object, BaseException]], active: list[object]
) -> Callable[..., None]:
    @functools.wraps(init)
    def start(self: Any, *arguments: Any, **keywords: Any) -> None:
        if any(self is other for other in active):  # the base class of one that is being made
            init(self, *arguments, **keywords)
            return
        active.append(self)
        try:
            init(self, *arguments, **keywords)
        except (OSError, RuntimeError) as error:
            missing.append((self, error))
        finally:
            active.pop()

    return start
