"""What a WHAT is found to be, what is said of one that is nothing, and what is kept in the cache."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from headrace.errors import MigrateError
from headrace.migrate.named.code import Code
from headrace.migrate.named.folders import ModelsFolder, PackageFolder, Repository
from headrace.migrate.named.packaged import compile_model, forms, packaged, read
from headrace.migrate.named.source import Options
from headrace.migrate.proving.worker_protocol import Failed
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.package import place_package

NET = """
import torch
from torch import nn

def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
"""


def code(folder, text=NET):
    """A file of code in a folder of its own, as WHAT; whatever changes there makes another package."""
    (folder / "code").mkdir(exist_ok=True)
    (folder / "code" / "net.py").write_text(text)
    return f"{folder / 'code' / 'net.py'}:net"


pytestmark = pytest.mark.usefixtures("warm_sandbox")

SIZE = Options(input_size=(3, 16, 16))


def weights(folder):
    import torch

    names: dict = {}
    exec(NET, names)
    model = names["net"]()
    torch.nn.init.normal_(model[0].weight)
    torch.save(model.state_dict(), folder / "net.pth")
    return folder / "net.pth"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "nonsense",
            "no such file or folder, and no name; a model is one of hf:ORG/NAME, timm:NAME[:CHECKPOINT], torchvision:",
        ),
        ("tim:resnet50", "did you mean timm:resnet50?"),
        ("torchvison:resnet50", "did you mean torchvision:resnet50?"),
        ("hf:a/b/c", "no name of the hub"),
        ("hf:../etc", "no name of the hub"),
        ("missing.py:net", "missing.py: no such file"),
        ("net.py:not an expression", "is not a Python expression"),
    ],
)
def test_what_is_nothing_is_said_with_what_is_near(tmp_path, monkeypatch, what, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    with pytest.raises(MigrateError, match=re.escape(said)):
        read(what, Options())


def test_a_file_that_is_no_model_is_said_to_be_none(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(MigrateError, match="nothing that can be served"):
        read(str(tmp_path / "notes.txt"), Options())


def test_folders_are_what_lies_in_them(tmp_path):
    models, model = tmp_path / "models", tmp_path / "models" / "net"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text('name: "net"')
    (model / "1" / "headrace.json").write_text("{}")
    code = tmp_path / "code"
    code.mkdir()
    (code / "net.py").write_text(NET)
    face = tmp_path / "face"
    face.mkdir()
    (face / "config.json").write_text(json.dumps({"model_type": "vit"}))
    (tmp_path / "empty").mkdir()
    kinds = {str(models): ModelsFolder, str(model): PackageFolder, str(code): Repository, str(tmp_path / "empty"): ModelsFolder}
    for path, kind in kinds.items():
        assert isinstance(read(path, Options()), kind), path
    view = packaged(str(model), cache=tmp_path / "cache")
    assert [path.name for path in view.iterdir()] == ["net"]
    assert (view / "net" / "config.pbtxt").samefile(model / "config.pbtxt")
    assert packaged(str(models), cache=tmp_path / "cache") == models


def test_every_form_is_told_once():
    assert len(set(forms())) == len(forms()) >= 9


def test_a_model_is_packaged_once_and_then_found(tmp_path, monkeypatch):
    what, cache = code(tmp_path), tmp_path / "cache"
    options = Options(input_size=(3, 16, 16), checkpoint=weights(tmp_path))
    models = packaged(what, cache=cache, options=options)
    (name,) = (path.name for path in models.iterdir() if (path / "config.pbtxt").is_file())
    artifact = load_artifact(models / name)
    assert artifact.plans == ()
    assert artifact.parity["status"] == "passed"
    assert artifact.plan_here().portable
    monkeypatch.setattr(Code, "package", lambda *_, **__: pytest.fail("it is there"))
    assert packaged(what, cache=cache, options=options) == models


def test_what_decides_the_package_finds_another(tmp_path, monkeypatch):
    what, cache = code(tmp_path), tmp_path / "cache"
    first = packaged(what, cache=cache, options=SIZE)
    monkeypatch.setattr(Code, "package", lambda *_, **__: Failed(stage="build", error="made anew"))
    with pytest.raises(MigrateError, match="made anew"):
        packaged(what, cache=cache, options=Options(input_size=(3, 18, 18)))
    assert packaged(what, cache=cache, options=SIZE) == first
    changed = code(tmp_path, NET.replace("8, 5", "8, 6"))
    with pytest.raises(MigrateError, match="made anew"):
        packaged(changed, cache=cache, options=SIZE)


@pytest.mark.slow  # of a repository: test_folders; of a model that serves: serving/named/test_planner
def test_compile_puts_the_plan_in_the_place_of_the_quick_package(tmp_path):
    what = code(tmp_path)
    options = Options(input_size=(3, 16, 16), checkpoint=weights(tmp_path), max_tuning_seconds=0.2)
    models = packaged(what, cache=tmp_path / "cache", options=options)
    assert compile_model(what, models, place_package, options=options) == models / "Sequential"
    planned = load_artifact(models / "Sequential")
    assert planned.plans
    assert not planned.plan_here().portable
    assert [path.name for path in models.iterdir() if not path.name.startswith(".")] == ["Sequential"]


def test_int8_without_images_is_rejected_at_once(tmp_path):
    with pytest.raises(MigrateError, match="--images"):
        packaged(code(tmp_path), cache=tmp_path / "cache", options=Options(precision="fp32,int8"))


def test_folders_are_not_compiled(tmp_path):
    with pytest.raises(MigrateError, match="no single model to compile"):
        compile_model(str(tmp_path), tmp_path / "out", place_package)


def test_code_that_fails_leaves_nothing_in_the_cache(tmp_path):
    with pytest.raises(MigrateError, match="no weather"):
        packaged(code(tmp_path, "raise OSError('no weather')"), cache=tmp_path / "cache", options=SIZE)
    assert list((tmp_path / "cache" / "named").iterdir()) == []


def test_a_process_that_dies_in_the_middle_leaves_no_half_package(tmp_path):
    what, cache = code(tmp_path, "import time\ntime.sleep(60)\n"), tmp_path / "cache"
    program = "import sys; from pathlib import Path; from headrace.migrate.named.packaged import packaged\n"
    program += "packaged(sys.argv[1], cache=Path(sys.argv[2]))"
    process = subprocess.Popen([sys.executable, "-c", program, what, str(cache)])
    deadline = time.monotonic() + 60
    while not (cache / "named").is_dir() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    code(tmp_path)
    models = packaged(what, cache=cache, options=SIZE)
    assert load_artifact(next(path for path in models.iterdir() if (path / "config.pbtxt").is_file()))
    whole = [path for path in (cache / "named").iterdir() if not path.name.startswith(".")]
    assert [path / "models" for path in whole] == [models]


@pytest.mark.parametrize("name", ["../up", "-dash", "a b", ""])
def test_a_name_that_no_repository_takes_is_rejected(tmp_path, name):
    with pytest.raises(MigrateError, match="cannot name a model"):
        packaged(code(tmp_path), cache=tmp_path / "cache", options=Options(name=name, input_size=(3, 16, 16)))


def test_nothing_is_taken_from_where_others_can_put_it(tmp_path):
    """A cache that everybody may write, in which somebody has laid a link before: weights of theirs would be served."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "named").symlink_to(tmp_path / "theirs")
    (tmp_path / "net.onnx").write_bytes(b"graph")
    with pytest.raises(MigrateError, match="named: it is a link, or belongs to another user"):
        packaged(str(tmp_path / "net.onnx"), cache=tmp_path / "cache")
    assert [*(tmp_path / "theirs").iterdir()] == []
