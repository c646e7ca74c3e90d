"""A model taken from a run of its script: the very object, with the weights that the user's files give it."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from headrace.errors import SandboxError
from headrace.migrate.proving.worker_protocol import SeenModel
from headrace.migrate.reading.recipe import Recipe
from headrace.migrate.worker.live.model import see_models, take_model

pytestmark = pytest.mark.usefixtures("in_this_process")
RANDOM = "of its weights are random numbers"

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(4, classes)

    def forward(self, images):
        return self.head(self.body(images).mean((2, 3)))
"""
DATA = """
from torch.utils.data import DataLoader, Dataset


class Animals(Dataset):
    classes = ["ant", "bee", "cat"]

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((3, 8, 8), float(index)), index % 3


loader = DataLoader(Animals(), batch_size=4)
"""
EVALUATE = """
model.eval()
correct = 0
with torch.no_grad():
    for images, targets in loader:
        correct += (model(images).argmax(1) == targets).sum().item()
print("correct", correct)
"""
TRAIN = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.train()
for images, targets in loader:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), targets).backward()
    optimizer.step()
"""


def script(tmp_path: Path, *parts: str, seeds: bool = True) -> Recipe:
    (tmp_path / "run.py").write_text("".join([NET, "torch.manual_seed(3)\n" if seeds else "", *parts]))
    return Recipe(root=str(tmp_path), script="run.py")


def saved(tmp_path: Path, classes: int = 3) -> dict[str, torch.Tensor]:
    """A checkpoint, older than any run."""
    space: dict[str, object] = {"__name__": "net"}
    exec(NET, space)
    state = {name: torch.rand(value.shape) for name, value in space["Net"](classes).state_dict().items() if value.dim()}  # type: ignore[operator]
    torch.save({"net": state}, tmp_path / "net.pth")
    os.utime(tmp_path / "net.pth", (1e9, 1e9))
    return state


def seen(recipe: Recipe) -> SeenModel:
    found = see_models(recipe)
    assert found.why is None, found
    (model,) = found.models
    return model


LOADED = "model = Net()\nmodel.load_state_dict(torch.load('net.pth')['net'], strict=False)\n"


def test_the_model_has_the_weights_of_the_users_file_tensor_by_tensor(tmp_path: Path) -> None:
    recipe = script(tmp_path, DATA, LOADED, EVALUATE)
    state = saved(tmp_path)
    found = see_models(recipe)
    assert found.weights_from == (str(tmp_path / "net.pth"),)
    (model,) = found.models
    assert (model.live.class_name, model.live.row, model.live.evaluating, model.live.output) == ("Net", (3, 8, 8), True, None)
    assert (model.widths, model.tasks, model.calls, model.dataset, model.labels) == (
        (3,), ("single-label",), 2, "Animals", (("ant", "bee", "cat"),),
    )  # fmt: skip
    assert model.factory == "run.py:6"
    taken = take_model(replace(recipe, live=model.live))
    assert not taken.training
    for name, value in taken.state_dict().items():
        assert name.endswith("num_batches_tracked") or torch.equal(value, state[name]), name


def test_training_before_evaluation_does_not_change_what_is_taken(tmp_path: Path) -> None:
    recipe = script(tmp_path, DATA, LOADED, TRAIN, EVALUATE)
    state = saved(tmp_path)
    model = seen(recipe)
    assert model.trained
    taken = take_model(replace(recipe, live=model.live))
    assert torch.equal(taken.state_dict()["head.weight"], state["head.weight"])
    assert torch.equal(taken.state_dict()["body.1.running_mean"], state["body.1.running_mean"])


@pytest.mark.parametrize("loads", ["", "model.body.load_state_dict(torch.load('body.pth'))\n"])
def test_random_weights_are_nobodys_whatever_seed_the_script_sets(tmp_path: Path, loads: str) -> None:
    recipe = script(tmp_path, DATA, "model = Net()\n", loads, EVALUATE)
    space: dict[str, object] = {"__name__": "net"}
    exec(NET, space)
    torch.save(space["Net"]().body.state_dict(), tmp_path / "body.pth")  # type: ignore[operator]
    model = seen(recipe)
    with pytest.raises(
        SandboxError, match=rf"{2 if loads else 4} {RANDOM} .*head\.weight.*--checkpoint FILE.*--random-weights"
    ):
        take_model(replace(recipe, live=model.live))
    assert take_model(replace(recipe, live=replace(model.live, random=True))) is not None


def test_what_a_run_saved_itself_is_nobodys(tmp_path: Path) -> None:
    keep = "torch.save({'net': model.state_dict()}, 'net.pth')\n" + LOADED
    recipe = script(tmp_path, DATA, "model = Net()\n", keep, EVALUATE)
    assert see_models(recipe).weights_from == ()
    with pytest.raises(SandboxError, match=RANDOM):
        take_model(replace(recipe, live=seen(recipe).live))


def test_a_checkpoint_given_by_the_user_is_loaded_whatever_the_script_does(tmp_path: Path) -> None:
    recipe = script(tmp_path, DATA, "model = nn.DataParallel(Net())\n", EVALUATE)
    state = saved(tmp_path)
    torch.save({"model": {f"module.{name}": value for name, value in state.items()}}, tmp_path / "given.pth")
    complete = {**seen(recipe).live.__dict__}
    assert complete["class_name"] == "Net"
    with pytest.raises(Exception, match="num_batches_tracked"):
        take_model(replace(recipe, live=seen(recipe).live, checkpoint=str(tmp_path / "given.pth")))
    state["body.1.num_batches_tracked"] = torch.tensor(7)
    torch.save({"model": {f"module.{name}": value for name, value in state.items()}}, tmp_path / "given.pth")
    taken = take_model(replace(recipe, live=seen(recipe).live, checkpoint=str(tmp_path / "given.pth")))
    assert all(torch.equal(value, state[name]) for name, value in taken.state_dict().items())


def test_a_model_called_by_keyword_that_gives_more_is_wrapped(tmp_path: Path) -> None:
    odd = """
