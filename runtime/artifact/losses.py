"""How many images a lossy precision loses, and what that says of all images. numpy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base.task import DENSE, EMBEDDING, MULTI_LABEL, SINGLE_LABEL, Head
from .agreement import Array, decisions, lowest_cosine
from .confidence import chance, enough_images, loss_bound, upper_bound

# Flips that one candidate in five shows though it keeps to the limit are no reason to refuse it where they are close calls:
# where the scores that changed places were no further apart than a few times what scores are usually off by.
_DOUBT, _CLOSE, _EXPECTED = 0.2, 4.0, 2.0
_ALPHA = 0.05
_MOST_ERRORS = 256


@dataclass(frozen=True)
class Losses:
    """Of `rows` images so many are `lost`, and so many `won` where labels say which are right. `what` is lost, in words."""

    rows: int
    lost: int
    won: int | None
    what: str

    def bound(self, alpha: float) -> float:
        """The most of all images that is lost, in points, but for a probability of `alpha`."""
        if self.won is None:
            return 100 * upper_bound(self.lost, self.rows, alpha)
        return 100 * loss_bound(self.lost, self.won, self.rows, alpha)

    def beyond(self, budget: float, alpha: float) -> str | None:
        """Why these images do not show that at most `budget` points are lost; None where they do."""
        if (bound := self.bound(alpha)) <= budget:
            return None
        share = (self.lost - (self.won or 0)) / self.rows
        enough = enough_images(max(share, 0.0), budget / 100, alpha if self.won is None else 0.8 * alpha)
        more = "" if enough is None or enough <= self.rows else f"; about {enough} like these would show less"
        return f"{self.rows} images show a loss of at most {bound:.2f} points of {self.what}, the budget is {budget:g}{more}"


def losses(
    head: Head, reference: Array, candidate: Array, labels: Array | None, *, cosine: float, places: float
) -> Losses | None:
    """What a candidate's output [images, ...] loses: images whose answer was right and is not, or that get another answer.

    Of several labels the answer is which hold; an embedding is another where its cosine with the model's is below `cosine`, and
    a map where less than the share `places` of its best classes are the same. None for outputs whose use is not known.
    """
    if head.kind in (SINGLE_LABEL, MULTI_LABEL):
        sides = (reference, candidate)
        wanted, given = (value.argmax(axis=1) if head.kind == SINGLE_LABEL else decisions(head, value) for value in sides)
        if labels is not None:
            before, after = ((answer == labels).reshape(len(labels), -1).all(axis=1) for answer in (wanted, given))
            return Losses(len(labels), int((before & ~after).sum()), int((after & ~before).sum()), "accuracy")
        other = (wanted != given).reshape(len(wanted), -1).any(axis=1)
        return Losses(len(other), int(other.sum()), None, "agreement")
    if head.kind == EMBEDDING:
        other = np.array(
            [lowest_cosine(reference[at : at + 1], candidate[at : at + 1]) < cosine for at in range(len(reference))]
        )
    elif head.kind == DENSE and reference.ndim == 4 and reference.shape[1] > 1:
        same = reference.argmax(axis=1) == candidate.argmax(axis=1)
        other = same.reshape(len(same), -1).mean(axis=1) < places
    else:
        return None
    return Losses(len(other), int(other.sum()), None, "agreement")


def too_few_to_tell(reference: Array, candidate: Array, least: float) -> bool:
    """Whether class scores [images, classes] that agree on less than the share `least` may be of one that keeps to it.

    The images are too few to show that it does, as many flips are no wonder, each is a close call, and what each image's error
    would flip in all the others is not more than twice what may be.
    """
    wanted, given = reference.argmax(axis=1), candidate.argmax(axis=1)
    flipped = np.flatnonzero(wanted != given)
    if not _few(len(reference), least) or chance(len(flipped), len(reference), 1 - least) < _DOUBT:
        return False
    scores: Array = reference.astype(np.float64)
    errors: Array = candidate.astype(np.float64) - scores
    usual = float(np.median(np.sqrt(np.mean(np.square(errors), axis=1))))
    apart = scores[flipped, wanted[flipped]] - scores[flipped, given[flipped]]
    if (apart > _CLOSE * usual).any():
        return False
    some = errors[np.linspace(0, len(errors) - 1, min(len(errors), _MOST_ERRORS)).astype(int)]
    expected = np.mean([((scores + error).argmax(axis=1) != wanted).mean() for error in some])
    return bool(expected <= _EXPECTED * (1 - least))


def one_of_few(found: Losses, least: float) -> bool:
    """Whether one image more is lost than won, of too few to show an agreement of `least`."""
    return found.lost - (found.won or 0) <= 1 and _few(found.rows, least)


def _few(rows: int, least: float) -> bool:
    """Whether so many images without a flip would not show that agreement."""
    return upper_bound(0, rows, _ALPHA) > 1 - least
