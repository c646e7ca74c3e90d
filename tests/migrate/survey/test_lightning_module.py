"""Lightning repositories: the network inside the module is found, and built without Lightning, metrics or data."""

from pathlib import Path

import pytest

from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.rewriting.rewrite import rewrite_all, rewritten_scripts
from headrace.migrate.rewriting.rule import all_rules
from headrace.migrate.survey.lightning_module import network, parts
from headrace.migrate.survey.survey import project_index, survey

torch = pytest.importorskip("torch")

MODULE = """
import pytorch_lightning as pl
import torch
import torchmetrics
from torch import nn


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, classes)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))


class Lit(pl.LightningModule):
    def __init__(self, num_classes=10, lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.net = Net(self.hparams.num_classes)
        self.loss = nn.CrossEntropyLoss()
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=num_classes)
%s
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)
"""
FORWARD = """
    def forward(self, x):
        return self.net(x)

    def test_step(self, batch, index):
        images, labels = batch
        self.log("accuracy", self.accuracy(self(images), labels))
"""
SOFTMAX = """
    def forward(self, x):
        return self.scaled(self.net(x)).softmax(1)

    def scaled(self, x):
        return x * self.hparams.lr

    def test_step(self, batch, index):
        images, labels = batch
        self.log("accuracy", self.accuracy(self(images), labels))
"""
BATCH = """
    def forward(self, batch):
        images, labels = batch
        predictions = self.net(images)
        return self.loss(predictions, labels), self.accuracy(predictions, labels)

    def test_step(self, batch, index):
        loss, accuracy = self.forward(batch)
        self.log("accuracy", accuracy)
"""
STEP = """
    def shared_step(self, batch):
        images, labels = batch
        return self.net(images), labels

    def validation_step(self, batch, index):
        logits = self.net(batch[0])
        self.log("loss", self.loss(logits, batch[1]))
"""
SHARED = """
    def forward(self, x):
        return self.net(x)

    def step(self, batch):
        images, labels = batch
        logits = self.forward(images)
        return self.loss(logits, labels), logits.argmax(1), labels

    def validation_step(self, batch, index):
        loss, predictions, labels = self.step(batch)
        self.log("accuracy", self.accuracy(predictions, labels))
"""
SHARED_CALL = """
    def step(self, batch):
        return self.net(batch[0]), batch[1]

    def training_step(self, batch, index):
        return self.loss(*self.step(batch))

    def test_step(self, batch, index):
        self.log("loss", self.loss(*self.step(batch)))
"""
BY_HYDRA = """
import hydra
from pytorch_lightning import LightningModule, Trainer


@hydra.main(config_path="configs", config_name="config")
def main(config):
    model: LightningModule = hydra.utils.instantiate(config.model)
    trainer: Trainer = hydra.utils.instantiate(config.trainer)
    trainer.fit(model=model)
    trainer.test(model=model)


if __name__ == "__main__":
    main()
"""
SCRIPT = """
import argparse
import pytorch_lightning as pl
from module import Lit
from pictures import Pictures

parser = argparse.ArgumentParser()
parser.add_argument("--classes", type=int, default=5)
parser.add_argument("--data", default="data")
args = parser.parse_args()
pl.seed_everything(1)
model = Lit(num_classes=args.classes)
trainer = pl.Trainer(max_epochs=1)
data = Pictures(args.data)
trainer.fit(model, data)
trainer.test(model, datamodule=data)
"""
PICTURES = """
import pytorch_lightning as pl
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class Pictures(pl.LightningDataModule):
    def __init__(self, root):
        super().__init__()
        self.root = root
        self.mean = (0.5, 0.5, 0.5)

    def setup(self, stage=None):
        train = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()])
        normalize = transforms.Normalize(self.mean, self.mean)
        tf = transforms.Compose([transforms.Resize((24, 24)), transforms.ToTensor(), normalize])
        self.train = datasets.ImageFolder(self.root, transform=train)
        self.test = datasets.ImageFolder(self.root, transform=tf)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=8, shuffle=True)

    def test_dataloader(self):
        return DataLoader(self.test, batch_size=8)
"""


def written(root: Path, **files: str) -> Path:
    for name, text in files.items():
        (root / f"{name}.py").write_text(text)
    return root


def built(recipe):
    """Run a recipe's source here: these are this file's own few lines, and need no Lightning."""
    names = {"__name__": "__headrace__"}
    exec(compile(recipe.source, "recipe", "exec"), names)
    return eval(recipe.expression, names)


def resolved(tmp_path, monkeypatch, methods, script=SCRIPT):
    found = resolve(survey(written(tmp_path, module=MODULE % methods, pictures=PICTURES, run=script)))
    monkeypatch.setattr("sys.argv", ["run.py", *found.recipe.argv])
    return found