class Odd(Net):
    def forward(self, pixel_values, labels=None, return_dict=False):
        scores = super().forward(pixel_values)
        return {"loss": scores.sum(), "logits": scores, "hidden": pixel_values}

model = Odd().eval()
with torch.no_grad():
    for images, targets in loader:
        made = model(pixel_values=images, labels=targets, return_dict=True)
        print(made["logits"].topk(1))
"""
    recipe = script(tmp_path, DATA, odd)
    model = seen(recipe)
    assert (model.live.slot, model.live.output, model.classes) == ((1, "pixel_values"), ("logits",), 3)
    taken = take_model(replace(recipe, live=replace(model.live, random=True)))
    images = torch.rand(5, 3, 8, 8)
    assert taken(images).shape == (5, 3)
    program = torch.export.export(taken, (images,), dynamic_shapes={"images": {0: torch.export.Dim("n")}}, strict=False)
    assert torch.allclose(program.module()(images[:2]), taken(images[:2]))


def test_several_models_are_told_apart_by_how_they_are_called(tmp_path: Path) -> None:
    several = """
teacher, model = Net().eval(), Net()
for images, targets in loader:
    with torch.no_grad():
        wanted = teacher(images)
    (model(images) - wanted).square().mean().backward()
"""
    found = see_models(script(tmp_path, DATA, several, EVALUATE))
    assert [(model.live.ordinal, model.live.evaluating, model.tasks, model.trained) for model in found.models] == [
        (0, True, ("",), False), (1, True, ("single-label",), True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "used", "evaluating", "evaluates", "in_training"),
    [
        ("Net().eval()", "torch.enable_grad()", True, True, ()),
        ("Net()", "torch.enable_grad()", False, True, ("BatchNorm2d",)),
        ("Net().eval()", "learning()", True, False, ()),
        ("Net()", "learning()", False, False, ("BatchNorm2d",)),
        ("Net()", "torch.no_grad()", True, True, ("BatchNorm2d",)),
    ],
)
def test_evaluation_is_what_nothing_is_learned_from(
    tmp_path: Path, model: str, used: str, evaluating: bool, evaluates: bool, in_training: tuple[str, ...]
) -> None:
    text = f"""
import contextlib
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

@contextlib.contextmanager
def learning():
    yield
    loss.backward()
    optimizer.step()

for images, targets in loader:
    with {used}:
        loss = nn.functional.cross_entropy(model(images), targets)
