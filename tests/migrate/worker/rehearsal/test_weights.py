import itertools
import pickle
import sys
import types
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from headrace.migrate.worker.rehearsal import weights
from headrace.migrate.worker.rehearsal.weights import StandInState, stand_in_file


@pytest.fixture
def world(on_stage, tmp_path):
    found = on_stage()
    weights.install(found.stage, torch, ("cat", "dog"))
    (tmp_path / "x.pth").write_bytes(stand_in_file())
    found.path = str(tmp_path / "x.pth")
    return found


def test_a_stand_in_answers_as_checkpoints_do():
    StandInState.classes = ("cat", "dog")
    state = StandInState()
    assert isinstance(state["state_dict"]["model"], StandInState)
    assert state["torch_version"] == version("torch")  # as Lightning's "pytorch-lightning_version", by which it reads the rest
    assert isinstance(state["no-such-library_version"], StandInState)
    assert (state["epoch"], state["best_acc"], state["classes"], state["class_to_idx"]) == (
        0,
        0,
        ["cat", "dog"],
        {"cat": 0, "dog": 1},
    )
    assert state.pop("fc.weight", None) is None
    assert "state_dict" in state
    assert "fc.weight" not in state
    assert list(state.items()) == []
    with pytest.raises(KeyError):
        state["fc.weight"]


@pytest.mark.parametrize(
    "take",
    [
        "torch.load(path)",
        "torch.load(path, map_location='cpu', weights_only=True)['state_dict']",
        "{k.replace('module.', ''): v for k, v in torch.load(path)['model'].items()}",
        "{**net.state_dict(), **{k: v for k, v in torch.load(path).items() if k in net.state_dict()}}",
    ],
)
def test_a_model_takes_it_keeps_its_weights_and_is_marked(world, take):
    names = world.play(
        f"import torch\npath = {world.path!r}\nnet = torch.nn.Linear(2, 2)\nbefore = net.weight.clone()\n"
        f"net.load_state_dict({take})\nsame = torch.equal(net.weight, before)\n"
    )
    assert names["same"]
    if "**" not in take:
        assert not world.stage.user_weights
        assert world.said("network") == ["Linear: weights that are not yours stood in"]


@pytest.mark.parametrize("of", ["net.state_dict()", "net.state_dict(prefix='')", "OrderedDict(net.named_parameters())"])
def test_a_weight_that_is_taken_by_its_name_is_the_models_own(world, of):
    names = world.play(
        f"import torch\nfrom collections import OrderedDict\nnet = torch.nn.Sequential(torch.nn.Linear(2, 2))\n"
        f"before = net[0].weight.clone()\nstored = torch.load({world.path!r})\nstate = {of}\n"
        "for key in state:\n    state[key] = stored[key]\nnet.load_state_dict(state)\n"
        "same = torch.equal(net[0].weight, before)\n"
        "try:\n    stored['other.weight']\nexcept KeyError:\n    missed = True\n"
    )
    assert names["same"]
    assert names["missed"]
    assert not world.stage.user_weights


def test_optimizers_and_schedulers_take_it(world):
    world.play(
        f"import torch\nstate = torch.load({world.path!r})\nnet = torch.nn.Linear(2, 2)\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\noptimizer.load_state_dict(state['optimizer'])\n"
        "torch.optim.lr_scheduler.StepLR(optimizer, 1).load_state_dict(state['scheduler'])\nstart = state['epoch'] + 1\n"
    )


def test_the_users_own_weights_are_loaded_and_held_to_their_names(world, tmp_path):
    torch.save({"weight": torch.ones(2, 2), "bias": torch.ones(2)}, tmp_path / "own.pth")
    names = world.play(
        f"import torch\nnet = torch.nn.Linear(2, 2)\nnet.load_state_dict(torch.load({str(tmp_path / 'own.pth')!r}))\n"
    )
    assert torch.equal(names["net"].weight, torch.ones(2, 2))
    assert world.stage.user_weights
    with pytest.raises(RuntimeError, match="Missing key"):
        world.play("import torch\ntorch.nn.Linear(2, 2).load_state_dict({})\n")


def test_a_whole_model_that_was_stored_is_missed_by_the_name_of_its_file(world):
    for take in ("state.eval()", "state(1)"):
        with pytest.raises((AttributeError, TypeError), match=r"^x.pth is not here, and the script takes "):
            world.play(f"import torch\nstate = torch.load({world.path!r})\n{take}\n")


