"""Modules that were written for the hooks of Lightning 1."""

import importlib.util

import pytest

from headrace.migrate.worker.rehearsal.edges import lightning

pytest.importorskip("pytorch_lightning")
OLD = """
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.rand(6, 4), torch.arange(6) % 2), batch_size=2)
seen = []


class Base(pl.LightningModule):
    def training_epoch_end(self, outputs):
        seen.append(("train", len(outputs), sorted(outputs[0]), outputs[0]["loss"].requires_grad))


class Net(Base):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x)

    def training_step(self, batch, index):
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, index):
        return {"correct": (self(batch[0]).argmax(1) == batch[1]).sum()}

    def validation_epoch_end(self, outputs):
        seen.append(("val", len(outputs), sorted(outputs[0])))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


trainer = pl.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu",
                     num_sanity_val_steps=0, enable_model_summary=False)
trainer.fit(Net(), loader, loader)
"""


DATA = """

class Data(pl.LightningDataModule):
    def train_dataloader(self):
        return loader


class Counts(Net):
    def configure_optimizers(self):
        seen.append(len(self.train_dataloader()))
        return super().configure_optimizers()


trainer = pl.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu")
trainer.fit(Counts(), datamodule=Data())
"""


def test_a_module_has_the_loaders_of_the_data_module(on_stage):
    world = on_stage(lightning)
    assert 3 in world.play(OLD + DATA)["seen"]
    assert "Counts had the data module's loaders, as in older versions of Lightning" in world.said("libraries")


def test_the_old_hooks_are_called_with_what_the_steps_gave(on_stage):
    world = on_stage(lightning)
    names = world.play(OLD)
    assert sorted(names["seen"]) == [("train", 3, ["loss"], False), ("val", 3, ["correct"])]
    assert sorted(world.said("libraries")) == [
        f"Net.{name} was called, as older versions of Lightning did" for name in ("training_epoch_end", "validation_epoch_end")
    ]
    assert callable(vars(names["Base"])["training_epoch_end"])  # of the base class nothing was changed


def test_a_logger_whose_tracker_is_not_installed_does_nothing(rehearsed):
    if importlib.util.find_spec("wandb") is not None:
        pytest.skip("wandb is installed")
    text = (
        "import pytorch_lightning as pl\nfrom pytorch_lightning.loggers import WandbLogger, CSVLogger\n"
        "logger = WandbLogger(project='x', name='y')\nlogger.watch(None)\nlogger.experiment.config.update({'a': 1})\n"
        "logger.log_metrics({'loss': 1.0}, step=1)\nlogger.log_hyperparams({'a': 1})\n"
        "trainer = pl.Trainer(logger=[logger], max_epochs=1)\nprint(len(trainer.loggers), CSVLogger('.').root_dir)\n"
    )
    done = rehearsed({"main.py": text})
    assert done.report.ended == "finished", done.report.why
    assert done.stdout.splitlines()[-1].startswith("1 ")
    assert next(item.what for item in done.standins("libraries") if "WandbLogger" in item.what).startswith("wandb")


ARGUMENTS = """
parser = pl.Trainer.add_argparse_args(argparse.ArgumentParser())
args = parser.parse_args(["--max_epochs", "2", "--gpus", "1", "--default_root_dir", "runs"])
trainer = pl.Trainer.from_argparse_args(args, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                        accelerator="cpu", num_sanity_val_steps=0, enable_model_summary=False)
trainer.fit(model=Net(), train_dataloader=loader, val_dataloaders=loader)
tested = trainer.validate(Net(), val_dataloaders=loader)
"""


def test_a_group_of_options_becomes_the_parser_that_a_trainer_made_of_it(on_stage):
    text = (
        "import argparse\nimport pytorch_lightning as pl\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--size', default=3, type=int)\n"
        "parser = pl.Trainer.add_argparse_args(parser.add_argument_group(title='trainer'))\n"
        "parser.set_defaults(max_epochs=7)\nargs = parser.parse_args(['--size', '4'])\n"
    )
    names = on_stage(lightning).play(text)
    assert (names["args"].size, names["args"].max_epochs) == (4, 7)


def test_a_trainer_has_its_options_from_the_command_line_and_its_loaders_by_their_older_names(on_stage):
    world = on_stage(lightning)
    source = OLD.replace("import torch\n", "import argparse\nimport torch\n", 1).partition("trainer = pl.Trainer(")[0]
    names = world.play(source + ARGUMENTS)
    assert (names["trainer"].max_epochs, names["trainer"].current_epoch) == (2, 2)
    assert [kind for kind, *_ in names["seen"]] == ["val", "train"] * 2 + ["val"]
    assert {"train_dataloader was train_dataloaders, as it is called since Lightning 2"} < set(world.said("libraries"))


def test_a_logger_whose_tracker_is_missing_says_what_it_may_be_told(on_stage):
    """LightningCLI reads it off the class before it makes one."""
    if importlib.util.find_spec("wandb") is not None:
        pytest.skip("wandb is installed")
    text = (
        "import inspect\nfrom pytorch_lightning.loggers import WandbLogger\nfound = inspect.signature(WandbLogger).parameters\n"
    )
    assert {"project", "name"} <= set(on_stage(lightning).play(text)["found"])
