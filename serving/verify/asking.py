"""The requests that a judgement makes, few at a time and counted: one by one, again, side by side, and in batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import VerifyError
from .answers import Row
from .client import Unreachable
from .endpoint import Endpoint
from .scores import Answers, Refusal, Scale, distances
from .verdict import Finding

AT_ONCE = 4
_GIVEN_UP, _TRIES = 3, 4
_TWICE, _UNDER_LOAD, _ROUNDS = 4, 8, 2


@dataclass(frozen=True)
class Batch:
    """What came of several items in one request."""

    indices: tuple[int, ...]
    answers: Answers


class Asking:
    """Asks an endpoint and keeps count."""

    def __init__(self, endpoint: Endpoint, *, pause: float = 1.0) -> None:
        """`pause` is in seconds, before a busy endpoint is asked again."""
        self.endpoint, self.requests, self._pause = endpoint, 0, pause
        self._silent = 0

    def one_by_one(self, items: Sequence[Any], report: Callable[[int], None] = lambda _: None) -> Answers:
        """Each item alone, in turn. Raises VerifyError where nothing is answered, or nothing any more."""
        rows: list[Row | Refusal] = []
        for index, item in enumerate(items):
            report(index)
            rows.append(self._patiently(item))
        if not any(isinstance(row, Row) for row in rows):
            first = next(row.why for row in rows if isinstance(row, Refusal))
            raise VerifyError(f"{self.endpoint.title}: none of {len(rows)} requests is answered with classes: {first}")
        return Answers(rows)

    def _patiently(self, item: Any) -> Row | Refusal:
        """One answer, asked for again where the endpoint is busy. Raises VerifyError where it stays so."""
        for tried in range(_TRIES):
            if tried:
                time.sleep(self._pause)
            (answer,) = self._ask([item])
            if isinstance(answer, Row) or not answer.busy:
                return answer
        assert isinstance(answer, Refusal), "that is why it is asked again"
        raise VerifyError(f"{self.endpoint.title} is too busy to be judged, even for one request at a time: {answer.why}")

    def again(self, items: Sequence[Any], before: Answers) -> tuple[list[int], Answers]:
        """Some that were answered, once more: their indices and answers."""
        chosen = _spread(_answered(before), _TWICE)
        return chosen, Answers([self._patiently(items[index]) for index in chosen])

    def side_by_side(self, items: Sequence[Any], before: Answers) -> tuple[list[int], Answers]:
        """Some that were answered, a few at once, in rounds of changing neighbors."""
        chosen = _spread(_answered(before), _UNDER_LOAD)
        order = [index for round_ in range(_ROUNDS) for index in (chosen if round_ == 0 else chosen[1::2] + chosen[::2])]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            rows = list(pool.map(lambda index: self._ask([items[index]])[0], order))
        return order, Answers(rows)

    def batches(self, items: Sequence[Any], before: Answers) -> list[Batch]:
        """Several items to a request: two, three, and as many as it takes."""
        found: list[Batch] = []
        chosen = _answered(before)
        for size in sorted({2, 3, self.endpoint.most_rows}):
            if 1 < size <= min(self.endpoint.most_rows, len(chosen)):
                indices = tuple(_spread(chosen, size))
                found.append(Batch(indices, Answers(self._ask([items[index] for index in indices]))))
        return found

    def _ask(self, items: Sequence[Any]) -> list[Row | Refusal]:
        self.requests += 1
        try:
            answers = self.endpoint.ask(items)
        except Unreachable as error:
            self._silent += 1
            if self._silent >= _GIVEN_UP or self.requests == 1:
                raise VerifyError(f"{error} (given up after {self._silent} requests without an answer)") from None
            return [Refusal(f"no answer: {error}")] * len(items)
        return answers


def repeated(chosen: Sequence[int], again: Answers, before: Answers, scale: Scale, tolerance: float) -> Finding | None:
    """Whether the same request has the same answer."""
    errors = _between(chosen, again, before, scale)
    if not (errors > tolerance).any():
        return None
    text = (
        f"the same image is answered otherwise a second time, by up to {np.nanmax(errors):.0%} of what tells images apart: "
        "dropout or another random step is on (is the model in eval mode?)"
    )
    return Finding(fault="nondeterministic", text=text)


def under_load(chosen: Sequence[int], loaded: Answers, before: Answers, scale: Scale, tolerance: float) -> Finding | None:
    """Whether requests side by side are answered as they are alone."""
    errors = _between(chosen, loaded, before, scale)
    wrong = [place for place in range(len(chosen)) if errors[place] > tolerance]
    if not wrong:
        return None
    others = sorted(set(chosen))
    taken = sum(_is_anothers(loaded.subset([place]), chosen[place], others, before, scale, tolerance) for place in wrong)
    return _of_neighbors(wrong, taken, f"of {len(chosen)} requests, {AT_ONCE} at a time,", "load", errors)


def in_batches(found: Sequence[Batch], before: Answers, scale: Scale, tolerance: float) -> tuple[list[Finding], list[str]]:
    """Whether rows in one request are answered as they are alone; and what could not be asked."""
    findings: list[Finding] = []
    notes = []
    for batch in found:
        refused = next((row.why for row in batch.answers.rows if isinstance(row, Refusal)), None)
        if refused is not None:
            notes.append(f"requests of {len(batch.indices)} rows are not answered: {refused}")
            continue
        errors = _between(batch.indices, batch.answers, before, scale)
        wrong = [place for place in range(len(errors)) if errors[place] > tolerance]
        if wrong and not findings:
            alone = [
                _is_anothers(batch.answers.subset([place]), batch.indices[place], batch.indices, before, scale, tolerance)
                for place in wrong
            ]
            where = f"of {len(batch.indices)} rows in one request"
            findings.append(_of_neighbors(wrong, sum(alone), where, "batch", errors))
    return findings, notes


def _of_neighbors(wrong: Sequence[int], taken: int, where: str, fault: str, errors: np.ndarray) -> Finding:
    if taken == len(wrong):
        text = f"{where} {len(wrong)} have the answer that belongs to another one: rows or requests are exchanged"
        return Finding(fault="exchanged-rows", text=text)
    text = (
        f"{where} {len(wrong)} are answered otherwise than alone, by up to {errors[list(wrong)].max():.0%} of what tells "
        "images apart: rows depend on those beside them (batch norm in training mode, padding, state between requests?)"
    )
    return Finding(fault=fault, text=text)


def _is_anothers(answer: Answers, own: int, others: Sequence[int], before: Answers, scale: Scale, tolerance: float) -> bool:
    return any(_between([other], answer, before, scale)[0] <= tolerance for other in others if other != own)


def _between(indices: Sequence[int], answers: Answers, before: Answers, scale: Scale) -> np.ndarray:
    """How far answers are from those that the same items had before; NaN where there is none this time."""
    found = []
    for place, index in enumerate(indices):
        now, then = answers.subset([place]), before.subset([index])
        if isinstance(now.rows[0], Refusal):
            found.append(float("nan"))
        elif not np.isfinite(now.values).any() or not np.isfinite(then.values).any():
            found.append(float(now.first != then.first))
        else:  # a class that one of the two leaves out is another answer
            common = np.isfinite(now.values) & np.isfinite(then.values)
            if common.sum() < np.isfinite(now.values).sum() - 1:
                found.append(1.0)
            else:
                found.append(float(distances(now, np.where(common, then.values, now.values), scale)[0]))
    return np.array(found)


def _answered(answers: Answers) -> list[int]:
    return [index for index, row in enumerate(answers.rows) if isinstance(row, Row)]


def _spread(indices: Sequence[int], most: int) -> list[int]:
    """So many of them, evenly, and no more than there are."""
    if len(indices) <= most:
        return list(indices)
    return [indices[at] for at in np.linspace(0, len(indices) - 1, most).astype(int)]
