"""Lightning repositories: the network inside the module is found, and built without Lightning, metrics or data."""

from pathlib import Path

import pytest

from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.survey.lightning_module import network
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
