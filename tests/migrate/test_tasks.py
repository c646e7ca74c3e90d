"""What the outputs of a model are, from the script to the package: seen in a run, judged by what it is, and written down."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import headrace
from headrace.migrate.proving.worker_protocol import Failed, ModelPackaged, Package, encode
from headrace.migrate.reading.recipe import Recipe
from headrace.migrate.resolving.task import may_have_labels
from headrace.migrate.stages.live_model import best_of
from headrace.migrate.worker.live.model import see_models
from headrace.migrate.worker.worker import answer
from headrace.runtime.artifact.artifact import Artifact, load_artifact

pytestmark = pytest.mark.usefixtures("in_this_process")

NET = """
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, form=lambda color, shape, features: color):
        super().__init__()
        self.conv, self.form = nn.Conv2d(3, 6, 3), form
        self.color, self.shape = nn.Linear(6, 3), nn.Linear(6, 4)

    def forward(self, images):
        features = self.conv(images).mean((2, 3))
        return self.form(self.color(features), self.shape(features), features)


class Segment(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, images):
        return {"out": self.conv(images), "aux": self.conv(images[:, :, :4, :4])}


images = torch.rand(6, 3, 12, 12)
"""


def packaged(tmp_path: Path, text: str, *, task: str | None = None) -> Artifact | str:
    """The package of the model that a script calls, or why there is none."""
    (tmp_path / "run.py").write_text(NET + text)
    recipe = Recipe(root=str(tmp_path), script="run.py")
    best = best_of(see_models(recipe).models, None)
    assert best is not None
    request = Package(
        recipe=replace(recipe, live=replace(best.live, random=True)), name="net", out=str(tmp_path / "models/net"),
        input=best.live.row, task=",".join(part or "raw" for part in best.tasks) if task is None else task,
        labels=best.labels if any(best.labels) else (), precision="fp32", backend="eager", buckets=(1,), threads=1,
    )  # fmt: skip
    (tmp_path / "request.json").write_text(encode(request))
    made = answer(tmp_path / "request.json", lambda part, text: None)
    if isinstance(made, Failed):
        return made.error
    assert isinstance(made, ModelPackaged)
    assert made.parity.status == "passed"
    artifact = load_artifact(tmp_path / "models/net")
    assert made.outputs == tuple(f"{head.output}: {head if str(head) else 'raw numbers'}" for head in artifact.task.heads)
    return artifact


MARGIN = """
model = Net(lambda color, shape, features: F.normalize(features))
weight = nn.Parameter(torch.rand(9, 6))
optimizer = torch.optim.SGD([*model.parameters(), weight], lr=0.1)
cosines = F.linear(model(images), F.normalize(weight))
F.cross_entropy(30 * (cosines - 0.5 * F.one_hot(torch.arange(6), 9)), torch.arange(6)).backward()
optimizer.step()
model.eval()
with torch.no_grad():
    one, other = model(images[:3]), model(images[3:])
