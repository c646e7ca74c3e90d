"""From answers that differ to what the endpoint does: hypotheses, alone and together, until some explain them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...runtime.images.preprocessing import ImageError
from .hypotheses import Hypothesis, Setup, of_classes
from .images import Sample
from .precision import PRECISIONS, resemblance, simulated
from .scores import Answers, Refusal, Scale, distances, find_order, reordered, residual

_EXPLAINED = 0.35
"""What is left of the error, as a share, where a hypothesis counts as its explanation: an eighth of its square."""
_LITTLE = 0.03
"""Of what tells images apart: so little may be precision and rounding, and only the best one is given a second hypothesis."""
_ALIKE = 1.5
_BEAM, _DEPTH, _FEW = 5, 3, 9
# How alike (a cosine) what an endpoint adds must be to what a precision adds: at least, and in standard deviations of chance;
# and how many times as large it may be.
_RESEMBLES, _DEVIATIONS, _SIZES = 0.25, 4.0, 4.0


def _by_residual(explanation: Explanation) -> float:
    return explanation.residual


class Questions:
    """What an endpoint was asked: images, or rows of the model's input."""

    def __init__(self, asked: Sequence[Sample] | np.ndarray) -> None:
        self.asked = asked

    def __len__(self) -> int:
        return len(self.asked)

    def rows(self, setup: Setup) -> np.ndarray | None:
        """The rows that a setup makes of them; None where it cannot."""
        if not isinstance(self.asked, np.ndarray):
            try:
                return setup.reference.rows(setup.pipeline, self.asked)
            except (ImageError, ValueError):
                return None
        change = setup.pipeline.row
        if change is None:
            return self.asked
        made = np.ascontiguousarray([change(row) for row in self.asked], self.asked.dtype)
        return made if made.shape == self.asked.shape else None

    def subset(self, indices: Sequence[int]) -> Questions:
        return Questions(self.asked[indices] if isinstance(self.asked, np.ndarray) else [self.asked[at] for at in indices])


@dataclass(frozen=True, eq=False)
class Explanation:
    """What an endpoint does (`setup`, the package's own way but for `hypotheses`), and how far its answers are from that."""

    hypotheses: tuple[Hypothesis, ...]
    setup: Setup
    errors: np.ndarray
    alternatives: tuple[tuple[Hypothesis, ...], ...] = ()

    @property
    def residual(self) -> float:
        return residual(self.errors)


