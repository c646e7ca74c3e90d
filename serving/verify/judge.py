"""One endpoint judged: asked, compared, and what differs explained, first on plain images, then on each unusual kind."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import HeadraceError, VerifyError
from ...runtime.artifact.lossy_parity import lossy_gate, relative_rms
from ...specs import Preprocessing
from .answers import Row
from .asking import Asking, in_batches, repeated, under_load
from .decoding import of_gray_models, of_group
from .endpoint import Endpoint, Inference
from .hypotheses import Hypothesis, Setup, known_order, of_model, of_preprocessing, of_rows, of_scores
from .images import CORE, FLAT, Sample, as_jpeg
from .pipeline import Pipeline
from .reference import Reference, others
from .scores import Answers, Refusal, Scale, find_order, likeliest, ways
from .search import Explanation, Questions, Search
from .verdict import Finding, Judgement

Report = Callable[[str], None]

GIVEN = "given"
"""The group of a user's own images."""
_DRIFT = 0.3
_LISTED, _LEAST = 6, 4
# What decoders of JPEG may differ by, in levels of 255: our own fast path by 2. Tried as noise and as a shift; twice what that
# does to the answers is the tolerance for such images.
_LEVELS, _MARGIN = 2, 2.0


class Judge:
    """Judges one endpoint by one packaged model. `tolerance` is a share of what tells images apart."""

    def __init__(self, endpoint: Endpoint, reference: Reference, *, tolerance: float, report: Report) -> None:
        self.endpoint, self.reference, self.report = endpoint, reference, report
        self.tolerance = tolerance
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.groups: dict[str, tuple[int, int]] = {}
        self.asking = Asking(endpoint)
        self.largest = 0.0

    def images(self, samples: Sequence[Sample]) -> Judgement:
        """An endpoint that takes encoded images. Raises VerifyError where nothing can be said."""
        preprocessing = self.reference.artifact.preprocessing
        assert preprocessing is not None, "the caller looked"
        pipeline = Pipeline(preprocessing)
        samples = self.reference.taken(pipeline, samples)
        if sum(sample.group in (*CORE, GIVEN) for sample in samples) < _LEAST:
            raise VerifyError(
                f"the preprocessing of {self.reference.artifact.name} takes images of one size only, so there are too few to "
                "send; give the address of a model that takes tensors"
            )
        answers = self._asked(samples, [sample.name for sample in samples])
        core = [index for index, sample in enumerate(samples) if sample.group in (*CORE, GIVEN)]
        if all(isinstance(answers.rows[index], Refusal) for index in core):
            samples, answers = self._as_jpeg(samples, answers, core)
        search = self._search(Questions([samples[index] for index in core]), answers.subset(core), pipeline)
        tolerances = self._tolerances(samples, search)
        search.tolerances = tolerances[core]
        self._behavior(samples, answers, search.scale)
        pixels = self.reference.artifact.signature.takes_pixels
        tried = [*of_preprocessing(preprocessing, pixels=pixels), *(of_gray_models() if preprocessing.mode == "L" else ())]
        found = self._explain(search, tried)
        self._count(samples, answers, search, tolerances)
        if found is not None:
            self._special(samples, answers, found, search, tolerances)
        return self._judgement()

    def rows(self, rows: np.ndarray) -> Judgement:
        """An endpoint that takes rows of the model's input: their preprocessing is the client's."""
        self.notes.append("it takes tensors, so resizing, cropping and normalizing are the client's and not judged")
        answers = self._asked(list(rows), [f"row {number}" for number in range(len(rows))])
        search = self._search(Questions(rows), answers, Pipeline(self.reference.artifact.preprocessing or Preprocessing()))
        self._behavior(list(rows), answers, search.scale)
        self._explain(search, of_rows(self.reference.artifact.preprocessing))
        errors = search.base.errors
        self.groups["rows"] = (int((errors <= self.tolerance).sum()), len(rows))
        self.largest = _largest(errors)
        self._other_outputs(rows, answers)
        if isinstance(self.endpoint, Inference):
            self._labels(self.endpoint, rows[0])
        return self._judgement()

    def _asked(self, items: Sequence[Any], names: Sequence[str]) -> Answers:
        answers = self.asking.one_by_one(items, lambda index: self.report(f"asking about {names[index]}"))
        first = next(row for row in answers.rows if isinstance(row, Row))
        if not np.isfinite(first.values).any():
            self.notes.append("the answers name a class without a value, so softmax and precision are not judged")
        elif not np.isfinite(first.values).all():
            count = int(np.isfinite(first.values).sum())
            self.notes.append(f"the answers have {count} of {len(first.values)} classes, and only those are compared")
        unknown = {name for row in answers.rows if isinstance(row, Row) for name in row.unknown}
        if unknown:
            text = f"it answers labels that the package does not have: {', '.join(sorted(unknown)[:_LISTED])}"
            self.findings.append(Finding(fault="labels", text=text))
        return answers

    def _as_jpeg(self, samples: Sequence[Sample], answers: Answers, core: Sequence[int]) -> tuple[Sequence[Sample], Answers]:
        """The plain images once more, for an endpoint that takes no PNG. Raises VerifyError where it answers none either."""
        why = next(row.why for row in answers.rows if isinstance(row, Refusal))
        text = f"PNG images are not answered, so plain ones were sent as JPEG: {why}"
        self.findings.append(Finding(fault="refused", text=text))
        made = {index: as_jpeg(samples[index]) for index in core}
        again = dict(zip(core, self.asking.one_by_one(list(made.values())).rows, strict=True))
        rows = [again.get(index, row) for index, row in enumerate(answers.rows)]
        return [made.get(index, sample) for index, sample in enumerate(samples)], Answers(rows)

    def _search(self, questions: Questions, answers: Answers, pipeline: Pipeline) -> Search:
        """The search from the package's own way, with the form of its outputs that the answers come nearest to."""
        task = self.reference.artifact.task
        upload = not isinstance(self.endpoint, Inference)
        right, self._faulty = ways(task.heads[task.primary], upload=upload, kind=answers.kind)
        rows = questions.rows(Setup(self.reference, pipeline, right[0]))
        assert rows is not None, "images that give no row were left out"
        outputs = self.reference.scores(rows)
        numbered = answers.by_number()
        self._misnamed = None
        if numbered is not None:  # the numbers say which class is meant, the labels what it is called
            self._misnamed, answers = answers, numbered
        way = likeliest(right, answers, outputs)
        scale = Scale.of(answers, way.function(outputs))
        if way is not right[0]:
            self.notes.append(way.text)
        tolerances = np.full(len(questions), self.tolerance)
        return Search(questions, answers, Setup(self.reference, pipeline, way), scale, tolerances)

    def _tolerances(self, samples: Sequence[Sample], search: Search) -> np.ndarray:
        """Per image what counts as the same: more where decoders may differ, by what that does to this model's answers."""
        found = np.full(len(samples), self.tolerance)
        lossy = [index for index, sample in enumerate(samples) if sample.lossy]
        if not lossy:
            return found
        setup = search.base.setup
        exact = self._expected([samples[index] for index in lossy], setup)
        random = np.random.default_rng(3)

        def noisy(pixels: np.ndarray) -> np.ndarray:
            return np.clip(pixels + random.integers(-_LEVELS, _LEVELS + 1, pixels.shape), 0, 255)

        changes = (noisy, lambda pixels: np.minimum(pixels + 1.0, 255), lambda pixels: np.maximum(pixels - 1.0, 0))
        for change in changes:
            near = replace(setup, pipeline=replace(setup.pipeline, pixels=change))
            made = self._expected([samples[index] for index in lossy], near)
            spread = np.square(search.scale.seen(made) - search.scale.seen(exact)).mean(axis=1)
            found[lossy] = np.maximum(found[lossy], _MARGIN * np.sqrt(spread) / search.scale.signal)
        return found

    def _expected(self, samples: Sequence[Sample], setup: Setup) -> np.ndarray:
        rows = self.reference.rows(setup.pipeline, samples)
        assert rows is not None, "images that give no row were left out"
        return setup.way.function(setup.reference.scores(rows))

    def _behavior(self, items: Sequence[Any], answers: Answers, scale: Scale) -> None:
        """Whether an answer is the same again, beside others, and in a batch."""
        self.report("asking again")
        chosen, again = self.asking.again(items, answers)
        finding = repeated(chosen, again, answers, scale, self.tolerance)
        self._refused_now(again, "the second time")
        if finding is not None:
            self.findings.append(finding)
            return
        self.report("asking side by side")
        chosen, loaded = self.asking.side_by_side(items, answers)
        self._refused_now(loaded, "side by side")
        findings = [under_load(chosen, loaded, answers, scale, self.tolerance)]
        in_batch, notes = in_batches(self.asking.batches(items, answers), answers, scale, self.tolerance)
        self.findings += [one for one in (*findings, *in_batch) if one is not None]
        self.notes += notes

    def _refused_now(self, answers: Answers, when: str) -> None:
        refused = [row.why for row in answers.rows if isinstance(row, Refusal)]
        if refused:
            self.notes.append(f"{len(refused)} of {len(answers.rows)} requests are not answered {when}: {refused[0]}")

    def _explain(self, search: Search, hypotheses: Iterable[Hypothesis]) -> Explanation | None:
        """Judge the plain questions. The explanation to go on from, which is the package's own way where all is the same."""
        self._misnamed_classes(search)
        base = search.base
        if search.same(base):
            return base
        if self._is_constant(search):
            return None
        self.report("looking for what explains the difference")
        valued = np.isfinite(search.answers.values).any()  # a class without a value is the same after any softmax
        tried = [*hypotheses, *(of_scores(self._faulty) if valued else ())]
        found = search.best(tried)
        if found is None or not search.same(found):
            drift = self._drift(search, found or base)
            if drift is not None and (found is not None or base.residual <= _DRIFT):
                if found is not None:
                    self._add(search, found)
                self.findings += drift
                return found or base
        if found is None:
            found = self._other_model(search)
        if found is not None:
            self._add(search, found)
        elif base.residual <= (allowed := self._allowed()):
            how = f"by {base.residual:.1%} of what tells images apart; the package's own plans allow {allowed:.0%}"
            self.notes.append(f"the answers are off {how}")
            return base
        elif any(finding.fault == "nondeterministic" for finding in self.findings):
            self.notes.append("what else differs cannot be told while answers are random")
        else:
            self._unexplained(search)
        return found

    def _add(self, search: Search, found: Explanation) -> None:
        share = max(0.0, 1 - (found.residual / search.base.residual) ** 2)
        alternatives = tuple(" and ".join(one.text for one in other) for other in found.alternatives)
        for hypothesis in found.hypotheses:
            self.findings.append(
                Finding(fault=hypothesis.fault, text=hypothesis.text, explains=share, alternatives=alternatives)
            )

    def _is_constant(self, search: Search) -> bool:
        rows = [row for row in search.answers.rows if isinstance(row, Row)]
        values = np.array([row.values for row in rows])
        alike = np.array_equal(np.isfinite(values), np.isfinite(values[:1]).repeat(len(values), axis=0))
        alike = alike and bool(np.all(np.nanmax(np.abs(values - values[:1]), initial=0.0) <= 1e-9))
        if len(rows) < 3 or not alike or len({row.first for row in rows}) > 1:
            return False
        ones = next((way for way in self._faulty if way.name == "ones"), None)
        if ones is not None and np.isfinite(values).any() and np.nanmin(values) == np.nanmax(values) == 1.0:
            self.findings.append(Finding(fault="softmax", text=ones.text, explains=1.0))
        else:
            self.findings.append(Finding(fault="constant", text="every image has the same answer: is the image read at all?"))
        return True

    def _drift(self, search: Search, found: Explanation) -> list[Finding] | None:
        """What a lower precision leaves: no finding where the package's own plans have that precision, None for no drift."""
        seen = search.precision(found)
        if seen is None:
            if importlib.util.find_spec("onnx") is None:
                self.notes.append("lower precisions are not recognized without onnx: pip install 'headrace[migrate]'")
            return None
        text = f"the answers are off as those of {seen} are, by {found.residual:.1%} of what tells images apart"
        if found.residual <= self._allowed(seen.partition(" ")[0]):
            self.notes.append(f"{text}, which the package's own plans allow")
            return []
        return [Finding(fault="precision", text=text)]

    def _allowed(self, precision: str | None = None) -> float:
        """How far off the package's own plans may be, by the gate of their precisions, or of one; 0 where all are lossless."""
        lossy = [name for name in self.reference.precisions - {"fp32"} if precision in (None, name)]
        return max((lossy_gate(name).rms for name in lossy), default=0.0)

    def _other_model(self, search: Search) -> Explanation | None:
        found = None
        for text, other in others(self.reference).items():
            try:
                best = search.best([of_model(text, other)])
            except HeadraceError:
                continue
            if best is not None and any(one.fault == "model" for one in best.hypotheses):
                found = best if found is None or best.residual < found.residual else found
        return found

    def _unexplained(self, search: Search) -> None:
        """What can still be said: which kinds of images agree, and how alike the answers are."""
        errors, base = search.base.errors, search.base
        asked = search.questions.asked
        if not isinstance(asked, np.ndarray):
            flat = [index for index, sample in enumerate(asked) if sample.group == FLAT]
            right = [index for index in flat if errors[index] <= search.tolerances[index]]
            if len(right) == len(flat) and flat:
                text = (
                    "flat colors are answered the same, so model, labels, softmax and normalizing are right: images are "
                    "resized or cropped in a way that none of the tried ones is"
                )
                self.findings.append(Finding(fault="unexplained", text=text, images=_worst(search)))
                return
        alike = self._correlation(search)
        weights = "; the answers have nothing in common with the model's: it is another model, or has other weights"
        near = f"; they resemble the model's (correlation {alike:.2f}): other weights, or several faults together"
        text = (
            f"the answers are off by {base.residual:.0%} of what tells images apart, and nothing that was tried explains it"
            f"{weights if alike < 0.3 else near}"
        )
        self.findings.append(Finding(fault="model" if alike < 0.3 else "unexplained", text=text, images=_worst(search)))

    def _correlation(self, search: Search) -> float:
        expected = search.expected(search.base.setup)
        known = np.isfinite(search.answers.values)
        if expected is None or known.sum() < 3:
            return float(np.mean(search.base.errors == 0))
        given = search.scale.seen(np.where(known, search.answers.values, 1.0))
        wanted = search.scale.seen(expected)
        centered = [values - values.mean(axis=0) for values in (given, wanted)] if known.all() else [given, wanted]
        parts = [values[known] - values[known].mean() for values in centered]
        size = float(np.linalg.norm(parts[0]) * np.linalg.norm(parts[1]))
        return float(parts[0] @ parts[1] / size) if size else 0.0

    def _misnamed_classes(self, search: Search) -> None:
        """Where numbers and labels came together: whether the labels are those of the numbers."""
        if self._misnamed is None:
            return
        expected = np.where(np.isfinite(search.answers.values), search.answers.values, 0.0)
        wrong = [
            index
            for index, (named, numbered) in enumerate(zip(self._misnamed.rows, search.answers.rows, strict=False))
            if isinstance(named, Row) and isinstance(numbered, Row) and named.first != numbered.first
        ]
        if not wrong:
            return
        order = find_order(self._misnamed.subset(range(len(search.questions))), expected, search.scale)
        known = "" if order is None else known_order(order, self.reference.vocabulary.labels)[0]
        text = f"the labels are not those of the class numbers beside them{known}"
        self.findings.append(Finding(fault="label-order", text=text))

    def _count(self, samples: Sequence[Sample], answers: Answers, search: Search, tolerances: np.ndarray) -> None:
        """How many images of each group are answered as the package does."""
        numbered = answers.by_number() or answers
        errors = self._errors(samples, numbered, search.base.setup, search.scale)
        self.largest = _largest(errors)
        for index, sample in enumerate(samples):
            same, asked = self.groups.get(sample.group, (0, 0))
            self.groups[sample.group] = (same + bool(errors[index] <= tolerances[index]), asked + 1)

    def _errors(self, samples: Sequence[Sample], answers: Answers, setup: Setup, scale: Scale) -> np.ndarray:
        search = Search(Questions(samples), answers, setup, scale, np.zeros(len(samples)))
        return search.base.errors

    def _special(
        self, samples: Sequence[Sample], answers: Answers, found: Explanation, search: Search, tolerances: np.ndarray
    ) -> None:
        """The groups that differ from plain images in one thing: what is the same but for what explains the plain ones."""
        preprocessing = self.reference.artifact.preprocessing
        assert preprocessing is not None, "it takes images"
        answers = answers.by_number() or answers
        slack = 3 * found.residual if found.hypotheses or not search.same(found) else 0.0
        for group in dict.fromkeys(sample.group for sample in samples):
            indices = [index for index, sample in enumerate(samples) if sample.group == group]
            self._refusals(group, [samples[index] for index in indices], answers.subset(indices))
            if group in (*CORE, GIVEN):
                continue
            part = Search(
                Questions([samples[index] for index in indices]),
                answers.subset(indices),
                found.setup,
                search.scale,
                tolerances[indices] + slack,
            )
            if part.same(part.base):
                continue
            best = part.best(of_group(group, preprocessing))
            if best is not None:
                self._add(part, best)
            else:
                wrong = part.base.errors > part.tolerances
                most = f"by up to {np.nanmax(part.base.errors):.0%} of what tells images apart"
                text = f"{group} images are answered otherwise, {most}, and nothing that was tried explains it"
                names = tuple(samples[index].name for index, bad in zip(indices, wrong, strict=True) if bad)
                self.findings.append(Finding(fault=_FAULT_OF.get(group, "unexplained"), text=text, images=names))

    def _refusals(self, group: str, samples: Sequence[Sample], answers: Answers) -> None:
        refused = [
            (sample.name, row.why) for sample, row in zip(samples, answers.rows, strict=True) if isinstance(row, Refusal)
        ]
        if refused:
            text = f"{len(refused)} of {len(samples)} {group} images are not answered: {refused[0][1]}"
            self.findings.append(Finding(fault="refused", text=text, images=tuple(name for name, _ in refused[:_LISTED])))

    def _other_outputs(self, rows: np.ndarray, answers: Answers) -> None:
        """The outputs beside the first, by their names; those that the endpoint does not have are said."""
        names = [spec.name for spec in self.reference.artifact.signature.outputs][1:]
        if not names:
            return
        expected = self.reference.outputs(rows)
        read = [index for index, row in enumerate(answers.rows) if isinstance(row, Row)]
        for name in names:
            given = [answers.rows[index].outputs.get(name) for index in read]  # type: ignore[union-attr]
            if any(one is None for one in given):
                self.findings.append(Finding(fault="output", text=f"it has no output {name!r}"))
                continue
            made, wanted = np.stack(given), expected[name][read]  # type: ignore[arg-type]
            if made.shape != wanted.shape:
                text = f"the output {name!r} has rows of shape {list(made.shape[1:])}, the package's {list(wanted.shape[1:])}"
                self.findings.append(Finding(fault="output", text=text))
            elif (error := relative_rms(wanted, made)) > self.tolerance:
                text = f"the output {name!r} is off by {error:.1%} of what tells rows apart"
                self.findings.append(Finding(fault="output", text=text))

    def _labels(self, endpoint: Inference, row: np.ndarray) -> None:
        """What a server that classifies calls its classes."""
        own = self.reference.vocabulary.labels
        self.asking.requests += 1
        if not own or (theirs := endpoint.labels(row)) is None:
            return
        wrong = {index: label for index, label in theirs.items() if not 0 <= index < len(own) or own[index] != label}
        if not wrong:
            return
        known = {label: number for number, label in enumerate(own)}
        order = tuple(known.get(theirs.get(number, ""), -1) for number in range(len(own)))
        if set(order) == set(range(len(own))):
            text = f"its labels are in another order{known_order(order, own)[0]}"
            self.findings.append(Finding(fault="label-order", text=text))
        else:
            shown = ", ".join(f"{index}: {label!r}" for index, label in list(wrong.items())[:_LISTED])
            self.findings.append(
                Finding(fault="labels", text=f"it calls classes by labels that are not the package's: {shown}")
            )

    def _judgement(self) -> Judgement:
        return Judgement(
            endpoint=self.endpoint.title,
            findings=tuple(self.findings),
            groups=self.groups,
            notes=tuple(dict.fromkeys(self.notes)),
            requests=self.asking.requests,
            largest=self.largest,
        )


_FAULT_OF = {"exif": "exif", "alpha": "alpha", "palette": "palette", "gray": "grayscale", "16-bit": "16-bit", "cmyk": "cmyk"}


def _largest(errors: np.ndarray) -> float:
    known = errors[np.isfinite(errors)]
    return float(known.max()) if known.size else 0.0


def _worst(search: Search) -> tuple[str, ...]:
    """The names of the images that are answered worst."""
    asked, errors = search.questions.asked, search.base.errors
    if isinstance(asked, np.ndarray):
        return ()
    order = sorted(range(len(asked)), key=lambda index: -np.nan_to_num(errors[index]))
    return tuple(asked[index].name for index in order if errors[index] > search.tolerances[index])[:_LISTED]