@pytest.mark.parametrize(
    ("methods", "attribute"),
    [(FORWARD, "net"), (BATCH, "net"), (STEP, "net"), (SOFTMAX, None), (SHARED, "net"), (SHARED_CALL, "net")],
)
def test_network_inside_the_module(methods, attribute, tmp_path):
    known = project_index(survey(written(tmp_path, module=MODULE % methods, run=SCRIPT)))
    (lit,) = [model for model in known.table.classes.values() if model.lightning]
    assert network(lit) == attribute


@pytest.mark.parametrize(
    ("methods", "calls"),
    [
        (FORWARD, {("Lit.forward", "self.net", "x", None)}),
        (BATCH, {("Lit.forward", "self.net", "images", "predictions")}),
        (STEP, {("Lit.shared_step", "self.net", "images", None), ("Lit.validation_step", "self.net", "batch[0]", "logits")}),
        (SOFTMAX, {("Lit.test_step", "self", "images", None)}),
        (SHARED_CALL, {("Lit.step", "self.net", "batch[0]", None)}),
    ],
)
def test_a_trainers_call_knows_where_the_steps_call_the_network(methods, calls, tmp_path):
    (script,) = survey(written(tmp_path, module=MODULE % methods, pictures=PICTURES, run=SCRIPT)).scripts
    for loop in script.loops:
        assert {(step.function, step.model, step.inputs, step.outputs) for step in loop.steps} == calls
        assert {step.path for step in loop.steps} == {"module.py"}


@pytest.mark.parametrize(
    ("end", "calls"),
    [
        ("model.to_torchscript('net.pt')\n", 0),
        ("torch.jit.script(model)\n", 0),
        ("model.to_torchscript('net.pt', method='trace', example_inputs=images)\n", 1),
    ],
)
def test_nothing_is_put_in_a_forward_of_which_torchscript_is_made(end, calls, tmp_path):
    script = "import torch\n" + SCRIPT + end
    root = written(tmp_path, module=MODULE % FORWARD, pictures=PICTURES, run=script)
    (found,) = survey(root).scripts
    assert {len(loop.steps) for loop in found.loops} == {calls}
    changes = rewrite_all(survey(root), rules=all_rules(), unsafe=False).changes
    assert any(b"evaluation_step(self.net)" in change.after for change in changes) == bool(calls)


@pytest.mark.parametrize("methods", [FORWARD, BATCH, STEP])
def test_inner_network_is_built_without_lightning(methods, tmp_path, monkeypatch):
    found = resolved(tmp_path, monkeypatch, methods)
    assert "lightning" not in found.recipe.source
    assert "torchmetrics" not in found.recipe.source
    model = built(found.recipe)
    assert type(model).__name__ == "Net"
    assert model(torch.rand(2, 3, 8, 8)).shape == (2, 5)
    assert found.factory_name == "Net"


def test_forward_with_steps_of_its_own_is_kept(tmp_path, monkeypatch):
    model = built(resolved(tmp_path, monkeypatch, SOFTMAX).recipe)
    images = torch.rand(3, 3, 8, 8)
    torch.testing.assert_close(model(images), (model.net(images) * 0.1).softmax(1))


def test_checkpoint_brings_its_hyperparameters(tmp_path, monkeypatch):
    script = "import pytorch_lightning as pl\nfrom module import Lit\n" + (
        "model = Lit.load_from_checkpoint('last.ckpt', lr=0.2)\npl.Trainer().test(model)\n"
    )
    found = resolved(tmp_path, monkeypatch, FORWARD, script)
    assert [(step.kind, step.path, step.line, step.text) for step in found.chain if step.kind == "checkpoint"] == [
        ("checkpoint", "run.py", 3, "model = Lit.load_from_checkpoint('last.ckpt', lr=0.2)")
    ]
    whole = built(found.recipe if found.recipe.expression == "model" else found.fallback_recipe)
    state = {f"net.{name}": torch.randn_like(value) for name, value in whole.state_dict().items()}
    stored = {"state_dict": {**state, "accuracy.total": torch.zeros(1)}, "hyper_parameters": {"num_classes": 10, "lr": 0.1}}
    torch.save(stored, tmp_path / "last.ckpt")
    monkeypatch.chdir(tmp_path)
    model = built(found.recipe)
    torch.testing.assert_close(model.fc.weight, state["net.fc.weight"])


def test_transform_of_a_data_module(tmp_path, monkeypatch):
    recipe = resolved(tmp_path, monkeypatch, FORWARD).transform_recipe
    assert recipe is not None
    assert recipe.source_at.startswith("pictures.py")
    assert "Resize((24, 24))" in recipe.source
    assert "Random" not in recipe.source
    assert "lightning" not in recipe.source


def test_a_module_that_builds_on_another_stays_whole(tmp_path):
    derived = MODULE % FORWARD + "\n\nclass Finer(Lit):\n    pass\n"
    script = SCRIPT.replace("import Lit", "import Finer").replace("Lit(", "Finer(")
    found = resolve(survey(written(tmp_path, module=derived, pictures=PICTURES, run=script)))
    assert "from module import Finer" in found.recipe.source


