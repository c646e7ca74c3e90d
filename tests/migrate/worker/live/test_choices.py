from collections.abc import Callable

import pytest
import torch
from torch import nn

from headrace.migrate.worker.live.choices import in_words
from headrace.migrate.worker.live.flow import Flow
from headrace.migrate.worker.live.seen import Seen

HERE = __file__.rpartition("/")[0]
GIVEN = torch.tensor(
    [[0.1, 2.0, -1.0, 0.5, 1.9], [3.0, 0.2, 0.1, -0.5, 2.8], [0.3, 0.1, 0.2, 4.0, 0.5], [1.0, 0.9, 0.2, 0.1, 0.3]]
)
OTHER = torch.tensor(
    [[2.0, 0.1, 0.0, 0.0, 0.0], [0.0, 0.0, 5.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0], [0.0, 6.0, 0.0, 0.0, 0.0]]
)
Use = Callable[[torch.Tensor], object]


def said(use: Use, given: torch.Tensor = GIVEN, *, evaluating: bool = True, other: torch.Tensor | None = None) -> list[str]:
    seen, value = Seen(module=nn.Linear(2, 2), ordinal=0, last=evaluating), given.clone()
    with Flow(HERE) as flow:
        flow.follow(seen, [((), value)])
        use(value)
    found = in_words(seen.chosen.get((), {}), seen.best_compared.get((), set()))
    assert all(where.startswith("test_choices.py:") for where in found)
    return list(found.values())


@pytest.mark.parametrize(
    "use",
    [
        lambda value: value.argmax(1),
        lambda value: value.softmax(1).max(1),
        lambda value: value.data.max(1, keepdim=True)[1],
        lambda value: torch.topk(torch.log_softmax(value, dim=-1), 3),
        lambda value: value.topk(2, 1, True, True)[1].t(),
        lambda value: [row.argmax() for row in value.softmax(1)],
        lambda value: (value / 2.5).argmax(1),  # the same class, and no score
        lambda value: (value.softmax(1) * 100).round().tolist(),
        lambda value: value.detach().cpu().numpy().argmax(1),
        lambda value: value.softmax(1)[:, 1].topk(2),  # the best images of one class
        lambda value: value.softmax(1).max(1).values.sort(),
        lambda value: (value - value.max(1, keepdim=True).values).exp(),
        lambda value: (value - value.max(1, keepdim=True).values).exp().argmax(1),
        lambda value: value.softmax(1).half().float().argmax(1),
        lambda value: value.double().softmax(1).argmax(1),
        lambda value: nn.functional.cross_entropy(value, value.argmax(1)),
        lambda value: (value + OTHER).max(),
        lambda value: (value.argmax(1) == torch.arange(4)).float().mean() > 0.5,
        lambda value: value.argmax(1) > 2,
    ],
)
def test_what_the_package_says_too_is_nothing_else(use: Use) -> None:
    assert said(use) == []


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda value: (value + OTHER).argmax(1), "another one is the largest for 3 of 4 images"),
        (lambda value: ((value.softmax(1) + OTHER.softmax(1)) / 2).max(1), "another one is the largest for 3 of 4 images"),
        (lambda value: (value + OTHER).numpy(), "another one is the largest for 3 of 4 images"),
        (
            lambda value: (value.__setitem__((slice(None), 1), -9.0), value.argmax(1)),
            "another one is the largest for 1 of 4 images",
        ),
        (
            lambda value: (value / 2.5).softmax(1).max(1),
            "the scores are others than the package's: 0.525 where that says 0.911",
        ),
        (lambda value: (1 - (-value).softmax(1)).max(1), "the scores are others than the package's"),
        (lambda value: value.softmax(1).softmax(1).max(1), "the scores are others than the package's"),
        (lambda value: value.sigmoid().max(1), "the scores are others than the package's"),
        (lambda value: value.argmin(1), "the smallest number"),
        (lambda value: value.topk(2, 1, False), "the smallest number"),
        (lambda value: value.softmax(1)[:, 1:].argmax(1), "4 numbers, where the model gives 5"),
        (lambda value: value.mean(0).softmax(0).max(0), "what it makes of 4 rows of the model's at once"),
        (lambda value: [row.max() > 0.5 for row in value.softmax(1)], "the best score is held against a number"),
    ],
)
def test_what_the_package_does_not_say_is_told(use: Use, expected: str) -> None:
    (found,) = said(use)
    assert expected in found


def test_half_precision_scores_are_those_of_the_model() -> None:
    halves = torch.tensor([[0.1, 2.0, -1.0], [3.0, 0.2, 2.9]], dtype=torch.bfloat16)
    assert said(lambda value: value.softmax(1).max(1), halves) == []
    assert said(lambda value: (value / 4).softmax(1).max(1), halves) != []


def test_while_it_trains_a_script_may_choose_as_it_likes() -> None:
    assert said(lambda value: value.argmin(1), evaluating=False) == []


def test_each_of_the_models_that_vote_is_told_of() -> None:
    first, second = Seen(module=nn.Linear(2, 2), ordinal=0, last=True), Seen(module=nn.Linear(2, 2), ordinal=1, last=True)
    one, two = GIVEN.clone(), OTHER.clone()
    with Flow(HERE) as flow:
        flow.follow(first, [((), one)])
        flow.follow(second, [((), two)])
        sum(value.softmax(1) for value in (one, two)).argmax(1)  # type: ignore[attr-defined]
    for seen in (first, second):
        (made,) = seen.chosen[()].values()
        assert made.form == "what 2 models give together"


def test_within_vmap_there_are_no_numbers_and_nothing_is_said() -> None:
    def chosen(value: torch.Tensor) -> torch.Tensor:
        seen = Seen(module=nn.Identity(), ordinal=0, last=True)
        with Flow(HERE) as flow:
            flow.follow(seen, [((), value)])
            found = (value + 1).softmax(1).argmax(1)
        assert seen.chosen == {}
        return found

    assert torch.equal(torch.func.vmap(chosen)(torch.stack([GIVEN, OTHER])), torch.stack([GIVEN, OTHER]).argmax(2))
