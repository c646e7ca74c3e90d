"""The failure of a stage ends a job with an error that names the stage and the images that it had in hand."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

from ...errors import ClassifyError, HeadraceError, RankLostError
from .output import spelled
from .sources import Image

log = logging.getLogger("headrace.classify")


class StageError(ClassifyError):
    """A stage of a job failed, and not for an image of its own."""


@contextlib.contextmanager
def named(stage: str, place: Sequence[Image] | str) -> Iterator[None]:
    """What is raised inside the block becomes a StageError of that stage, at those images or that place."""
    try:
        yield
    except StageError:
        raise
    except Exception as error:
        # What nobody foresaw is a fault of ours, of which the traceback is of use.
        if not isinstance(error, (HeadraceError, OSError, MemoryError)):
            log.error("%s failed", stage, exc_info=error)
        why = str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}".removesuffix(": ")
        if isinstance(error, RankLostError):  # the rest is what becomes of the process in a server
            why = why.partition(";")[0]
        if not isinstance(error, ClassifyError):  # which has its remedy
            why += ". What is finished stays; the same command goes on, once that is put right"
        where = place if isinstance(place, str) else _span(place)
        where = spelled(where).replace("\n", "\\n")  # as file systems allow it in a name
        raise StageError(f"{stage} failed {where}: {' '.join(why.split())}") from error


def _span(images: Sequence[Image]) -> str:
    if not images:
        return "at the end of a shard"
    first, last = images[0].name, images[-1].name
    return f"at {first}" if first == last else f"at {first} to {last}"
