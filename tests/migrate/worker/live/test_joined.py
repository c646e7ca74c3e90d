"""A classifier whose parts a script calls one after the other is one model."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from headrace.migrate.proving.worker_protocol import SeenModel
from headrace.migrate.reading.recipe import Recipe
from headrace.migrate.worker.live.model import see_models, take_model

pytestmark = pytest.mark.usefixtures("in_this_process")

PARTS = """
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(3)
loader = DataLoader([(torch.rand(3, 8, 8), number % 5) for number in range(8)], batch_size=4)


class Body(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2))


class Head(nn.Module):
    def __init__(self, numbers=16):
        super().__init__()
        self.fc = nn.Linear(numbers, 5)

    def forward(self, features):
        return self.fc(features.flatten(1))
"""
LOOP = """
body, head = Body().eval(), Head().eval()
with torch.no_grad():
    for images, targets in loader:
        {call}
        print((scores.argmax(1) == targets).sum())
"""
TRAINER = """
class Trainer:
    def __init__(self):
        self.body, self.classifier = nn.DataParallel(Body()), Head()

    def train(self):
        for images, targets in loader:
            scores = self.classifier(self.body(images))
            nn.functional.cross_entropy(scores, targets).backward()
            self.optimizer.step()

    @torch.no_grad()
    def evaluate(self):
        self.body.eval(), self.classifier.eval()
        for images, targets in loader:
            print(self.classifier(self.body(images)).argmax(1))

