import numpy as np
import pytest

from headrace.migrate.stages.model.printed_scores import ScoredOtherwise, scored_otherwise

LABELS = ("ant", "bee", "cat")
OUTPUTS = np.array([[2.0, 0.1, 0.3], [0.2, 3.1, -1.0], [0.0, 0.4, 0.9], [-0.5, 1.7, 0.2], [4.0, 0.3, 0.1]])
OUTPUTS = np.concatenate([OUTPUTS, 0.6 * OUTPUTS + [[0.1, 0.0, 0.2]]])
BEST = OUTPUTS.argmax(1)


def softmax(outputs):
    powers = np.exp(outputs - outputs.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


SHARES = softmax(OUTPUTS)


def printed(numbers, form="{name} {label} {number:.4f}"):
    return "\n".join(
        form.format(name=f"{at}.jpg", label=LABELS[best], number=number)
        for at, (best, number) in enumerate(zip(BEST, numbers, strict=True))
    )


@pytest.mark.parametrize(
    "text",
    [
        printed(SHARES.max(1)),
        printed(SHARES.max(1), "{label} ({number:.1%}) {name}"),
        printed(SHARES.max(1), "{label} {number:.0%}"),
        printed(SHARES.max(1), "{label} {number:.1f}"),
        printed(SHARES.max(1) - 0.04, "{label} {number:.1f}"),  # cut, not rounded
        printed((100 * SHARES.max(1)).round()),  # of whole percents four decimals are printed
        printed(OUTPUTS.max(1)),
        printed(np.log(SHARES.max(1))),
        printed(-np.log(SHARES.max(1))),
        printed(SHARES[:, 0], "{label} P(ant) = {number:.3f}"),
        printed(np.sort(SHARES, 1)[:, 1], "{label} second: {number:.3f}"),
        printed([0.91, 0.92, 0.40, 0.93, 0.41] * 2, "{label} {number:.2f}"),  # goes with nothing
        printed(SHARES.max(1) - 0.1, "{label} {number:.3f} s"),
        printed(SHARES.max(1) - 0.1, "{label} in {number:.3f} seconds"),
        printed(SHARES.max(1) + 5),
        printed([0.7] * 10),
        printed(BEST, "{label} {number}"),
        printed(SHARES.max(1) - 0.1, "{name} {number:.4f}"),
        "\n".join(f"{LABELS[best]} {row[0]:.3f} {row[1]:.3f} {row[2]:.3f}" for best, row in zip(BEST, SHARES, strict=True)),
        "ant 0.5\n",
        "",
    ],
)
def test_what_the_model_gives_and_what_is_no_score_is_nothing_else(text):
    assert scored_otherwise(text, LABELS, OUTPUTS) is None


@pytest.mark.parametrize("temperature", [0.5, 3.0])
@pytest.mark.parametrize("form", ["{name} {label} {number:.4f}", "{label} {number:.1%}", "{name},{label},{number:.3f},1.5"])
def test_other_scores_are_seen(temperature, form):
    other = softmax(OUTPUTS / temperature).max(1)
    found = scored_otherwise(printed(other, form), LABELS, OUTPUTS)
    worst = np.abs(other - SHARES.max(1)).argmax()
    assert found == ScoredOtherwise(
        pytest.approx(other[worst], abs=1e-3), LABELS[BEST[worst]], pytest.approx(SHARES.max(1)[worst]), 10, 10
    )


def test_of_the_best_few_of_each_image_the_score_of_the_first_is_held_to_the_package():
    def ranked(shares):
        return "\n".join(
            f"{at + 1}. {LABELS[index]}: {row[index]:.3f}" for row in shares for at, index in enumerate(row.argsort()[::-1][:2])
        )

    assert scored_otherwise(ranked(SHARES), LABELS, OUTPUTS) is None
    assert scored_otherwise(ranked(softmax(OUTPUTS / 2)), LABELS, OUTPUTS) is not None


def test_scores_that_were_calibrated_by_a_table_are_seen():
    found = scored_otherwise(printed(np.interp(SHARES.max(1), [0.3, 1], [0.05, 0.7])), LABELS, OUTPUTS)
    assert found is not None
    assert (found.rows, found.count) == (10, 10)


def test_outputs_that_are_shares_are_no_logits():
    assert scored_otherwise(printed(SHARES.max(1)), LABELS, SHARES) is None
    assert scored_otherwise(printed(softmax(SHARES).max(1)), LABELS, SHARES) is not None


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a.jpg: ant (0.52)", True),
        ("ant, 52 %", True),
        ("ant\tin.jpg confidence = 0.52", True),
        ("ant, scale 0.52", False),
        ("ant (0.75)", False),
        ("ant 0.12", False),
    ],
)
def test_of_one_image_a_number_that_is_called_a_score_is_enough(text, seen):
    assert (scored_otherwise(text, LABELS, OUTPUTS[:1]) is not None) == seen
