"""Forms in which applications write answers: each is found from some images and says the rest; where two fit, nothing is
guessed."""

import numpy as np
import pytest

from headrace.migrate.worker.routes.agree import Disagreement, check
from headrace.migrate.worker.routes.infer import NoTemplateError, infer, varied
from headrace.runtime.artifact.routes.answer_template import Answered, Best, BestByName, Constant, Name, Object, Pick, Text

LABELS = ("tabby cat", "dog", "owl", "red 2", "fox")
CODES = ("n01", "n02", "n03", "n04", "n05")


def images(count=24, seed=0, scale=2.0, tables=(LABELS,)):
    random = np.random.default_rng(seed)
    return [Answered(random.normal(0, scale, 5).astype(np.float32), tables, f"p{number}.jpg") for number in range(count)]


def shares(one):
    """As torch computes them: float32, in another order."""
    exponents = np.exp(one.row.astype(np.float32) - one.row.astype(np.float32).max())
    return exponents / exponents.sum(dtype=np.float32)


def best(one, rank=0):
    return int(np.argsort(-one.row)[rank])


def top(one, rank=0):
    return float(shares(one)[best(one, rank)])


FORMS = {
    "a label": lambda one: LABELS[best(one)],
    "an index": lambda one: {"class": best(one)},
    "an index as a text": lambda one: {"class": str(best(one))},
    "an exact share": lambda one: {"label": LABELS[best(one)], "p": top(one)},
    "a rounded share": lambda one: [LABELS[best(one)], round(top(one), 3)],
    "a percentage": lambda one: {"ok": True, "none": None, "p": round(top(one) * 100, 2)},
    "a percentage without decimals": lambda one: {"p": round(top(one) * 100)},
    "a text with two decimals": lambda one: {"p": f"{top(one):.2f}"},
    "a text with a sign": lambda one: {"p": f"{top(one) * 100:.1f}%"},
    "a text as str writes it": lambda one: {"p": str(round(top(one), 4))},
    "a sentence": lambda one: {"text": f"It is a {LABELS[best(one)]} ({top(one) * 100:.2f} %), surely 100"},
    "a sentence with an index": lambda one: {"text": f"class #{best(one)}: {LABELS[best(one)]}"},
    "the file": lambda one: {"file": one.file_name, "label": LABELS[best(one)], "text": f"of {one.file_name}"},
    "an output as it is": lambda one: {"score": float(np.float32(one.row[best(one)]))},
    "all outputs": lambda one: {"scores": one.row.astype(np.float32).tolist()},
    "all shares in the order of the classes": lambda one: {"probabilities": shares(one).tolist()},
    "all shares by label": lambda one: dict(zip(LABELS, [round(float(p), 4) for p in shares(one)], strict=True)),
    "the share of one class": lambda one: {"owl": float(shares(one)[2])},
    "the best by label": lambda one: {LABELS[best(one, rank)]: round(top(one, rank), 4) for rank in range(3)},
    "the best in a list": lambda one: {
        "top": [{"rank": rank + 1, "label": LABELS[best(one, rank)], "p": top(one, rank)} for rank in range(3)]
    },
    "the best in pairs": lambda one: [[LABELS[best(one, rank)], f"{top(one, rank):.3f}"] for rank in range(5)],
    "two lists": lambda one: {
        "labels": [LABELS[best(one, rank)] for rank in range(2)], "p": [round(top(one, rank), 2) for rank in range(2)]
    },
    "a list of other things": lambda one: ["ok", 1, LABELS[best(one)]],
    "a sigmoid": lambda one: {"p": float(1 / (1 + np.exp(-np.float32(one.row[best(one)]))))},
    "nested": lambda one: {"result": {"data": [{"prediction": {"name": LABELS[best(one)]}}]}, "version": "1.2", "count": 1},
    "numbers that are constants": lambda one: {"label": LABELS[best(one)], "model": "net-v1", "of": "3 of 5", "limit": 1.0,
    "n": 1}, "empty": lambda one: {"label": LABELS[best(one)], "extra": [], "more": {}},
}  # fmt: skip