def test_a_stored_data_set_is_not_made_up(rehearsed):
    done = rehearsed({"main.py": "import torch\nrows = torch.load('whole_set.pt')\nimage, label = rows[0]\n"})
    assert (done.report.ended, done.report.where) == ("stopped", "main.py:3")
    assert done.report.remedy.startswith("put the file where the script looks for it")


READS = """
import torch
from net import build

kept = torch.load("best.pth", weights_only=False)
net = build(kept["arch"], kept["hidden"], kept["classes"])
net.load_state_dict(kept["state_dict"])
print(type(net[0]).__name__, [layer.out_features for layer in net], float(net[0].weight.sum()))
"""
BUILDS = """
import torch

def build(arch, hidden, classes):
    sizes = [4, *hidden, len(classes)]
    return torch.nn.Sequential(*(getattr(torch.nn, arch)(a, b) for a, b in zip(sizes, sizes[1:])))
"""
SAVES = """
import torch
from net import build

net = build("Linear", [3, 5], ["cat", "dog"])
torch.nn.init.constant_(net[0].weight, 2.0)
kinds = "Linear Conv2d".split()
torch.save({"arch": kinds[0], "hidden": [3, 5], "classes": ["cat", "dog"], "state_dict": net.state_dict()}, "best.pth")
"""


def test_a_checkpoint_holds_under_a_name_what_the_sources_bind_to_it(rehearsed):
    script = (
        "import torch\nkept = torch.load('best.pth')\nsettings = kept['hyper_parameters']\n"
        "def build(name, width):\n    return getattr(torch.nn, name.partition('.')[0])(width, 3)\n"
        "net = build(settings['architecture'], 4)\nnet.load_state_dict(kept['state_dict'])\nprint(net)\n"
    )
    done = rehearsed({"main.py": script, "train.py": "import torch\nclass Settings:\n    architecture: str = 'Linear'\n"})
    assert (done.report.ended, done.report.attempts) == ("finished", 2), done.stderr
    assert done.stdout.startswith("Linear(")


LIGHTNING = """
import torch

class Net(torch.nn.Linear):
    def __init__(self, num_features, num_classes, rate=0.1):
        super().__init__(num_features, num_classes)

    @classmethod
    def load_from_checkpoint(cls, path):  # as Lightning's
        checkpoint = torch.load(path)
        checkpoint.setdefault("hyper_parameters", {})
        made = checkpoint["hyper_parameters"] if "hyper_parameters" in checkpoint else {}
        net = cls(**made)
        net.load_state_dict(checkpoint["state_dict"])
        return net
"""


def test_what_lightning_makes_a_model_of_is_what_the_sources_have(rehearsed):
    script = "from net import Net\nprint(Net.load_from_checkpoint('best.ckpt'))\n"
    train = "from net import Net\nnet = Net(num_features=7, num_classes=5)\n"
    done = rehearsed({"main.py": script, "net.py": LIGHTNING, "train.py": train})
    assert (done.report.ended, done.stdout) == ("finished", "Net(in_features=7, out_features=5, bias=True)\n"), done.stderr
    said = [item.what for item in done.standins("network")]
    assert any("num_features=7, num_classes=5" in what for what in said), said


def test_what_lightning_makes_a_model_of_is_not_made_up(rehearsed):
    done = rehearsed({"main.py": "from net import Net\nprint(Net.load_from_checkpoint('best.ckpt'))\n", "net.py": LIGHTNING})
    assert done.report.ended == "stopped"
    assert "give it with --checkpoint FILE" in done.report.remedy


def test_what_the_training_script_saves_is_what_the_other_looks_for(rehearsed, tmp_path):
    files = {"net.py": BUILDS, "train.py": SAVES, "predict.py": READS}
    alone = rehearsed(files, script="predict.py", made=tmp_path / "made/predict")
    assert alone.report.ended == "stopped"
    assert rehearsed(files, script="train.py", made=tmp_path / "made/train").report.ok
    (tmp_path / "repository/best.pth").unlink()
    done = rehearsed(files, script="predict.py", made=tmp_path / "made/predict")
    assert (done.stdout, done.report.user_weights) == ("Linear [3, 5, 2] 24.0\n", False), done.stderr
    assert "what a rehearsed script saved: weights that are not yours stood in" in [
        item.what for item in done.standins("network")
    ]