"""
    found = seen(script(tmp_path, DATA, text))
    assert (found.live.evaluating, found.evaluates, found.in_training) == (evaluating, evaluates, in_training)


@pytest.mark.parametrize(
    ("mode", "drawing"),
    [("model[1].train()", True), ("model[1].train()\nmodel.eval()", False), ("model.train()", False)],
)
def test_dropout_that_draws_in_evaluation_is_seen(tmp_path: Path, mode: str, drawing: bool) -> None:
    calls = "with torch.no_grad():\n    for images, targets in loader:\n        print(model(images).argmax(1))\n"
    text = f"model = nn.Sequential(Net(), nn.Dropout(0.5)).eval()\n{mode}\n{calls}"
    assert seen(script(tmp_path, DATA, text)).live.drawing is drawing


@pytest.mark.parametrize("also", ["", "model.eval()\nwith torch.no_grad():\n    model(next(iter(loader))[0])\n"])
def test_a_model_that_gives_more_while_it_is_trained_is_described_as_it_is_in_evaluation(tmp_path: Path, also: str) -> None:
    text = f"""
class Two(Net):
    def forward(self, images):
        scores = super().forward(images)
        return (scores, scores * 2) if self.training else scores

model = Two()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, targets in loader:
    scores, more = model(images)
    (nn.functional.cross_entropy(scores, targets) + nn.functional.cross_entropy(more, targets)).backward()
    optimizer.step()
{also}"""
    found = seen(recipe := script(tmp_path, DATA, text))
    assert (found.tasks, found.widths, found.live.output) == (("single-label",), (3,), None)
    taken = take_model(replace(recipe, live=replace(found.live, random=True)))
    assert taken(torch.rand(2, 3, 8, 8)).shape == (2, 3)


@pytest.mark.parametrize(
    ("call", "together"),
    [
        ("model(images, images.flip(3))", 2),
        ("model(images, other=images * 2)", 2),
        ("model(images, targets)", 1),
        ("model(images)", 1),
    ],
)
def test_how_many_batches_of_images_a_model_takes_at_once_is_told(tmp_path: Path, call: str, together: int) -> None:
    text = f"""
class Distance(Net):
    def forward(self, images, other=None):
        found = super().forward(images)
        return found if other is None or other.dim() == 1 else found - super().forward(other)

model = Distance(1)
model.eval()
with torch.no_grad():
    for images, targets in loader:
        print({call}.mean())
"""
    assert seen(script(tmp_path, DATA, text)).together == together


def test_a_training_step_whose_accuracy_is_measured_is_not_where_the_model_is_evaluated(tmp_path: Path) -> None:
    text = """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, targets in loader:
    nn.functional.cross_entropy(model(images), targets).backward()
    optimizer.step()
    with torch.no_grad():
        right = (model(images).argmax(1) == targets).sum()
model.eval()
with torch.no_grad():
    for images, targets in loader:
        outputs = model(images)
"""
    found = seen(recipe := script(tmp_path, DATA, text))
    lines = (tmp_path / recipe.script).read_text().splitlines()
    assert lines[int(found.site.rpartition(":")[2]) - 1].strip() == "outputs = model(images)"
    assert (found.in_training, found.evaluates, found.live.evaluating) == ((), True, True)


@pytest.mark.parametrize(
    ("source", "as_read"),
    [("model = Net()", True), ("model = Net(4)", False), ("model = nn.Linear(2, 3)", False), ("raise OSError", None)],
)
def test_what_was_read_is_compared_with_what_runs(tmp_path: Path, source: str, as_read: bool | None) -> None:
    recipe = script(tmp_path, DATA, "model = Net()\n", EVALUATE)
    read = replace(recipe, source=f"{NET}\n{source}\n", expression="model")
    (model,) = see_models(recipe, read).models
    assert model.as_read is as_read


def test_a_folder_that_both_what_runs_and_what_was_read_make_stops_neither(tmp_path: Path) -> None:
    """As one for this second's run: they are built at the same time."""
    makes = "from pathlib import Path\nPath('saved/run').mkdir(parents=True)\nmodel = Net()\n"
    recipe = script(tmp_path, DATA, makes, EVALUATE)
    found = see_models(recipe, replace(recipe, source=f"{NET}\n{makes}\n", expression="model"))
    assert (found.why, [model.as_read for model in found.models]) == (None, [True])


