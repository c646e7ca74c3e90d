"""Folders that hold models already, and a repository whose model is packaged at once and planned later."""

import contextlib
import json
from dataclasses import replace

import pytest

from headrace.errors import AmbiguousError, MigrateError
from headrace.migrate import prepared
from headrace.migrate.named.folders import PackageFolder, Repository
from headrace.migrate.named.packaged import compile_model, packaged
from headrace.migrate.named.source import Options
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.package import place_package

PREDICT = """
import sys
import torch
from PIL import Image
from torch import nn

LABELS = ["cat", "dog", "owl"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=4)
        self.fc = nn.Linear(4, len(LABELS))

    def forward(self, x):
        return self.fc(self.conv(x).relu().mean((2, 3)))


def main():
    model = Net()
    model.load_state_dict(torch.load("net.pth", weights_only=True))
    model.eval()
    image = Image.open(sys.argv[1]).convert("RGB").resize((32, 32), Image.BILINEAR)
    pixels = torch.tensor(list(image.tobytes()), dtype=torch.float32).reshape(32, 32, 3)
    x = (pixels / 255).permute(2, 0, 1)[None]
    with torch.no_grad():
        print(LABELS[model(x).argmax(1).item()])


if __name__ == "__main__":
    main()
"""


def test_a_package_is_shown_with_its_companions_and_without_its_neighbors(tmp_path):
    for name in ("net", "net_decode", "net_classify", "other"):
        (tmp_path / "models" / name).mkdir(parents=True)
    package = PackageFolder(tmp_path / "models" / "net")
    view = package.models(tmp_path / "cache", Options(), None)
    assert sorted(path.name for path in view.iterdir()) == ["net", "net_classify", "net_decode"]
    (tmp_path / "models" / "net_classify").rmdir()
    assert package.models(tmp_path / "cache", Options(), None) == view
    assert sorted(path.name for path in view.iterdir()) == ["net", "net_decode"]


def test_a_repository_is_packaged_at_once_and_planned_in_its_place(tmp_path, warm_sandbox, monkeypatch):
    import torch

    # A cache may lie in the repository, and an input size, which JSON gives back as a list, may be asked for.
    repository, cache, asked = tmp_path / "zoo", tmp_path / "zoo" / "cache", Options(input_size=(3, 32, 32))
    repository.mkdir()
    (repository / "predict.py").write_text(PREDICT)
    names: dict = {"__name__": "net"}
    exec(PREDICT, names)
    torch.save(names["Net"]().state_dict(), repository / "net.pth")

    models = packaged(str(repository), cache=cache, options=asked)
    quick = load_artifact(models / "Net")
    assert not quick.plans
    assert quick.parity["status"] == "passed"
    assert quick.labels.names == ("cat", "dog", "owl")
    assert quick.preprocessing is not None
    report = json.loads(next(cache.rglob("headrace-report.json")).read_text())
    assert {script["executed"] for script in report["scripts"]} == {"not-run"}
    assert not list(cache.rglob("predict.py")), "who wants the model alone wants no copy of all data"

    quick_tuning = replace(asked, max_tuning_seconds=0.2)
    assert compile_model(str(repository), models, place_package, options=quick_tuning) == models / "Net"
    planned = load_artifact(models / "Net")
    assert planned.plans
    assert planned.preprocessing == quick.preprocessing
    assert planned.labels == quick.labels
    assert packaged(str(repository), cache=cache, options=asked) == models
    assert load_artifact(models / "Net").plans, "the plan was thrown away"

    (repository / "predict.py").write_text(PREDICT.replace('"owl"', '"hen"'))
    monkeypatch.setattr(prepared, "migrate", made_anew)
    with pytest.raises(MigrateError, match="made anew"):
        packaged(str(repository), cache=cache, options=asked)
    assert load_artifact(models / "Net").plans, "a server may still serve it"


def test_images_are_not_ignored_silently(tmp_path):
    with pytest.raises(MigrateError, match="--images is not for"):
        Repository(tmp_path).models(tmp_path / "cache", Options(images=tmp_path), None)


def made_anew(*_, **__):
    raise MigrateError("made anew")


AMBIGUOUS = """
import torch
from torch import nn
from torchvision import transforms


class NAME(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(27, 3)

    def forward(self, x):
        return self.fc(x.flatten(1))
"""


@pytest.mark.parametrize("quick", [True, False])
def test_a_choice_is_said_with_the_command_that_takes_it(tmp_path, quick):
    """predict, export and bench have no --model."""
    (tmp_path / "two nets").mkdir()
    for name in ("Left", "Right"):
        (tmp_path / "two nets" / f"{name.lower()}.py").write_text(AMBIGUOUS.replace("NAME", name))
    subject, options = Repository(tmp_path / "two nets"), Options(name="Middle")
    expected = r"headrace migrate '.*/two nets' --out DIR --model Left"
    with pytest.raises(AmbiguousError, match=expected) as raised, contextlib.ExitStack() as stack:
        subject.models(tmp_path / "cache", options, None) if quick else stack.enter_context(subject.planned(options, None))
    assert len(str(raised.value).splitlines()) == 3
