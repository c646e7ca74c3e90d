from collections.abc import Callable

import pytest
import torch
from torch import nn

from headrace.migrate.worker.live.flow import Flow
from headrace.migrate.worker.live.seen import Limit, Seen

Made = Callable[[torch.Tensor], torch.Tensor]


def followed(use: Callable[[torch.Tensor], object], given: torch.Tensor | None = None) -> Seen:
    seen, value = Seen(module=nn.Linear(2, 2), ordinal=0), torch.rand(4, 5) if given is None else given
    with Flow() as flow:
        flow.follow(seen, [((), value)])
        use(value)
    return seen


def test_who_reads_an_output_is_noted_through_the_functions_between() -> None:
    seen = followed(lambda value: (value.softmax(1) * 2).max(1))
    assert dict(seen.reads[()]) == {"softmax": 1, "mul": 1, "argmax": 1}


def test_what_reads_a_comparison_with_others_is_not_said_of_one() -> None:
    seen = followed(lambda value: torch.mm(value, torch.rand(5, 3)).argmax(1))
    assert "argmax" not in seen.reads[()]


def test_what_a_model_does_to_what_it_gave_before_is_no_judgement_of_that() -> None:
    """An energy's gradient became its next images, and its own sigmoid was said to be taken of the energy."""
    seen, value = Seen(module=nn.Linear(2, 2), ordinal=0), torch.rand(4, 5)
    with Flow() as flow:
        flow.follow(seen, [((), value)])
        flow.running = seen
        value.sigmoid()
        flow.running = None
        assert seen.reads == {}
        value.softmax(1)
    assert dict(seen.reads[()]) == {"softmax": 1}


def test_limits_are_noted_and_whether_they_are_of_probabilities() -> None:
    seen = followed(lambda value: (value.sigmoid() > 0.25, value > torch.arange(5.0)))
    columns = Limit((0.0, 1.0, 2.0, 3.0, 4.0), after_sigmoid=False)
    assert set(seen.limits[()]) == {Limit((0.25,), after_sigmoid=True), columns}


@pytest.mark.parametrize(
    "measure",
    [
        lambda value: nn.functional.mse_loss(value, torch.zeros(4, 5)),
        lambda value: nn.functional.l1_loss(value, torch.zeros(4, 5)).sqrt(),
        lambda value: nn.functional.cross_entropy(value, torch.arange(4)),
        lambda value: (value.argmax(1) == torch.arange(4)).float().mean(),
    ],
)
def test_a_loss_or_an_accuracy_that_is_compared_with_the_best_is_no_limit_of_an_output(measure: Made) -> None:
    seen = followed(lambda value: measure(value) < float("inf"))
    assert seen.limits == {}
    assert seen.reads[()]
    assert followed(lambda value: [row.max() > 0.5 for row in value]).limits


@pytest.mark.parametrize(
    ("become", "expected"),
    [
        (lambda value: value, ("given", False)),
        (lambda value: value.flatten(1), ("given", True)),
        (lambda value: value.reshape(len(value), -1), ("given", True)),
        (lambda value: value.flatten(1).clone(), ("given", True)),
        (lambda value: value.detach(), ("given", False)),
        (lambda value: nn.Dropout().eval()(value).flatten(1), ("given", True)),
        (lambda value: nn.Dropout().train()(value).flatten(1), None),
        (lambda value: value.flatten(1).double(), None),
        (lambda value: value.flatten(1).clamp(-100, 100), None),
        (lambda value: value.clamp_(-100, 100), None),
        (lambda value: value.mul_(2).flatten(1), None),
        (lambda value: value.data.mul_(2).flatten(1), None),
        (lambda value: value.flatten(1) * 2, None),
        (lambda value: value.mean((2, 3)), None),
        (lambda value: value.relu(), None),
        (lambda value: value.flatten(1)[:2], None),
        (lambda value: value.flatten(), None),
        (lambda value: torch.rand(4, 12), None),
    ],
)
def test_a_value_is_a_models_output_or_that_flattened(become: Made, expected: tuple[str, bool] | None) -> None:
    seen, given = Seen(module=nn.Linear(2, 2), ordinal=0), torch.randn(4, 3, 2, 2)
    with Flow() as flow:
        flow.follow(seen, [(("given",), given)])
        value = become(given)
        source = flow.source(value)
        reads = {name for names in seen.reads.values() for name in names}
        assert flow.source(value) == source
    assert source == ((seen, ("given",), expected[1]) if expected is not None else None)
    assert not reads & {"equal", "dim", "numel"}  # the question is none of the script's


def test_a_value_without_numbers_is_nobodys() -> None:
    given = torch.rand(4, 3, device="meta")
    with Flow() as flow:
        flow.follow(Seen(module=nn.Linear(2, 2), ordinal=0), [((), given)])
        assert flow.source(given) is None


def test_only_the_latest_outputs_of_a_model_are_followed() -> None:
    seen, first, second = Seen(module=nn.Linear(2, 2), ordinal=0), torch.rand(4, 5), torch.rand(4, 5)
    with Flow() as flow:
        flow.follow(seen, [((), first)])
        flow.follow(seen, [((), second)])
        assert flow.source(first) is None
        assert flow.source(second) == (seen, (), False)