@pytest.mark.parametrize("say", FORMS.values(), ids=FORMS)
def test_the_form_is_found_and_says_of_other_images_what_the_application_says(say):
    seen, fresh = images(), images(60, seed=1)
    template = infer([say(one) for one in seen], seen)
    for one in fresh:
        check(template, say(one), one)


def test_names_of_another_table_are_told_from_the_labels():
    def say(one):
        return {"class_id": CODES[best(one)], "class_name": LABELS[best(one)]}

    seen = images(tables=(LABELS, CODES))
    template = infer([say(one) for one in seen], seen)
    assert template == Object(members=(("class_id", Name(pick=Pick(rank=0), table=1)), ("class_name", Name(pick=Pick(rank=0)))))


REFUSED = {
    "a threshold": (
        lambda one: {"label": LABELS[best(one)] if top(one) > 0.6 else "unknown"},
        "'label'.*no label and no score",
    ),
    "another arithmetic": (lambda one: {"p": top(one) ** 2}, "'p'.*neither a score nor an index"),
    "a number cut off": (lambda one: {"p": int(top(one) * 100)}, "'p'.*neither a score nor an index"),
    "as many as are sure": (lambda one: [LABELS[index] for index in range(5) if shares(one)[index] > 0.15], "its length"),
    "another kind": (lambda one: {"x": LABELS[best(one)] if top(one) > 0.6 else ["none"]}, "'x' is not always of one kind"),
    "members that come and go": (lambda one: {"a": 1} if top(one) > 0.6 else {"b": 1}, "the members of the answer differ"),
    "a name of no class": (lambda one: {"n": LABELS[best(one)].upper()}, "'n'.*no label and no score"),
    "a flag": (lambda one: {"sure": bool(top(one) > 0.6)}, "'sure'"),
}


@pytest.mark.parametrize(("say", "why"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_form_is_refused_with_the_member(say, why):
    seen = images()
    with pytest.raises(NoTemplateError, match=why):
        infer([say(one) for one in seen], seen)


def test_what_cannot_be_told_is_not_guessed():
    sure = [Answered(np.where(np.arange(5) == number % 2, 90.0, -90.0), (LABELS,)) for number in range(12)]
    with pytest.raises(NoTemplateError, match=r"'p' is 1.0 for every image .* whether it is a constant or a score"):
        infer([{"p": 1.0} for _ in sure], sure)
    with pytest.raises(NoTemplateError, match=r"holds 100.00 for every image .* cannot be told"):
        infer([{"p": "100.00%"} for _ in sure], sure)
    first = [Answered(np.array([9.0, number / 9, 0, 0, 0]), (LABELS,)) for number in range(12)]
    with pytest.raises(NoTemplateError, match="a constant or the name of the best class"):
        infer([{"label": LABELS[0]} for _ in first], first)
    assert (varied(sure), varied(first)) == (2, 1)


def test_a_form_that_holds_for_some_images_is_contradicted_by_others():
    def say(one):
        return {"label": LABELS[best(one)] if top(one) > 0.3 else "unknown"}

    sure = [one for one in images(200) if top(one) > 0.4][:24]
    template = infer([say(one) for one in sure], sure)
    unsure = next(one for one in images(500, scale=0.3) if top(one) < 0.3)
    with pytest.raises(Disagreement, match='label is "unknown"'):
        check(template, say(unsure), unsure)


def test_lists_are_written_once_for_all_their_items():
    seen = images()
    assert isinstance(infer([FORMS["the best in pairs"](one) for one in seen], seen), Best)
    assert isinstance(infer([FORMS["the best by label"](one) for one in seen], seen), BestByName)
    text = infer([FORMS["a sentence"](one) for one in seen], seen).members[0][1]
    assert isinstance(text, Text)
    assert text.parts[0] == Constant(value="It is a ")