trainer = Trainer()
trainer.optimizer = torch.optim.SGD([*trainer.body.parameters(), *trainer.classifier.parameters()], lr=0.1)
trainer.train()
trainer.evaluate()
"""
AROUND = """
class Around(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = Body(), Head()

    def validation_step(self, batch):
        features = self.backbone(batch[0])
        return self.head(features).argmax(1)

around = Around().eval()
with torch.no_grad():
    for batch in loader:
        print(around.validation_step(batch))
"""


def script(tmp_path: Path, text: str) -> Recipe:
    (tmp_path / "run.py").write_text(PARTS + text)
    return Recipe(root=str(tmp_path), script="run.py")


def whole(recipe: Recipe) -> SeenModel:
    """The model that classifies, of those that were seen."""
    found = see_models(recipe)
    assert found.why is None, found
    (model,) = [model for model in found.models if not model.feeds]
    return model


@pytest.mark.parametrize(
    "call",
    [
        "scores = head(body(images))",
        "features = body(images).flatten(1); scores = head(features)",
        "features = body(images); scores = head(features.view(features.size(0), -1))",
        "features = torch.flatten(body(images), start_dim=1); scores = head.fc(features)",
        "scores = nn.Softmax(1)(head(nn.Flatten()(body(images))))",
    ],
)
@pytest.mark.parametrize("mode", [pytest.param("no_grad", marks=pytest.mark.slow), "inference_mode"])
def test_parts_that_are_called_one_after_the_other_are_one_model(tmp_path: Path, call: str, mode: str) -> None:
    recipe = script(tmp_path, LOOP.format(call=call).replace("no_grad", mode))
    model = whole(recipe)
    assert (model.live.class_name.split("_")[0], model.live.row, model.classes) == ("Body", (3, 8, 8), 5)
    assert model.tasks == ("single-label",)
    assert not model.trained
    taken = take_model(replace(recipe, live=replace(model.live, random=True)))
    images = torch.rand(3, 3, 8, 8)
    body, head = taken.parts()
    assert torch.equal(taken(images), head(body(images).flatten(1)))
    assert taken(images).shape == (3, 5)
    program = torch.export.export(taken, (images,), dynamic_shapes={"images": {0: torch.export.Dim("n")}}, strict=False)
    assert torch.allclose(program.module()(images[:2]), taken(images[:2]))


def test_the_parts_have_the_names_by_which_the_script_has_them(tmp_path: Path) -> None:
    recipe = script(tmp_path, TRAINER)
    model = whole(recipe)
    assert (model.live.evaluating, model.trained, model.calls, model.site) == (True, True, 2, "run.py:37")
    taken = take_model(replace(recipe, live=replace(model.live, random=True)))
    assert [name for name, _ in taken.named_children()] == ["body", "classifier"]
    assert not any(part.training for part in taken.modules())


def test_a_checkpoint_of_the_module_around_them_fits(tmp_path: Path) -> None:
    recipe = script(tmp_path, AROUND)
    space: dict[str, object] = {"__name__": "run"}
    exec((tmp_path / "run.py").read_text(), space)
    state = {name: torch.rand(value.shape) if value.dim() else value for name, value in space["around"].state_dict().items()}  # type: ignore[attr-defined]
    torch.save({"state_dict": state}, tmp_path / "given.ckpt")
    os.utime(tmp_path / "given.ckpt", (1e9, 1e9))
    recipe = replace(recipe, checkpoint=str(tmp_path / "given.ckpt"))
    model = whole(recipe)
    assert model.fits
    taken = take_model(replace(recipe, live=model.live))
    assert all(torch.equal(value, state[name]) for name, value in taken.state_dict().items())


def test_weights_of_the_users_files_are_those_of_the_parts(tmp_path: Path) -> None:
    load = "saved = torch.load('parts.pth')\nbody.load_state_dict(saved['body'])\nhead.load_state_dict(saved['head'])\n"
    text = LOOP.format(call="scores = head(body(images))").replace("with torch", load + "with torch", 1)
    recipe = script(tmp_path, text)
    space: dict[str, object] = {"__name__": "run"}
    exec(PARTS + "\nbody, head = Body(), Head()\n", space)
    state = {name: space[name].state_dict() for name in ("body", "head")}  # type: ignore[attr-defined]
    torch.save(state, tmp_path / "parts.pth")
    os.utime(tmp_path / "parts.pth", (1e9, 1e9))
    taken = take_model(replace(recipe, live=whole(recipe).live))  # without random ones
    for name, part in taken.named_children():
        assert all(torch.equal(value, state[name][key]) for key, value in part.state_dict().items())


def test_several_parts_are_joined_and_what_an_output_holds_is_followed(tmp_path: Path) -> None:
    text = """
class Tells(Body):
    def forward(self, images):
        return {"maps": super().forward(images), "size": images.shape[-1]}

class Neck(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 7)
    def forward(self, maps):
        return [self.fc(maps.flatten(1)), maps]

body, neck, head = Tells().eval(), Neck().eval(), Head(7).eval()
with torch.no_grad():
    for images, targets in loader:
        print(head(neck(body(images)["maps"])[0]).argmax(1))
"""
    recipe = script(tmp_path, text)
    model = whole(recipe)
    assert model.live.class_name == "Tells_Neck_Head"
    taken = take_model(replace(recipe, live=replace(model.live, random=True)))
    assert [name for name, _ in taken.named_children()] == ["body", "neck", "head"]
    images = torch.rand(3, 3, 8, 8)
    assert torch.equal(taken(images), taken.head(taken.neck(taken.body(images)["maps"])[0]))


@pytest.mark.parametrize(
    "call",
    [
        "scores = head(torch.relu(body(images)))",
        "scores = head(body(images) / 2)",
        "scores = head(body(images).flip(0))",
        "scores = head(body(images).flatten(1).roll(1, 1))",
        "scores = head.half()(body(images).flatten(1).half()).float()",
        "scores = head.double()(body(images).double())",
    ],
)
@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_what_the_script_computes_between_is_not_left_out(tmp_path: Path, call: str, mode: str) -> None:
    found = see_models(script(tmp_path, LOOP.format(call=call).replace("no_grad", mode)))
    assert [(model.live.class_name, model.feeds != ()) for model in found.models] == [("Body", True)]


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
@pytest.mark.parametrize(
    "change",
    [
        "features.mul_(2)",
        "features += 1",
        "features[:, 0] = 0",
        "features[:, :1].mul_(2)",
        "features.data.mul_(2)",
        "features.numpy()[:] = 0",
        "torch.mul(features, 2, out=features)",
        "features.clamp_(max=1e9)",  # which changes none of these, and may others
        "features[features > 1e9] = 0",
        "features = features.clamp(max=1e9).flatten(1)",
        "features = (features.flatten(1) * gate).clone()",
        "features = features.flatten(1).clamp_(max=1e9)",
    ],
)
def test_what_the_script_changes_in_an_output_is_not_left_out(tmp_path: Path, change: str, mode: str) -> None:
    text = LOOP.format(call=f"gate = torch.ones(1); features = body(images); {change}; scores = head(features)")
    found = see_models(script(tmp_path, text.replace("no_grad", mode)))
    assert [(model.live.class_name, model.feeds != ()) for model in found.models] == [("Body", True)]


def test_features_that_a_head_changes_are_others_for_the_next_one(tmp_path: Path) -> None:
    text = """
class Clipped(Head):
    def forward(self, features):
        return super().forward(features.clamp_(max=0.1))

body, clipped, head = Body().eval(), Clipped().eval(), Head().eval()
with torch.no_grad():
    for images, targets in loader:
        features = body(images)
        print(clipped(features).argmax(1), head(features).argmax(1))
"""
    found = see_models(script(tmp_path, text))
    assert [model.live.class_name for model in found.models] == ["Body", "Body_Clipped"]


def test_features_of_an_earlier_batch_are_not_those_of_the_latest(tmp_path: Path) -> None:
    text = """
body, head = Body().eval(), Head().eval()
with torch.no_grad():
    kept = [body(images) for images, targets in loader]
    print(head(kept[0]).argmax(1))
"""
    assert [model.live.class_name for model in see_models(script(tmp_path, text)).models] == ["Body"]


def test_features_are_those_of_the_images_that_they_were_made_of(tmp_path: Path) -> None:
    text = """
body, head = Body().eval(), Head().eval()
with torch.no_grad():
    for images, targets in loader:
        features = body(images)
        try:
            body(torch.rand(4, 2, 9, 9))
        except RuntimeError:
            pass
        print(head(features).argmax(1))
"""
    assert whole(script(tmp_path, text)).live.row == (3, 8, 8)


@pytest.mark.parametrize("name", ["parts", "_steps", "_modules", "training", "forward"])
def test_a_part_may_be_called_as_it_likes(tmp_path: Path, name: str) -> None:
    text = LOOP.format(call=f"scores = {name}(body(images))").replace("body, head", f"body, {name}")
    assert whole(script(tmp_path, text)).live.class_name == "Body_Head"


def test_a_body_with_ever_new_heads_is_joined_with_few(tmp_path: Path) -> None:
    text = """
body = Body().eval()
for images, targets in loader:
    for _ in range(20):
        print(Head().eval()(body(images)).argmax(1))
"""
    assert len(see_models(script(tmp_path, text)).models) == 9


def test_each_model_has_a_number_of_its_own(tmp_path: Path) -> None:
    text = """
class Learns(Body):
    def forward(self, images):
        made = super().forward(images).flatten(1)
        return made.mean() if self.training else made

learns, head, other = Learns().eval(), Head().eval(), Body().eval()
for images, targets in loader:
    print(head(learns(images)).argmax(1))
    learns.train()(images)
    print(other(images).flatten(1).argmax(1))
    break
"""
    assert len({model.live.ordinal for model in see_models(script(tmp_path, text)).models}) == 2


def test_a_part_that_is_called_again_with_what_it_gave(tmp_path: Path) -> None:
    text = """
class Step(nn.Linear):
    pass

body, step = Body().eval(), Step(5, 5).eval()
head = Head().eval()
with torch.no_grad():
    for images, targets in loader:
        scores = head(body(images))
        for _ in range(6):
            scores = step(scores)
        print(scores.argmax(1))
"""
    found = see_models(script(tmp_path, text))
    assert [model.live.class_name for model in found.models if not model.feeds] == []


def test_a_part_that_takes_more_than_the_features_is_not_joined(tmp_path: Path) -> None:
    text = """
class Margin(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 5)
    def forward(self, features, targets):
        return self.fc(features) - nn.functional.one_hot(targets, 5)

body, margin = Body().eval(), Margin()
with torch.no_grad():
    for images, targets in loader:
        print(margin(body(images).flatten(1), targets).argmax(1))
"""
    assert [model.live.class_name for model in see_models(script(tmp_path, text)).models] == ["Body"]
