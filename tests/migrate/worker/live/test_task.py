"""What a script does with a model's outputs says what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.migrate.proving.worker_protocol import SeenModel
from headrace.migrate.reading.recipe import Recipe
from headrace.migrate.worker.live.model import see_models

pytestmark = pytest.mark.usefixtures("in_this_process")

NET = """
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Body(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3)

    def forward(self, images):
        return self.conv(images).mean((2, 3))


class Several(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.body, self.form = Body(4), form
        self.color, self.shape = nn.Linear(4, 3), nn.Linear(4, 5)

    def forward(self, images):
        features = self.body(images)
        return self.form(self.color(features), self.shape(features), features)


class Segment(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, images):
        return self.conv(images)


torch.manual_seed(0)
images = torch.rand(4, 3, 8, 8)
targets = torch.rand(4, 4).round()
"""


def seen(tmp_path: Path, text: str) -> SeenModel:
    (tmp_path / "run.py").write_text(NET + text)
    found = see_models(Recipe(root=str(tmp_path), script="run.py"))
    assert found.why is None, found
    (model,) = found.models
    return model


BODY = "model = Body(4).eval()\nwith torch.no_grad():\n    out = model(images)\n"


@pytest.mark.parametrize(
    ("reading", "task"),
    [
        ("out.argmax(1)", "single-label"),
        ("out.softmax(1) > 0.5", "single-label"),
        ("out.topk(2)", "single-label"),
        ("torch.sigmoid(out) > 0.5", "multi-label:0.5"),
        ("(torch.sigmoid(out) >= 0.3).int()", "multi-label:0.3"),
        ("0.7 < out.sigmoid().cpu()", "multi-label:0.7"),
        ("torch.sigmoid(out).gt(torch.tensor([0.1, 0.2, 0.3, 0.4]))", "multi-label:0.1/0.2/0.3/0.4"),
        ("torch.round(torch.sigmoid(out))", "multi-label:0.5"),
        ("nn.Sigmoid()(out) > 0.4; out.argmax(1)", "multi-label:0.4"),
        ("out > 0", "multi-label:0.5"),
        ("F.binary_cross_entropy_with_logits(out, targets); out > 0", "multi-label:0.5"),
        ("F.binary_cross_entropy_with_logits(out, targets); out.argmax(1)", "single-label"),
        ("nn.BCEWithLogitsLoss()(out, targets)", "multi-label"),
        ("[torch.sigmoid(out) > t for t in (0.1, 0.2, 0.3)]", "multi-label"),
        ("torch.sigmoid(out).numpy() > 0.3", "multi-label"),
        ("torch.sigmoid(out).topk(2)", "multi-label"),
        ("F.cosine_similarity(out[:1], out[1:])", "embedding"),
        ("(F.normalize(out) @ F.normalize(out).T).argmax(1)", "embedding"),
        ("torch.cdist(out, out).topk(2, largest=False)", "embedding"),
        ("nn.TripletMarginLoss()(out[:1], out[1:2], out[2:3])", "embedding"),
        ("F.mse_loss(out, targets)", "raw"),
        ("out.tolist()", ""),
    ],
)
def test_what_reads_an_output_says_what_it_is(tmp_path: Path, reading: str, task: str) -> None:
    model = seen(tmp_path, BODY + reading)
    assert model.tasks == (task,)
    assert model.widths == (4,)


@pytest.mark.parametrize(
    ("reading", "task", "width"),
    [
        ("torch.sigmoid(out) > 0.4", "multi-label:0.4", 1),
        ("nn.BCEWithLogitsLoss()(out, torch.ones(4))", "multi-label", 1),
        ("F.mse_loss(out, torch.ones(4))", "", None),
        ("out.tolist()", "", None),
    ],
)
def test_one_number_for_each_image_is_the_score_of_a_label_where_it_is_read_so(
    tmp_path: Path, reading: str, task: str, width: int | None
) -> None:
    model = seen(tmp_path, f"model = nn.Sequential(Body(1), nn.Flatten(0)).eval()\nout = model(images)\n{reading}")
    assert (model.tasks, model.widths, model.live.column) == ((task,), (width,), width == 1)


@pytest.mark.parametrize(
    ("form", "reading", "place", "tasks", "widths"),
    [
        ("lambda c, s, f: (c, s)", "out[0].argmax(1), out[1].argmax(1)", None, ("single-label", "single-label"), (3, 5)),
        ("lambda c, s, f: {'c': c, 's': s}", "out['c'].argmax(1), out['s'].sigmoid() > 0.2", None,
         ("single-label", "multi-label:0.2"), (3, 5)),
        ("lambda c, s, f: (c, f)", "out[0].argmax(1)", (0,), ("single-label",), (3,)),
        ("lambda c, s, f: (f, c)", "out[1].argmax(1)", (1,), ("single-label",), (3,)),
        ("lambda c, s, f: {'features': f, 'scores': c}", "out['scores'].softmax(1)", ("scores",), ("single-label",), (3,)),
        ("lambda c, s, f: (c, f)", "out[0].argmax(1), F.normalize(out[1])", None, ("single-label", "embedding"), (3, 4)),
        ("lambda c, s, f: (c, [s, f])", "out[0].argmax(1), out[1][0].argmax(1)", None,
         ("single-label", "single-label", ""), (3, 5, 4)),
    ],
)  # fmt: skip
def test_of_several_parts_those_are_taken_that_are_asked_for(
    tmp_path: Path, form: str, reading: str, place: tuple[object, ...] | None, tasks: tuple[str, ...], widths: tuple[int, ...]
) -> None:
    model = seen(tmp_path, f"model = Several({form}).eval()\nout = model(images)\n{reading}")
    assert model.live.output == place
    assert (model.tasks, model.widths) == (tasks, widths)


def test_a_probability_that_the_model_gives_itself_is_compared_as_it_is(tmp_path: Path) -> None:
    model = seen(tmp_path, "model = nn.Sequential(Body(4), nn.Sigmoid()).eval()\nout = model(images)\nout > 0.3")
    assert model.tasks == ("multi-label:0.3",)


def test_a_map_is_said_to_be_one(tmp_path: Path) -> None:
    model = seen(tmp_path, "model = Segment().eval()\nmodel(images).argmax(1)")
    assert (model.tasks, model.widths, model.classes) == (("dense",), (None,), None)


def test_a_map_that_nothing_takes_for_classes_is_nothing(tmp_path: Path) -> None:
    assert seen(tmp_path, "model = Segment().eval()\nF.mse_loss(model(images), torch.rand(4, 4, 8, 8))").tasks == ("",)


def test_what_learns_with_a_head_of_its_own_and_is_compared_without_it_feeds_nothing(tmp_path: Path) -> None:
    text = """
model, margin = Body(4), nn.Linear(4, 9)
optimizer = torch.optim.SGD([*model.parameters(), *margin.parameters()], lr=0.1)
F.cross_entropy(margin(F.normalize(model(images))), torch.arange(4)).backward()
optimizer.step()
model.eval()
with torch.no_grad():
    one, other = model(images[:2]), model(images[2:])
F.cosine_similarity(one, other)
"""
    model = seen(tmp_path, text)
    assert (model.tasks, model.feeds, model.live.evaluating) == (("embedding",), (), True)


def test_each_head_has_its_labels_where_they_are_its_alone(tmp_path: Path) -> None:
    text = """
class_names = ["red", "green", "blue"]
shape_labels = ["disc", "ring", "bar", "dot", "star"]
model = Several(lambda c, s, f: (c, s)).eval()
for head in model(images):
    head.argmax(1)
"""
    assert seen(tmp_path, text).labels == (("red", "green", "blue"), ("disc", "ring", "bar", "dot", "star"))


def test_heads_of_one_size_have_the_lists_that_are_called_as_they_are(tmp_path: Path) -> None:
    text = """
COLORS = ["red", "green", "blue"]
sizes_names = ["small", "medium", "large"]
class_names = ["a", "b", "c"]
model = Several(lambda c, s, f: {"color": c, "size": c + 1, "other": c + 2}).eval()
for head in model(images).values():
    head.argmax(1)
"""
    assert seen(tmp_path, text).labels == (("red", "green", "blue"), ("small", "medium", "large"), None)


def test_one_label_is_the_second_of_two(tmp_path: Path) -> None:
    text = "classes = ['cat', 'dog']\nmodel = Body(1).eval()\ntorch.sigmoid(model(images)) > 0.5"
    model = seen(tmp_path, text)
    assert (model.tasks, model.labels) == (("multi-label:0.5",), (("dog",),))


@pytest.mark.parametrize(
    ("reading", "said"),
    [
        ("out.sigmoid() > 0.3", ""),
        ("[row.max(0).values > 0.3 for row in out.sigmoid()]", "the best label alone is held against a number"),
        ("[row.max(0).values > 0.3 for row in out.softmax(1)]", "the best score is held against a number"),
    ],
)
def test_a_best_score_that_is_held_against_a_number_is_told(tmp_path: Path, reading: str, said: str) -> None:
    found = [what for _, what in seen(tmp_path, f"{BODY}    found = {reading}\n").otherwise]
    assert [what.startswith(said) for what in found] == ([True] if said else [])