@pytest.mark.parametrize("end", ["", "raise OSError('no disk')\n"])
def test_two_runs_of_a_script_find_the_same_whatever_another_saves_meanwhile(rehearsed, tmp_path, end):
    """Also of one that ends with an error of its own, after its model computed."""
    reads = "import torch\nnet = torch.nn.Linear(4, 2)\nnet.load_state_dict(torch.load('best.pth'))\n"
    reads += f"print(net(torch.ones(4)))\n{end}"
    saves = "import torch\ntorch.manual_seed(9)\ntorch.save(torch.nn.Linear(4, 2).state_dict(), 'other.pth')\n"
    files = {"train.py": saves, "predict.py": reads}
    first = rehearsed(files, script="predict.py", made=tmp_path / "made/predict")
    assert rehearsed(files, script="train.py", made=tmp_path / "made/train").report.ok
    again = rehearsed(files, script="predict.py", made=tmp_path / "made/predict")
    assert first.stdout == again.stdout != ""
    assert (first.report.ended, again.report.ended) == (("stopped",) * 2 if end else ("finished",) * 2)


def test_what_another_script_saved_in_another_form_is_done_without_also_where_the_error_is_the_scripts(rehearsed, tmp_path):
    saves = "import torch\ntorch.save({'epoch': 1, 'model': torch.nn.Linear(4, 2).state_dict()}, 'best.pth')\n"
    reads = (
        "import torch\nnet = torch.nn.Linear(4, 2)\ntry:\n    net.load_state_dict(torch.load('best.pth'))\n"
        "except Exception as error:\n    raise RuntimeError(f'Failed to load: {error}')\nprint(net(torch.ones(4)).shape)\n"
    )
    files = {"train.py": saves, "predict.py": reads}
    assert rehearsed(files, script="train.py", made=tmp_path / "made/train").report.ok
    (tmp_path / "repository/best.pth").unlink()
    done = rehearsed(files, script="predict.py", made=tmp_path / "made/predict")
    assert (done.report.ended, done.stdout) == ("finished", "torch.Size([2])\n"), done.report.why


def test_the_given_checkpoint_is_what_the_script_looks_for(rehearsed, tmp_path):
    given = tmp_path / "given.pth"
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    torch.save({"arch": "Linear", "hidden": [3], "classes": ["cat", "dog"], "state_dict": net.state_dict()}, given)
    done = rehearsed({"net.py": BUILDS, "predict.py": READS}, script="predict.py", checkpoint=str(given))
    assert done.stdout.startswith("Linear [3, 2]"), done.stderr
    assert done.report.user_weights


@pytest.mark.parametrize("take", ["kept['state_dict']['head']", "kept", "kept['absent']"])
def test_a_given_checkpoint_of_another_form_is_done_without(rehearsed, tmp_path, take):
    given = tmp_path / "given.pth"
    torch.save({"state_dict": torch.nn.Linear(9, 9).state_dict()}, given)
    script = "import torch\nkept = torch.load('best.pth')\nnet = torch.nn.Linear(4, 2)\n"
    script += f"net.load_state_dict({take})\nprint('done')\n"
    done = rehearsed({"main.py": script}, checkpoint=str(given))
    assert (done.report.ended, done.stdout, done.report.user_weights) == ("finished", "done\n", False), done.stderr


@pytest.mark.parametrize(("classes", "expected"), [(5, "kept"), (2, "given")])
def test_a_given_checkpoint_with_another_head_is_not_what_a_library_fetches(rehearsed, tmp_path, classes, expected):
    """Transfer learning: a pretrained network is fetched, and the head that the checkpoint is for comes after."""
    given = tmp_path / "given.pth"
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, classes))
    torch.save(net.state_dict(), given)
    script = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
before = net[0].weight.clone()
with torch.no_grad():
    net.load_state_dict(torch.hub.load_state_dict_from_url("https://example.invalid/net-1234.pth"))
    fetched = "kept" if torch.equal(before, net[0].weight) else "given"
    net[1] = torch.nn.Linear(4, CLASSES)
    net.load_state_dict(torch.load("best.pth"))
    print(fetched, round(float(net[0].weight.double().sum()), 6))