def test_a_script_that_stops_says_where_and_what_was_seen_before(tmp_path: Path) -> None:
    found = see_models(script(tmp_path, DATA, "model = Net()\n", EVALUATE, "raise OSError('no disk')\n"))
    assert found.why is not None
    assert "no disk" in found.why
    assert found.where == "run.py:38"
    assert len(found.models) == 1


def test_a_notebook_is_run_cell_by_cell(tmp_path: Path) -> None:
    awaited = "import asyncio\nawait asyncio.sleep(0)\n"
    cells = [NET, awaited + DATA, "%matplotlib inline\nmodel = Net()\n", EVALUATE, "display(correct)\n"]
    made = [{"cell_type": "code", "source": text, "metadata": {}, "outputs": [], "execution_count": None} for text in cells]
    data = {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 2}
    (tmp_path / "look.ipynb").write_text(json.dumps(data))
    assert seen(Recipe(root=str(tmp_path), script="look.ipynb")).classes == 3


def test_a_call_that_is_not_made_again_is_an_error(tmp_path: Path) -> None:
    recipe = script(tmp_path, DATA, "model = Net()\n", EVALUATE)
    live = seen(recipe).live
    with pytest.raises(SandboxError, match="without calling the model"):
        take_model(replace(recipe, live=replace(live, ordinal=4)))
    with pytest.raises(SandboxError, match="calls a Net where it called a Other"):
        take_model(replace(recipe, live=replace(live, class_name="Other")))


def test_a_model_that_is_given_halves_is_taken_in_floats_with_the_values_that_it_has(tmp_path: Path) -> None:
    saved(tmp_path)
    load = "model = Net()\nmodel.load_state_dict(torch.load('net.pth')['net'], strict=False)\nmodel = model.half()\n"
    recipe = script(tmp_path, DATA, load, EVALUATE.replace("model(images)", "model(images.half())"))
    found, notes = seen(recipe), []
    assert found.dtype == "float16"
    model = take_model(replace(recipe, live=found.live), notes)
    kept = torch.load(tmp_path / "net.pth")["net"]["head.weight"]
    assert model.head.weight.dtype == torch.float32
    assert torch.equal(model.head.weight, kept.half().float())
    assert model(torch.rand(2, 3, 8, 8)).dtype == torch.float32
    assert notes == ["its script gives it images in float16; the package takes float32, and its plan chooses the precision"]


def test_a_script_that_calls_no_model_is_said_to(tmp_path: Path) -> None:
    found = see_models(script(tmp_path, "model = Net()\n"))
    assert (found.models, found.why) == ((), "it came to its end and called no model with images")


def test_what_would_help_a_script_that_called_no_model_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def idle(stage: object) -> str:
        return "install what stood in"

    monkeypatch.setattr("headrace.migrate.worker.rehearsal.edges.libraries.idle", idle)
    found = see_models(script(tmp_path, "model = Net()\n"))
    assert found.why == "it came to its end and called no model with images; install what stood in"
    found = see_models(script(tmp_path, DATA, "model = Net()\n", EVALUATE))
    assert (len(found.models), found.why) == (1, None)


def test_what_a_script_went_on_after_that_called_no_model_is_told(tmp_path: Path) -> None:
    text = "try:\n    print(Net().nothing)\nexcept Exception as error:\n    print(f'skipped: {error}')\n"
    found = see_models(script(tmp_path, text))
    assert found.why is not None
    assert re.match(
        "it came to its end and called no model with images; it went on after AttributeError: 'Net' object has no attribute "
        r"'nothing' \(run\.py:\d+\)$",
        found.why,
    )


def test_a_script_that_was_ended_is_not_said_to_have_come_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.migrate.worker.live.model._SECONDS", 1.0)
    found = see_models(script(tmp_path, "model = Net()\n", "while True:\n    sum(range(1000))\n"))
    assert found.models == ()
    assert found.why is not None
    assert "it was still running after" in found.why
    assert found.where is not None
    assert found.where.startswith("run.py:")


