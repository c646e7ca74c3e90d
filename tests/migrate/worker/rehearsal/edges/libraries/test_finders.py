import importlib.util
import sys

import pytest

from headrace.migrate.worker.rehearsal.edges import libraries


def test_trackers_are_silent_and_keep_what_they_are_told_of_the_configuration(on_stage):
    world = on_stage(libraries)
    names = world.play(
        "import wandb\nfrom tensorboardX import SummaryWriter\nfrom thop import profile\n"
        "run = wandb.init(project='x', config={'lr': 0.1})\nwandb.log({'loss': 1})\nwandb.config.update({'size': 2})\n"
        "rate, size = wandb.config.lr, run.config['size']\nassert wandb.run.dir.endswith('wandb') and wandb.run.name\n"
        "with SummaryWriter('runs') as writer:\n    writer.add_scalar('x', 1)\n"
        "flops, params = profile(None, inputs=())\ntext = f'{flops / 1e9:.2f}'\n"
    )
    assert (names["rate"], names["size"], names["text"]) == (0.1, 2, "0.00")
    assert "wandb is not installed; a silent stub stood in" in world.said("libraries")


def test_torch_s_part_of_tensorboard_is_silent_where_tensorboard_is_not_installed(rehearsed):
    told = rehearsed(
        {
            "main.py": "from torch.utils import tensorboard as board\nfrom torch.utils.tensorboard import SummaryWriter\n"
            "from torch.utils.tensorboard.writer import FileWriter\nimport torch.utils.tensorboard.summary\n"
            "with SummaryWriter('runs/x') as writer:\n    writer.add_scalar('loss', 0.5, 1)\n"
            "assert board.SummaryWriter and FileWriter\nprint('on')\n"
        }
    )
    assert told.report.why is None, told.stderr
    if importlib.util.find_spec("tensorboard") is None:
        assert {item.what for item in told.standins("libraries")} == {"tensorboard is not installed; a silent stub stood in"}


def test_the_folder_of_its_records_is_not_taken_for_the_library(rehearsed):
    script = (
        "import wandb\nrun = wandb.init(project='x')\nimport nobody_has_this\nprint('on')\n"  # the next attempt finds wandb/
    )
    done = rehearsed({"main.py": script})
    assert (done.report.ended, done.stdout, done.report.attempts) == ("finished", "on\n", 2)
    kept = rehearsed({"main.py": "import wandb\nwandb.log({})\nprint('on')\n", "wandb/run-1/files/output.log": "loss 1\n"})
    assert (kept.report.ended, kept.stdout) == ("finished", "on\n")
    own = rehearsed({"main.py": "from wandb.own import name\nprint(name)\n", "wandb/own.py": "name = 'mine'\n"})
    assert own.stdout == "mine\n"  # a folder with modules is one


def test_nothing_of_it_is_left(on_stage):
    world = on_stage()
    with libraries.stand_in(world.stage):
        world.play("import wandb\n")
    assert "wandb" not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        world.play("import wandb\n")


LIGHTNING = """
class LightningModule:
    hparams = property(lambda self: None)
class LightningDataModule(LightningModule): ...
class Trainer: ...
"""


@pytest.mark.parametrize(
    ("installed", "script"),
    [
        (
            "pytorch_lightning",
            "import lightning as L\nfrom lightning.pytorch.callbacks import Callback as A\nimport lightning.pytorch as pl\n"
            "from pytorch_lightning.callbacks import Callback as B\nassert A is B and L.Trainer is pl.Trainer\n",
        ),
        (
            "lightning/pytorch",
            "import pytorch_lightning as pl\nfrom pytorch_lightning.callbacks import Callback as A\n"
            "from lightning.pytorch.callbacks import Callback as B\nassert A is B and pl.Trainer\n",
        ),
    ],
)
def test_lightning_has_two_names(on_stage, tmp_path, monkeypatch, installed, script):
    package = tmp_path / "installed" / installed
    package.mkdir(parents=True)
    (tmp_path / "installed" / installed.partition("/")[0] / "__init__.py").write_text("")
    (package / "__init__.py").write_text(LIGHTNING)
    (package / "callbacks.py").write_text("class Callback: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    kept = set(sys.modules)
    world = on_stage(libraries)
    try:
        world.play(script)
    finally:
        for name in set(sys.modules) - kept:
            del sys.modules[name]
    assert all(what.endswith("which is the same, stood in") for what in world.said("libraries"))
    assert world.said("libraries")


def test_apex_is_torch(on_stage):
    names = on_stage(libraries).play(
        "import torch\nfrom apex import amp\nfrom apex.parallel import DistributedDataParallel as DDP, convert_syncbn_model\n"
        "net = torch.nn.Linear(2, 1)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "net, optimizer = amp.initialize(net, optimizer, opt_level='O1')\nnet = DDP(convert_syncbn_model(net))\n"
        "loss = net(torch.ones(1, 2)).sum()\nwith amp.scale_loss(loss, optimizer) as scaled:\n"
        "    scaled.backward()\noptimizer.step()\n"
    )
    assert names["net"].module.weight.grad is not None


def test_an_optimizer_with_apexs_rates_for_each_layer_is_the_optimizer(on_stage):
    names = on_stage(libraries).play(
        "import torch\nfrom apex.parallel.LARC import LARC\nfrom apex import parallel\n"
        "optimizer = torch.optim.SGD([torch.ones(1)], lr=0.1)\n"
        "own, same = LARC(optimizer=optimizer, clip=False), parallel.LARC(optimizer)\n"
    )
    assert names["own"] is names["same"] is names["optimizer"]


def test_a_class_of_two_kinds_of_a_missing_library_is_one(rehearsed):
    text = "from nobody_has_this import db\nfrom nobody_has_that import UserMixin\n"
    done = rehearsed({"main.py": f"{text}class User(db.Model, UserMixin):\n    name = db.Column(3)\nprint(User.__name__)\n"})
    assert (done.report.ended, done.stdout) == ("finished", "User\n"), done.report.why


def test_what_a_missing_library_gives_does_nothing_and_is_said(rehearsed):
    text = (
        "import torch\nfrom nobody_has_this.bars import Bar\nfrom nobody_has_this import Base, register, track\n"
        "@register\nclass Mine(Base):\n    def __init__(self):\n        super().__init__(3)\n        self.side = 8\n"
        "bar = Bar('x', max=2)\nfor item in track([1, 2]):\n    bar.suffix = f'{bar.elapsed:.1f}'\n    bar.next()\n"
        "    print(item)\n"
        "print(Mine().side, round(bar.total, 2))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "1\n2\n8 0.0\n")
    said = "nobody_has_this is not installed; what the script takes from it does nothing here and is zero as a number"
    assert said in [item.what for item in done.standins("libraries")]


def test_what_a_missing_library_fetches_ahead_is_what_the_loader_gives(rehearsed):
    text = (
        "import torch\nfrom nobody_has_this import Ahead\nclass Loader(torch.utils.data.DataLoader):\n"
        "    def __iter__(self):\n        return Ahead(super().__iter__(), max_prefetch=2)\n"
        "print([batch.tolist() for batch in Loader(range(4), batch_size=2)])\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "[[0, 1], [2, 3]]\n"), done.report.why