"""
    done = rehearsed({"main.py": script.replace("CLASSES", str(classes))}, checkpoint=str(given))
    own = round(float(net[0].weight.detach().double().sum()), 6)
    assert (done.report.ended, done.stdout.splitlines()[-1]) == ("finished", f"{expected} {own}"), done.stderr
    assert done.report.user_weights == (expected == "given")


def test_a_name_without_an_ending_may_be_that_of_a_file(rehearsed):
    script = "import os, torch\nif not os.path.exists('model/checkpoint'):\n    raise SystemExit('no model/checkpoint')\n"
    done = rehearsed(
        {"main.py": script + "torch.nn.Linear(2, 2).load_state_dict(torch.load('model/checkpoint'))\nprint('done')\n"}
    )
    assert done.stdout == "done\n", done.report


@pytest.mark.parametrize("path", ["'best.pth'", "sys.argv[1]"])
@pytest.mark.parametrize(
    ("form", "take"),
    [
        *itertools.product(
            ["bare", "module."], ["kept['state_dict']", "kept", "kept.get('model')", "kept['net'] if 'net' in kept else kept"]
        ),
        *itertools.product(["state_dict"], ["kept['state_dict']", "kept"]),
    ],
)
def test_given_weights_are_taken_in_whatever_form_a_script_expects(world, tmp_path, path, take, form):
    given = tmp_path / "given.pth"
    state = {f"{form if form == 'module.' else ''}{name}": value for name, value in torch.nn.Linear(4, 2).state_dict().items()}
    torch.save({"state_dict": state} if form == "state_dict" else state, given)
    object.__setattr__(world.stage, "request", replace(world.stage.request, checkpoint=str(given)))
    text = f"import sys, torch\nkept = torch.load({str(given)!r} if 'argv' in {path!r} else {world.path!r})\n"
    names = world.play(f"{text}net = torch.nn.Linear(4, 2)\nnet.load_state_dict({take})\nfound = net.bias.clone()\n")
    assert torch.equal(names["found"], next(value for name, value in state.items() if name.endswith("bias")))
    assert world.stage.user_weights


def test_weights_alone_do_for_a_script_that_resumes(world, tmp_path):
    torch.save({"weight": torch.ones(2, 2), "bias": torch.ones(2)}, tmp_path / "given.pth")
    world.stage.request = replace(world.stage.request, checkpoint=str(tmp_path / "given.pth"))
    names = world.play(
        f"import torch\nkept = torch.load({str(tmp_path / 'given.pth')!r})\nnet = torch.nn.Linear(2, 2)\n"
        "start, best = kept['epoch'] + 1, kept['best_prec']\nnet.load_state_dict(kept['state_dict'])\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\noptimizer.load_state_dict(kept['optimizer'])\n"
        "wrong = False\ntry:\n    kept['arch']\nexcept KeyError:\n    wrong = True\n"
    )
    assert (names["start"], names["best"], names["wrong"]) == (1, 0, True)
    assert torch.equal(names["net"].weight, torch.ones(2, 2))
    assert world.stage.user_weights
    assert "'epoch' of a checkpoint, where yours holds weights alone" in world.said("network")


def test_a_script_that_takes_the_whole_model_is_told_what_the_given_checkpoint_is(rehearsed, tmp_path):
    torch.save({"weight": torch.ones(2, 2)}, tmp_path / "given.pth")
    for use in ("model.to('cpu')", "model(torch.ones(1, 2))"):
        script = f"import torch\nmodel = torch.load({str(tmp_path / 'given.pth')!r})\n{use}\n"
        done = rehearsed({"main.py": script}, checkpoint=str(tmp_path / "given.pth"))
        assert (done.report.ended, done.report.where) == ("stopped", "main.py:3")
        assert "the given checkpoint is a table and no model, and the script takes" in done.report.why
        assert done.report.remedy.startswith("give with --checkpoint the file in which")


def test_a_whole_model_of_the_repositorys_own_class_is_loaded_without_trust(world, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    (Path(world.stage.root) / "own_net.py").write_text(
        "import torch\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.top = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())\n"
    )
    monkeypatch.syspath_prepend(world.stage.root)
    names = world.play(
        "import torch\nfrom own_net import Net\n\nnet = Net()\ntorch.save(net, 'whole.pth')\n"
        "again = torch.load('whole.pth', map_location='cpu', weights_only=False)\n"
    )
    assert type(names["again"]) is names["Net"]
    assert torch.equal(names["again"].top[0].weight, names["net"].top[0].weight)


def test_a_whole_model_that_holds_more_is_refused(world, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(pickle.UnpicklingError):
        world.play(
            "import torch, os\n\nclass Bad:\n    def __reduce__(self):\n        return os.system, ('touch executed',)\n\n"
            "net = torch.nn.Linear(2, 2)\nnet.extra = Bad()\ntorch.save(net, 'whole.pth')\ntorch.load('whole.pth')\n"
        )
    assert not list(tmp_path.rglob("executed"))


TAKEN_APART = """\
import torch
from torch import load