class Search:
    """Looks for what explains the answers to some questions. `tolerances` is per question what counts as the same."""

    def __init__(self, questions: Questions, answers: Answers, base: Setup, scale: Scale, tolerances: np.ndarray) -> None:
        self.questions, self.answers, self.scale, self.tolerances = questions, answers, scale, tolerances
        self._outputs: dict[object, np.ndarray | None] = {}
        errors = self.errors(base)
        assert errors is not None, "the package's own way makes rows of every question"
        self.base = Explanation((), base, errors)

    def expected(self, setup: Setup) -> np.ndarray | None:
        """What such an endpoint answers, [questions, classes]; None where it cannot."""
        key = (id(setup.reference), setup.pipeline)
        if key not in self._outputs:
            rows = self.questions.rows(setup)
            self._outputs[key] = None if rows is None else setup.reference.scores(rows)
        outputs = self._outputs[key]
        if outputs is None:
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            made = np.nan_to_num(setup.way.function(outputs))
        return made if setup.order is None else reordered(made, setup.order)

    def errors(self, setup: Setup) -> np.ndarray | None:
        expected = self.expected(setup)
        return None if expected is None else distances(self.answers, expected, self.scale, centered=setup.way.centered)

    def same(self, explanation: Explanation) -> bool:
        return bool(np.all((explanation.errors <= self.tolerances) | np.isnan(explanation.errors)))

    def best(self, hypotheses: Iterable[Hypothesis]) -> Explanation | None:
        """What explains the answers with the fewest hypotheses; None where nothing does. Others that explain them as well,
        which these questions cannot tell from it, are its alternatives."""
        tried = list(hypotheses)
        level = self._with_one_more(self.base, tried)
        if not level:
            return None
        best = min(level, key=_by_residual)
        chosen = replace(best, alternatives=self._alike(best, level))
        small = self if self.same(best) else self._small()
        for _ in range(1, _DEPTH):
            if self.same(best):
                break
            width = 1 if best.residual <= _LITTLE else _BEAM
            start = sorted(level, key=_by_residual)[:width]
            level = [deeper for one in start for deeper in small._with_one_more(small.at(one), tried)]
            if not level:
                break
            nearest = [self.at(one) for one in sorted(level, key=_by_residual)[:_BEAM]]
            best = min(nearest, key=_by_residual)
            if best.residual <= _EXPLAINED * chosen.residual:
                chosen = replace(best, alternatives=self._alike(best, nearest))
        explained = chosen.residual <= _EXPLAINED * min(self.base.residual, self._variation(chosen))
        return chosen if explained or self.same(chosen) else None

    def _variation(self, explanation: Explanation) -> float:
        """What tells images apart by the explanation itself: less than in the base's where it flattens all answers."""
        expected = self.expected(explanation.setup)
        assert expected is not None, "it has errors"
        seen = self.scale.seen(np.nan_to_num(expected))
        valued = np.isfinite(self.answers.values).any()
        return float(np.sqrt(np.mean(np.square(seen - seen.mean(axis=0))))) / self.scale.signal if valued else 1.0

    def at(self, explanation: Explanation) -> Explanation:
        """The same explanation, of these questions."""
        errors = self.errors(explanation.setup)
        assert errors is not None, "what makes rows of some images makes them of all"
        return Explanation(explanation.hypotheses, explanation.setup, errors)

    def _small(self) -> Search:
        """Fewer of the questions, evenly, for what is tried in many combinations."""
        indices = sorted({int(at) for at in np.linspace(0, len(self.questions) - 1, _FEW)})
        questions, answers = self.questions.subset(indices), self.answers.subset(indices)
        return Search(questions, answers, self.base.setup, self.scale, self.tolerances[indices])

    def _with_one_more(self, start: Explanation, hypotheses: Sequence[Hypothesis]) -> list[Explanation]:
        taken, found, seen = {one.stage for one in start.hypotheses}, [], {start.setup}
        for hypothesis in [*hypotheses, *self._order(start)]:
            if hypothesis.stage in taken:
                continue
            setup = hypothesis.change(start.setup)
            if setup in seen or (errors := self.errors(setup)) is None:
                continue
            seen.add(setup)
            found.append(Explanation((*start.hypotheses, hypothesis), setup, errors))
        return found

    def _order(self, start: Explanation) -> list[Hypothesis]:
        """The order of classes that the answers have, seen from there."""
        if start.setup.order is not None or (expected := self.expected(start.setup)) is None:
            return []
        order = find_order(self.answers, expected, self.scale)
        return [] if order is None else [of_classes(order, start.setup.reference.vocabulary.labels)]

    def _alike(self, best: Explanation, level: Sequence[Explanation]) -> tuple[tuple[Hypothesis, ...], ...]:
        limit = max(_ALIKE * best.residual, float(self.tolerances.min()))
        found = {}
        for one in sorted(level, key=_by_residual):
            texts = tuple(sorted(hypothesis.text for hypothesis in one.hypotheses))
            if one is not best and one.residual <= limit and texts != tuple(sorted(h.text for h in best.hypotheses)):
                found[texts] = one.hypotheses
        return tuple(found.values())[:3]

    def precision(self, explanation: Explanation) -> str | None:
        """The precision whose rounding is seen in what an explanation leaves; None for none."""
        expected = self.expected(explanation.setup)
        rows = self.questions.rows(explanation.setup)
        if expected is None or rows is None:
            return None
        known = np.isfinite(self.answers.values) & np.isfinite(expected)
        if known.sum() < 2 * len(known):
            return None
        answered = [not isinstance(row, Refusal) for row in self.answers.rows]
        error = np.where(known, self.scale.seen(np.where(known, self.answers.values, 1.0)) - self.scale.seen(expected), 0.0)
        best: tuple[str, float] | None = None
        for name in PRECISIONS:
            model = simulated(explanation.setup.reference, name, rows)
            if model is None:
                continue
            made = self._as_answered(explanation.setup, model(rows))
            added = np.where(known, self.scale.seen(made) - self.scale.seen(expected), 0.0)
            alike, sizes = resemblance(error[answered], added[answered]), np.linalg.norm(error) / (np.linalg.norm(added) or 1.0)
            if (
                alike >= max(_RESEMBLES, _DEVIATIONS / np.sqrt(known.sum()))
                and 1 / _SIZES <= sizes <= _SIZES
                and (best is None or alike > best[1])
            ):
                best = (name, alike)
        return best[0] if best else None

    def _as_answered(self, setup: Setup, outputs: np.ndarray) -> np.ndarray:
        made = setup.way.function(outputs)
        return made if setup.order is None else reordered(made, setup.order)
