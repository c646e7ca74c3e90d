"""What a model takes beside its images, and whether its answers hang on that."""

from typing import Any

import pytest
import torch
from torch import nn

from headrace.errors import SandboxError
from headrace.migrate.reading.recipe import LiveModel
from headrace.migrate.worker.live.beside import left_out, numbers_beside, varies
from headrace.migrate.worker.live.scores import adapted
from headrace.migrate.worker.live.seen import Call, Seen

IMAGES = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
META = torch.tensor([[0.5, 1.0], [0.1, 0.0]])


class Net(nn.Module):
    """Adds what it is given beside, where there is any; or gives its loss with the targets."""

    def __init__(self, does: str = "adds") -> None:
        super().__init__()
        self.does, self.fc = does, nn.Linear(192, 2)
        self.eval()

    def forward(self, images: torch.Tensor, meta: Any = None, *, scale: float = 1.0) -> torch.Tensor:
        scores = self.fc(images.flatten(1)) * scale
        if self.does == "draws":
            return scores + torch.rand(2, 2)
        if self.does == "needs":
            return scores + meta
        return scores if meta is None or self.does == "ignores" else scores + meta


def call(*args: Any, site: str = "main.py:1", **kwargs: Any) -> Call:
    return Call(args[0], (0, 0), args, kwargs, site, training=False, grad=False, row=(3, 8, 8))


def refused(model: nn.Module, made: Call) -> str | None:
    live = LiveModel(class_name="Net", ordinal=0, evaluating=True, row=(3, 8, 8))
    return left_out(model, adapted(model, made, live), made, live.output)


@pytest.mark.parametrize("made", [call(IMAGES, META), call(IMAGES, meta=META)])
def test_a_model_that_answers_by_more_than_its_images_is_refused(made: Call) -> None:
    with pytest.raises(SandboxError, match=r"called with meta \[2, 2\] of each image .* and answers by these;"):
        refused(Net(), made)
    with pytest.raises(SandboxError, match="and answers by these;"):  # for other images than these, which have zeros
        refused(Net(), call(IMAGES, torch.zeros(2, 2)))
    with pytest.raises(SandboxError, match=r"and answers by these \(TypeError: "):
        refused(Net("needs"), made)


@pytest.mark.parametrize(
    ("does", "made"),
    [
        ("ignores", call(IMAGES, META)),  # as targets are by many
        ("draws", call(IMAGES, META)),  # says nothing
        ("adds", call(IMAGES)),
        ("adds", call(IMAGES, 0.5, scale=2.0)),  # which the package gives, too
        ("needs", call(IMAGES)),  # fails as it is called
    ],
)
def test_one_that_answers_by_its_images_is_not(does: str, made: Call) -> None:
    assert refused(Net(does), made) is None


def test_of_classes_that_are_known_where_it_is_evaluated_is_told_that_they_are_left_out() -> None:
    made = call(IMAGES, torch.tensor([[1], [0]]))
    assert refused(Net("ignores"), made) is None
    assert refused(Net(), made) == (
        "it is called with meta [2, 1] of each image beside the images, and answers by these; the package calls it without"
    )
    with pytest.raises(SandboxError, match=r"answers by these \(TypeError: "):
        refused(Net("needs"), made)


def test_arguments_that_change_with_the_images_are_named() -> None:
    seen = Seen(Net(), 0)
    first = call(IMAGES, 1.5, scale=1.0)
    seen.first[True] = first
    assert varies(seen, first) == {}
    assert varies(seen, call(IMAGES * 2, 1.5, scale=1.0)) == {}
    assert varies(seen, call(IMAGES, 0.75, scale=1.0)) == {"meta": "1.5 for one image and 0.75 for another"}
    assert varies(seen, call(IMAGES, 1.5, scale=2.0)) == {"scale": "1 for one image and 2 for another"}
    assert varies(seen, call(IMAGES, 0.75, scale=1.0, site="other.py:3")) == {}  # another use of it
    assert varies(seen, call(IMAGES, META)) == {}  # of the batch: found where it is packaged


def test_so_are_tensors_that_are_not_of_the_batch() -> None:
    seen = Seen(Net(), 0)
    seen.first[True] = call(IMAGES, torch.tensor(3.0))
    assert varies(seen, call(IMAGES, torch.tensor(3.0))) == {}
    assert varies(seen, call(IMAGES, torch.tensor(4.0))) == {"meta": "[3.0] for one image and [4.0] for another"}


def test_sparse_ones_are_left_alone() -> None:
    graph = torch.eye(3).to_sparse()
    model, made = Net("ignores"), call(IMAGES, graph)
    seen = Seen(model, 0)
    seen.first[True] = made
    assert varies(seen, call(IMAGES, 2 * graph)) == {}
    assert refused(model, made) is None


def test_numbers_of_the_only_call_are_named() -> None:
    made = call(IMAGES, 1.5, scale=torch.tensor(2.0))
    seen = Seen(Net(), 0)
    seen.sites["main.py:1", True] = 1
    assert numbers_beside(seen, made) == ("meta=1.5", "scale=[2.0]")
    assert numbers_beside(seen, call(IMAGES, True, scale="words")) == ()
    assert numbers_beside(seen, call(IMAGES, META)) == ()
    seen.sites["main.py:1", True] = 2
    assert numbers_beside(seen, made) == ()