class Set:
    def __init__(self, path):
        self.data, self.labels = load(path)


"""


def test_a_file_that_is_taken_apart_is_a_data_set(rehearsed):
    text = (
        f"{TAKEN_APART}found = Set('data/training.pt')\nprint(found.data.dtype, *found.data.shape, *found.labels[:4].tolist())"
    )
    done = rehearsed({"main.py": text, "net.py": "num_classes = 3\n"})
    assert (done.report.ended, done.stdout) == ("finished", "torch.uint8 30 28 28 0 1 2 0\n"), done.report.why
    assert "training.pt: 2 arrays" in [item.what for item in done.standins("data")]
    assert done.report.user_weights  # none are missing


def test_a_file_that_is_taken_apart_is_not_what_the_training_script_saves(rehearsed, tmp_path):
    files = {"net.py": BUILDS, "train.py": SAVES, "main.py": f"{TAKEN_APART}print(len(Set('data/test.pt').data))\n"}
    assert rehearsed(files, script="train.py", made=tmp_path / "made/train").report.ok
    done = rehearsed(files, made=tmp_path / "made/main")
    assert (done.report.ended, done.stdout) == ("finished", "100\n"), done.report.why


def test_a_data_set_has_the_channels_that_the_model_takes(rehearsed):
    text = f"{TAKEN_APART}found = Set('training.pt')\nimages = found.data.float()\n"
    text += "images = images[:, None] if images.dim() == 3 else images\nprint(torch.nn.Conv2d(3, 4, 3)(images).shape[1])\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "4\n"), done.report.why


def test_a_model_beside_a_data_set_still_misses_its_weights(rehearsed):
    text = f"{TAKEN_APART}Set('training.pt')\nnet = torch.nn.Linear(2, 2)\nnet.load_state_dict(torch.load('net.pt'))\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.report.user_weights) == ("finished", False)


@pytest.mark.parametrize("name", ["out/net.torch", "runs/best", "w.params.v2"])
def test_what_torch_loads_is_weights_whatever_it_ends_in(rehearsed, name):
    text = f"import torch\nnet = torch.nn.Linear(4, 2)\nnet.load_state_dict(torch.load({name!r}))\nprint(net.weight.shape)\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "torch.Size([2, 4])\n"), done.report.why
    assert not done.report.user_weights


KEPT = """
import argparse
import torch

from settings import Settings

torch.save({"net": torch.nn.Linear(2, 2).state_dict(), "args": argparse.Namespace(width=2), "settings": Settings()}, "last.pth")
with open("last.pth", "rb") as file:  # as Lightning does
    held = torch.load(file, map_location="cpu")
width, weights = held["args"].width, len(held["net"])
"""


def test_settings_beside_the_weights_are_taken_as_data_and_that_is_told(world, monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    monkeypatch.setitem(sys.modules, "settings", types.ModuleType("settings"))
    exec("class Settings: ...", vars(sys.modules["settings"]))
    names = world.play(KEPT)
    assert (names["width"], names["weights"]) == (2, 2)
    assert world.said("weights") == [
        "last.pth holds more than weights: torch.load takes it with weights_only=False alone",
        "settings.Settings in last.pth is data without its code; --trust-checkpoint loads it as it is",
    ]


@pytest.mark.parametrize(
    "taken",
    [
        "trainset",
        "torch.utils.data.random_split(trainset, [0.5, 0.5])[0]",
        "torch.utils.data.Subset(trainset, [0, 1, 2])",
        "torch.utils.data.ConcatDataset([trainset, trainset])",
    ],
)
def test_a_data_set_that_was_saved_whole_has_items(rehearsed, taken):
    """As `torch.save(TensorDataset(images, labels), "train.pt")` has it."""
    text = f"""
import torch
from torch.utils.data import DataLoader

trainset = torch.load("data/processed/train.pt")
net = torch.nn.Conv2d(CHANNELS, 2, 3)
for images, labels in DataLoader({taken}, batch_size=2, shuffle=True):
    print(net(images).shape[:2], labels.dtype)
    break
"""
    for channels in (3, 1):
        done = rehearsed({"main.py": text.replace("CHANNELS", str(channels))})
        assert (done.report.ended, done.stdout) == ("finished", "torch.Size([2, 2]) torch.int64\n"), done.report.why
        assert "train.pt: a data set of images and labels" in [item.what for item in done.standins("data")]
        assert not done.standins("network")