print(F.cosine_similarity(one, other) > 0.3)
"""


@pytest.mark.parametrize(
    ("text", "outputs"),
    [
        pytest.param("out = Net().eval()(images)\n(torch.sigmoid(out) > 0.5).sum()", ["multi-label scores, labels above 0.5"],
                     marks=pytest.mark.slow),
        ("out = Net().eval()(images)\n(torch.sigmoid(out) > torch.tensor([.2, .3, .4])).sum()",
         ["multi-label scores, labels above their thresholds"]),
        # What such outputs are worker/live/test_task says, how they are written the others here.
        pytest.param("out = nn.Sequential(Net(), nn.Softmax(1)).eval()(images)\nout.argmax(1)", ["class probabilities"],
                     marks=pytest.mark.slow),
        pytest.param("out = nn.Sequential(Net(), nn.Sigmoid()).eval()(images)\nout > 0.25",
                     ["multi-label probabilities, labels above 0.25"], marks=pytest.mark.slow),
        pytest.param("out = Net(lambda c, s, f: (c, f)).eval()(images)\nout[0].argmax(1)", ["class scores"],
                     marks=pytest.mark.slow),
        pytest.param("out = Net(lambda c, s, f: (f, c)).eval()(images)\nout[1].argmax(1)", ["class scores"],
                     marks=pytest.mark.slow),
        ("out = Net(lambda c, s, f: {'c': c, 's': s}).eval()(images)\nfor head in out.values(): head.argmax(1)",
         ["class scores", "class scores"]),
        (MARGIN, ["embedding"]),
        ("out = Segment().eval()(images)\nout['out'].argmax(1)", ["dense map"]),
    ],
    ids=["sigmoid", "thresholds", "softmax", "own sigmoid", "logits first", "features first", "heads", "ArcFace", "map"],
)  # fmt: skip
def test_the_package_says_what_its_outputs_are(tmp_path: Path, text: str, outputs: list[str]) -> None:
    artifact = packaged(tmp_path, text)
    assert isinstance(artifact, Artifact), artifact
    assert [str(head) for head in artifact.task.heads] == outputs
    measure = {"class": "top1_agreement", "multi-label": "decision_agreement", "embedding": "cosine", "dense": "top1_agreement"}
    assert artifact.parity[measure[outputs[0].split()[0]]] > 0.999


def test_what_the_user_says_counts_and_what_cannot_be_is_told(tmp_path: Path) -> None:
    text = "out = Net().eval()(images)\nout.argmax(1)"
    artifact = packaged(tmp_path, text, task="multi-label:0.2")
    assert isinstance(artifact, Artifact)
    assert str(artifact.task.heads[0]) == "multi-label scores, labels above 0.2"
    why = packaged(tmp_path, text, task="logits=embedding")
    assert why == "task: the model has no output 'logits'; it has output; --task says what the outputs are"


def test_tasks_without_labels_need_none() -> None:
    assert not may_have_labels("embedding")
    assert not may_have_labels("dense,raw")
    assert may_have_labels("")
    assert may_have_labels("features=embedding,logits=multi-label:0.3/0.4")


EVALUATE = """
import torch
from net import Net, images

COLORS = ["red", "green", "blue"]
SHAPES = ["disc", "ring", "bar", "dot"]
model = Net(lambda color, shape, features: {"color": color, "shape": shape})
model.load_state_dict(torch.load("net.pth"))
model.eval()
with torch.no_grad():
    for batch in images.split(3):
        out = model(batch)
        print([COLORS[i] for i in out["color"].argmax(1).tolist()])
        print((torch.sigmoid(out["shape"]).numpy() > 0.35).sum(1).tolist())
"""


@pytest.mark.usefixtures("torch_sandbox")
def test_a_repository_with_two_heads_is_migrated_with_the_labels_of_each(tmp_path: Path) -> None:
    root, space = tmp_path / "heads", {"__name__": "net"}
    root.mkdir()
    exec(NET, space)
    torch.save(space["Net"]().state_dict(), root / "net.pth")  # type: ignore[operator]
    os.utime(root / "net.pth", (1e9, 1e9))
    (root / "net.py").write_text(NET + "torch.manual_seed(0)\nimages = torch.rand(6, 3, 12, 12)\n")
    (root / "evaluate.py").write_text(EVALUATE)
    report = headrace.migrate(root, out=tmp_path / "out", planned=False, verify=False)
    (model,) = report.models
    assert (model.parity.status, bool(model.artifact)) == ("passed", True), report.findings
    # The number is in the sources alone: numpy compared it.
    assert model.outputs == ["color: class scores", "shape: multi-label scores, labels above 0.35"]
    assert "PS519" not in {item.code for item in report.findings}
    heads = load_artifact(tmp_path / "out/models/Net").task.heads
    assert [head.labels for head in heads] == [("red", "green", "blue"), ("disc", "ring", "bar", "dot")]