def test_a_model_whose_first_call_was_ended_is_not_said_to_give_no_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.migrate.worker.live.model._SECONDS", 1.0)
    endless = "class Slow(Net):\n    def forward(self, images):\n        while True:\n            sum(range(1000))\n"
    found = see_models(script(tmp_path, DATA, endless, "model = Slow()\n", EVALUATE))
    assert found.models == ()
    assert found.why is not None
    assert "it was still running after" in found.why


def test_on_a_busy_machine_an_attempt_may_take_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.migrate.worker.live.model._SECONDS", 0.5)
    waits = ("import time\n", "start = time.monotonic()\n", "while time.monotonic() < start + 1.5:\n    pass\n")
    recipe = script(tmp_path, DATA, "model = Net()\n", *waits, EVALUATE)
    assert see_models(recipe).models == ()
    assert len(see_models(recipe, patience=60.0).models) == 1


def test_all_attempts_together_end_before_the_worker_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.migrate.worker.live.model._MOST_SECONDS", 0.0)
    found = see_models(script(tmp_path, "model = Net()\n", "while True:\n    sum(range(1000))\n"))
    assert found.why is not None
    assert "it was still running after" in found.why


HEAVY = """
for images, targets in loader:
    gradient = [value.grad for value in model.parameters()]
print("batches", len(loader), "rows", len(images), "gradient", sum(float(value.abs().sum()) for value in gradient))
"""


def test_a_preview_sees_the_same_model_with_less_work(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recipe = script(tmp_path, DATA, "model = Net()\n", TRAIN, HEAVY, EVALUATE)
    whole, quick = see_models(recipe), see_models(recipe, quick=True)
    ((a,), (b,)) = whole.models, quick.models
    assert (b.live.class_name, b.live.row, b.site, b.tasks, b.widths, b.labels, b.evaluates) == (
        (a.live.class_name, a.live.row, a.site, a.tasks, a.widths, a.labels, a.evaluates)
    )
    assert (len(a.live.weights), b.live.weights) == (9, ())
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("batches")]
    assert lines[0].startswith("batches 2 rows 4")
    assert lines[1] == "batches 1 rows 2 gradient 0.0"


