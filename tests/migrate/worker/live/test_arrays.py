"""What a script chooses from with NumPy, of a model's outputs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from headrace.migrate.worker.live.arrays import followed
from headrace.migrate.worker.live.choices import Chosen
from headrace.migrate.worker.live.flow import Flow
from headrace.migrate.worker.live.seen import Seen

GIVEN = torch.tensor([[0.1, 1.2, 0.3], [2.0, 1.8, 0.0]])
PENALTY = np.array([0.5, 0.0, 0.0], dtype=np.float32)


def shares(numbers: Any) -> Any:
    powers = np.exp(numbers)
    return powers / powers.sum(axis=1, keepdims=True)


def chosen_by(use: Callable[[Any], object]) -> Chosen:
    seen = Seen(module=nn.Linear(2, 2), ordinal=0, last=True)
    with Flow("/") as flow:
        flow.follow(seen, [((), GIVEN)])
        use(GIVEN)
    made = Chosen()
    for one in seen.chosen.get((), {}).values():
        made.add(one)
    return made


@pytest.mark.parametrize(
    "use",
    [
        lambda value: value.numpy().argmax(axis=1),
        lambda value: value.detach().cpu().numpy().argmax(1),
        lambda value: np.argmax(value.softmax(1).numpy(), axis=1),
        lambda value: np.argmax(shares(value.numpy()), axis=1),
        lambda value: np.argsort(value.numpy(), axis=1)[:, ::-1],
        lambda value: [row.argmax() for row in value.numpy()],
        lambda value: np.round(shares(value.numpy()), 2).argmax(1),
        lambda value: (100 * shares(value.numpy())).argmax(1),
        lambda value: value.numpy().astype(np.float64).argmax(-1),
        lambda value: (value.numpy() - 5 * PENALTY).max(),
        lambda value: (value.argmax(1).numpy() == 1).mean(),
    ],
)
def test_a_choice_by_what_the_model_gives_is_no_other(use: Callable[[Any], object]) -> None:
    made = chosen_by(use)
    assert (made.other, made.scores, made.form) == (0, None, "")


@pytest.mark.parametrize(
    "use",
    [
        lambda value: (value.numpy() - PENALTY).argmax(axis=1),
        lambda value: np.argmax(value.numpy() - PENALTY, axis=-1),
        lambda value: np.argsort(shares(value.numpy() - PENALTY))[:, -1],
    ],
)
def test_a_choice_by_other_numbers_is_counted(use: Callable[[Any], object]) -> None:
    assert chosen_by(use).other == 1


def test_other_scores_and_the_smallest_number_are_seen() -> None:
    assert chosen_by(lambda value: shares(value.numpy() / 3).argmax(1)).scores is not None
    assert "smallest" in chosen_by(lambda value: value.numpy().argmin(1)).form


def test_what_was_changed_before_is_told_once() -> None:
    made = chosen_by(lambda value: (value - torch.from_numpy(PENALTY)).numpy().argmax(1))
    assert (made.rows, made.other) == (2, 1)


def test_an_array_that_is_followed_is_as_any_other() -> None:
    plain = np.array([[1.0, 3.0], [2.0, 0.5]], dtype=np.float32)
    array = followed(plain, lambda *told: None)
    assert isinstance(array, np.ndarray)
    assert repr(array) == repr(plain)
    assert torch.equal(torch.from_numpy(array), torch.from_numpy(plain))
    for use in (
        lambda a: a.argmax(), lambda a: a.argmax(1), lambda a: a.argmin(axis=0), lambda a: a.argsort(),
        lambda a: np.argsort(a, axis=None),
        lambda a: np.argmax(a, axis=1, keepdims=True), lambda a: a.tolist(), lambda a: a[0, 1],
        lambda a: np.concatenate([a, a]),
    ):  # fmt: skip
        np.testing.assert_array_equal(use(array), use(plain))