def test_a_loader_that_is_another_loader(tmp_path, monkeypatch):
    pictures = PICTURES.replace(
        "def test_dataloader(self):",
        "def test_dataloader(self):\n        return self.val_dataloader()\n\n    def val_dataloader(self):",
    )
    source = resolve(survey(written(tmp_path, module=MODULE % FORWARD, pictures=pictures, run=SCRIPT))).transform_recipe.source
    assert "Resize((24, 24))" in source
    assert "train_dataloader" not in source


def test_a_module_that_hydra_makes_is_one_of_the_repository(tmp_path):
    derived = MODULE % SHARED + "\n\nclass Finer(Lit):\n    pass\n"
    surveyed = survey(written(tmp_path, module=derived, run=BY_HYDRA))
    (script,) = surveyed.scripts
    assert (script.path, script.roles) == ("run.py", ("train", "evaluate"))
    assert {site.owner.node.name for site in project_index(surveyed).trainers} == {"Finer"}


PARTS = """
import pytorch_lightning as pl
import torch
import torchvision
from torch import nn


class Head(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.fc = nn.Linear(4, classes)

    def forward(self, x):
        return self.fc(x)


class Smoothed(nn.Module):
    def forward(self, outputs, labels):
        return nn.functional.cross_entropy(outputs, labels)


class Lit(pl.LightningModule):
    def __init__(self, settings):
        super().__init__()
        self.body = torchvision.models.resnet18(num_classes=4)
        self.head, self.count = Head(settings["classes"]), 0
        self.top = Head(settings["classes"])
        self.criterion = Smoothed()
        self.drop = nn.Dropout()

    def training_step(self, batch, index):
        images, labels = batch
        return self.criterion(self.top(self.drop(self.body(images))), labels)

    def validation_step(self, batch, index):
        images, labels = batch
        features = self.drop(self.body(images))
        self.log("loss", self.criterion(self.top(features), labels))
%s

class Tuned(Lit):
    pass
"""
CHOSEN = """
from module import Lit, Tuned

KINDS = {"lit": Lit, "tuned": Tuned}


def choose(name):
    return KINDS[name]
"""
BY_NAME = """
import json
from pytorch_lightning import Trainer
from kinds import choose


def main():
    settings = json.load(open("settings.json"))
    model = choose(settings["kind"])
    model = model(settings)
    trainer = Trainer(max_epochs=2)
    trainer.fit(model)


if __name__ == "__main__":
    main()
"""
WHOLE = """
    def forward(self, x):
        return self.top(self.body(x))

    def test_step(self, batch, index):
        self.log("loss", self(batch[0]).sum())
"""


@pytest.mark.parametrize(("more", "found"), [("", ("body", "top")), (WHOLE, ())])
def test_parts_are_networks_that_an_evaluation_calls_one_after_another(tmp_path, more, found):
    known = project_index(survey(written(tmp_path, module=PARTS % more)))
    lit = next(model for model in known.table.classes.values() if model.node.name == "Lit")
    assert parts(lit, known.table) == found


def test_one_network_has_no_parts(tmp_path):
    known = project_index(survey(written(tmp_path, module=MODULE % STEP)))
    (lit,) = [model for model in known.table.classes.values() if model.lightning]
    assert parts(lit, known.table) == ()


def test_a_module_that_is_chosen_by_name_is_one_of_those_that_are_there(tmp_path):
    """Its script calls no model itself, and what is rewritten is in another file."""
    surveyed = survey(written(tmp_path, module=PARTS % "", kinds=CHOSEN, run=BY_NAME))
    (script,) = surveyed.scripts
    assert [(loop.kind, loop.model, loop.through) for loop in script.loops] == [("train", "model", ("module.py",))]
    rewriting = rewrite_all(surveyed, rules=all_rules(), unsafe=False)
    assert rewritten_scripts(surveyed, rewriting.changes) == {"run.py": ["PS204"]}
    text = next(change.after.decode() for change in rewriting.changes if change.path == "module.py")
    assert text.count("headrace.evaluation_step(self.body)(images)") == 1
    assert "headrace.evaluation_step(self.top)(features)" in text
    assert "self.criterion(self.top(self.drop(self.body(images))), labels)" in text, "training stays"


@pytest.mark.parametrize("made", ["transformers.Trainer", "trainers.Trainer"])
def test_another_librarys_trainer_holds_no_lightning_module(tmp_path, made):
    """Only what is known to be Lightning's may be given one that cannot be told."""
    script = BY_NAME.replace("from pytorch_lightning import", f"from {made.partition('.')[0]} import")
    surveyed = survey(written(tmp_path, module=PARTS % "", kinds=CHOSEN, run=script))
    assert surveyed.scripts == ()