@pytest.mark.parametrize(
    "pause", ["torch.save(model.state_dict(), 'last.pth')\n", "for images, targets in loader:\n    pass\n"]
)
def test_a_preview_ends_where_a_model_was_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pause: str) -> None:
    monkeypatch.setattr("headrace.migrate.worker.live.model._QUICK_SECONDS", 0.0)
    never = "raise RuntimeError('it went on')\n"
    done = see_models(script(tmp_path, DATA, "model = Net()\n", TRAIN, EVALUATE, pause, never), quick=True)
    assert (done.why, [model.evaluates for model in done.models]) == (None, [True])
    trained = see_models(script(tmp_path, DATA, "model = Net()\n", TRAIN, pause, never), quick=True)
    assert "it went on" in str(trained.why)
    os.utime(tmp_path / "run.py", (1e9, 1e9))
    (tmp_path / "last.pth").unlink(missing_ok=True)
    saved(tmp_path)  # what trains may save its model over such a file at its very end
    assert "it went on" in str(
        see_models(script(tmp_path, DATA, "model = Net()\n", TRAIN, EVALUATE, pause, never), quick=True).why
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device that is named is here")
@pytest.mark.parametrize("device", ["'cuda:0'", "torch.device('cuda')"])
def test_a_module_that_moves_values_to_a_device_of_its_own_is_told_the_cpu(tmp_path: Path, device: str) -> None:
    moves = f"""
class Moving(Net):
    def __init__(self):
        super().__init__()
        self.device = {device}

    def forward(self, images):
        return super().forward(images.to(self.device))
"""
    recipe = script(tmp_path, DATA, f"{moves}\nmodel = Moving()\n", EVALUATE)
    live = replace(seen(recipe).live, random=True)
    notes: list[str] = []
    taken = take_model(replace(recipe, live=live), notes)
    assert taken(torch.rand(2, 3, 8, 8)).shape == (2, 3)
    assert any("name CUDA as the device" in note for note in notes)


@pytest.mark.parametrize(
    ("chooses", "said"),
    [
        ("{out}.argmax(1)", ""),
        ("({out} * torch.tensor([0.0, 0.0, 1.0]) + torch.tensor([9.0, 0.0, 0.0])).argmax(1)", "another one is the largest"),
        ("(({out} / 9).softmax(1) + (model(images.flip(3)) / 9).softmax(1)).div(2).max(1)[1]", "the scores are others"),
    ],
)
def test_what_a_script_chooses_from_otherwise_than_the_package_is_told_with_its_line(
    tmp_path: Path, chooses: str, said: str
) -> None:
    (tmp_path / "net.pth").unlink(missing_ok=True)
    saved(tmp_path)
    loop = f"model.eval()\nwith torch.no_grad():\n    for images, _ in loader:\n        {chooses.format(out='model(images)')}\n"
    recipe = script(tmp_path, DATA, LOADED, loop)
    found = seen(recipe).otherwise
    last = len((tmp_path / "run.py").read_text().splitlines())
    assert [where for where, _ in found] == ([f"run.py:{last}"] if said else [])
    assert all(said in what for _, what in found)


def test_a_model_that_keeps_its_first_images_is_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    keeps = """
class Keeping(Net):
    offset = None

    def forward(self, images):
        self.offset = images.mean() if self.offset is None else self.offset
        return super().forward(images - self.offset)
"""
    recipe = script(tmp_path, DATA, keeps, LOADED.replace("Net()", "Keeping()"), EVALUATE)
    with pytest.raises(SandboxError, match=r"keeps something \(offset\)"):
        take_model(replace(recipe, live=seen(recipe).live))


def test_statistics_that_a_script_fits_to_its_images_first_are_the_models(tmp_path: Path) -> None:
    """Its calls in training mode, which nothing is learned from, are no evaluation."""
    state = saved(tmp_path)
    adapts = "model.train()\nwith torch.no_grad():\n    model(next(iter(loader))[0])\n"
    recipe = script(tmp_path, DATA, LOADED, adapts, EVALUATE)
    model = take_model(replace(recipe, live=seen(recipe).live))
    assert torch.equal(model.head.weight, state["head.weight"])
    assert int(model.body[1].num_batches_tracked) == 1
    assert not torch.equal(model.body[1].running_mean, state["body.1.running_mean"])


def test_an_argument_that_a_script_makes_of_each_image_is_told_with_its_line(tmp_path: Path) -> None:
    saved(tmp_path)
    scaled = "class Scaled(Net):\n    def forward(self, images, by=1.0):\n        return super().forward(images) * by\n"
    loop = "model.eval()\nwith torch.no_grad():\n    for images, _ in loader:\n        model(images, {}).argmax(1)\n"
    for given, said in (("0.5", ()), ("float(images.mean())", ("by of its call is 1.5 for one image and 5.5 for another;",))):
        recipe = script(tmp_path, DATA, scaled, LOADED.replace("Net()", "Scaled()"), loop.format(given))
        found = seen(recipe).otherwise
        last = len((tmp_path / "run.py").read_text().splitlines())
        assert [where for where, _ in found] == [f"run.py:{last}"] * len(said)
        assert all(what.startswith(words) for (_, what), words in zip(found, said, strict=True))


@pytest.mark.parametrize(("given", "said"), [("0.5", ()), ("float(images.mean())", ("by=1.5",)), ("by=half", ("by=0.5",))])
def test_a_number_that_the_only_call_does_not_state_is_told(tmp_path: Path, given: str, said: tuple[str, ...]) -> None:
    saved(tmp_path)
    scaled = "class Scaled(Net):\n    def forward(self, images, by=1.0):\n        return super().forward(images) * by\n"
    once = f"half = 1 / 2\nmodel.eval()\nimages = next(iter(loader))[0]\nprint(model(images, {given}).argmax(1))\n"
    assert seen(script(tmp_path, DATA, scaled, LOADED.replace("Net()", "Scaled()"), once)).beside == said


def test_a_model_that_answers_by_a_tensor_of_each_image_beside_it_is_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    joins = "class Joins(Net):\n    def forward(self, images, more=None):\n        return super().forward(images) + more\n"
    loop = EVALUATE.replace("model(images)", "model(images, torch.rand(len(images), 3))")
    recipe = script(tmp_path, DATA, joins, LOADED.replace("Net()", "Joins()"), loop)
    with pytest.raises(SandboxError, match=r"called with more \[4, 3\] of each image"):
        take_model(replace(recipe, live=seen(recipe).live))
