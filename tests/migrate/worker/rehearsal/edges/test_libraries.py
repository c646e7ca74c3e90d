import importlib.util
import sys

import pytest
import torch

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


def test_another_library_is_imported_and_not_used(rehearsed):
    done = rehearsed({"main.py": "import nobody_has_this\nfrom nor_this.part import name\nprint('on')\n"})
    assert (done.report.ended, done.stdout, done.report.attempts) == ("finished", "on\n", 2)
    assert "nobody_has_this is not installed" in done.standins("libraries")[0].what


def installed(tmp_path, files):
    """Libraries in an environment of their own, and the line with which a script sees them."""
    for name, text in files.items():
        path = tmp_path / "site-packages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return f"import sys\nsys.path.insert(0, {str(tmp_path / 'site-packages')!r})\n"


def test_an_installed_library_does_without_what_it_asks_for_by_itself(rehearsed, tmp_path):
    """As pandas asks for pytz: a stub of it would be one whose version is not known."""
    library = "try:\n    import {0}\n    has = {0}.__version__ >= '1.0'\nexcept ImportError:\n    has = False\n"
    probe = "try:\n    import apex, wandb\nexcept ImportError:\n    apex = None\nhas = apex is not None\n"
    start = installed(tmp_path, {"one.py": library.format("nobody"), "two.py": library.format("gone"), "three.py": probe})
    text = f"{start}import nobody\nimport one, two, three, gone\nprint(one.has, two.has, three.has)\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "False False False\n"), done.report.why
    assert {item.what.partition(" ")[0] for item in done.standins("libraries")} == {"nobody", "gone"}


def test_a_part_of_a_namespace_that_several_share_is_a_library_of_its_own(rehearsed, tmp_path):
    start = installed(tmp_path, {"of_many/here/__init__.py": "x = 1\n"})
    done = rehearsed({"main.py": f"{start}from of_many import here, gone\nimport of_many.away.deep\nprint(here.x)\n"})
    assert (done.report.ended, done.stdout) == ("finished", "1\n"), done.report.why
    assert {item.what.partition(" ")[0] for item in done.standins("libraries")} == {"of_many-gone", "of_many-away"}
    done = rehearsed({"main.py": f"{start}import torch\nfrom of_many import gone\ntorch.nn.Linear(2, 1)(gone.load('a.jpg'))\n"})
    assert done.report.remedy.startswith("install of_many-gone (nothing here says where from")
    assert "_UsedError" not in done.report.why


def test_what_a_missing_library_gave_may_explain_a_later_error(rehearsed):
    script = "from nobody_has_this import load\nsettings = {}\nload('config.yaml', into=settings)\nprint(settings['trainer'])\n"
    done = rehearsed({"main.py": script})
    assert (done.report.ended, done.report.why) == ("stopped", "KeyError: 'trainer'")
    assert done.report.remedy.startswith("install nobody_has_this (nothing here says where from")
    assert done.report.remedy.endswith("of that name), whose results were stood in for, where headrace runs")
    done = rehearsed({"main.py": "from nobody_has_this import load\nload('config.yaml')\nprint(settings)\n"})
    assert done.report.remedy.startswith("the repository's own code fails at main.py:3")


def test_a_name_that_a_missing_library_may_have_brought_is_not_the_repositorys_fault(rehearsed):
    done = rehearsed({"main.py": "from nobody_has_this.vision import *\nstats = imagenet_stats\n"})
    assert done.report.why == "NameError: name 'imagenet_stats' is not defined"
    assert done.report.remedy.startswith("install nobody_has_this (nothing here says where from")


def test_a_class_of_two_kinds_of_a_missing_library_is_one(rehearsed):
    text = "from nobody_has_this import db\nfrom nobody_has_that import UserMixin\n"
    done = rehearsed({"main.py": f"{text}class User(db.Model, UserMixin):\n    name = db.Column(3)\nprint(User.__name__)\n"})
    assert (done.report.ended, done.stdout) == ("finished", "User\n"), done.report.why


def test_a_library_that_another_one_asks_for_by_name_is_to_be_installed(rehearsed):
    text = "import nobody_has_this\nraise ValueError('the engine wants nobody_has_this 3.0; version 0 is installed')\n"
    done = rehearsed({"main.py": text})
    assert done.report.remedy.startswith("install nobody_has_this (nothing here says where from")


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


def test_what_a_missing_library_would_compute_of_images_stops_the_script(rehearsed):
    text = "import torch\nimport nobody_has_this\nimages = nobody_has_this.load('a.jpg')\ntorch.nn.Linear(2, 1)(images)\n"
    done = rehearsed({"main.py": text})
    assert done.report.ended == "stopped"
    assert done.report.where == "main.py:4"
    assert done.report.remedy.startswith("install nobody_has_this (nothing here says where from")
    named = rehearsed({"main.py": text, "requirements.txt": "numpy\nNobody-has-this\n"})
    assert named.report.remedy == "install nobody_has_this into the environment in which headrace runs"


def test_names_that_a_newer_library_has_no_more_can_be_imported_and_not_used(rehearsed):
    text = "from torch.utils import OldThing\nfrom torch._six_of_old import classes\ndef of(x: OldThing): ...\nprint('on')\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "on\n")
    assert [item.what for item in done.standins("libraries")] == [
        "torch._six_of_old is not in the installed torch; it can be imported and not used",
        "torch.utils.OldThing is not in the installed torch; it can be imported and not used",
    ]
    used = rehearsed({"main.py": text + "OldThing()\n"})
    assert (used.report.ended, used.report.where) == ("stopped", "main.py:5")


def test_records_that_another_version_kept_are_silent_and_what_computes_is_not(rehearsed):
    text = "import torch\nfrom torch.metrics_of_old import Accuracy\nprint(Accuracy()(torch.ones(2), torch.ones(2)) * 100)\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "0.0\n"), done.stderr
    done = rehearsed(
        {"main.py": "import torch\ndef of(x: torch.OldThing): ...\ntorch.OldLayer(3)\n", "requirements.txt": "torch==1.4\n"}
    )
    assert (done.report.ended, done.report.where) == ("stopped", "main.py:3")
    assert f"torch {torch.__version__} is installed, where the repository asks for torch==1.4" in done.report.remedy


def test_libraries_that_own_the_script_are_to_be_installed(rehearsed):
    text = "import hydra\n@hydra.main(config_path='conf')\ndef main(cfg):\n    print(cfg)\nmain()\n"
    done = rehearsed({"main.py": text})
    assert done.report.ended == "stopped"
    assert done.report.remedy == "install hydra-core into the environment in which headrace runs"


def test_modules_of_old_lightning_may_assign_their_parameters(on_stage):
    pytest.importorskip("pytorch_lightning")
    names = on_stage(libraries).play(
        "import argparse, pytorch_lightning as pl\nclass Net(pl.LightningModule):\n    def __init__(self, hparams):\n"
        "        super().__init__()\n        self.hparams = hparams\nrate = Net(argparse.Namespace(rate=0.5)).hparams.rate\n"
    )
    assert names["rate"] == 0.5


def test_code_of_a_submodule_that_is_not_here_is_fetched_and_not_installed(rehearsed):
    files = {"main.py": "import my_nets, torch\ntorch.nn.Linear(2, 1)(my_nets.x('a'))\n"}
    done = rehearsed({**files, ".gitmodules": '[submodule "n"]\n\tpath = third_party/my-nets\n'})
    assert done.report.remedy.startswith("my_nets is the git submodule third_party/my-nets, which is not checked out")


def test_a_library_beside_a_submodule_that_is_not_here_may_be_of_either(rehearsed):
    files = {"main.py": "import nobody_has_this\nimport torch\ntorch.nn.Linear(2, 1)(nobody_has_this.x('a'))\n"}
    done = rehearsed({**files, ".gitmodules": '[submodule "n"]\n\tpath = third_party/nets\n'})
    assert "into the environment in which headrace runs, or, where it is" in done.report.remedy
    assert "third_party/nets" in done.report.remedy


@pytest.mark.parametrize("use", ["torch.nn.Linear(2, 1)(tensorflow.zeros(2))", "a, b, c = tensorflow.load()"])
def test_a_model_of_another_framework_is_none_to_install(rehearsed, use):
    if importlib.util.find_spec("tensorflow") is not None:
        pytest.skip("tensorflow is installed")
    done = rehearsed({"main.py": f"import torch, tensorflow\n{use}\n"})
    assert done.report.ended == "stopped"
    assert done.report.remedy.startswith("the script computes with tensorflow, and Headrace migrates PyTorch")


@pytest.mark.parametrize(
    ("used", "said"),
    [
        (["nobodys_tta"], "what nobodys_tta would have done stood in: install nobodys_tta"),
        (["google.colab"], "what google.colab would have done stood in: google.colab is there only where the service runs"),
        (["google.colab", "nobodys_tta"], "what google.colab and nobodys_tta would have done stood in: install nobodys_tta ("),
        ([], None),
        (["nobodys_metrics"], None),
        (["tensorflow"], "the script computes with tensorflow"),
    ],
)
def test_a_library_that_may_have_been_handed_the_model_would_help_a_script_that_called_none(on_stage, used, said):
    world = on_stage(libraries, learned={"used": used, "absent": used})
    told = libraries.idle(world.stage)
    assert (told is None) if said is None else (told is not None and told.startswith(said))


def test_a_name_that_an_installed_library_lacks_is_not_told_as_a_missing_library(rehearsed):
    done = rehearsed({"main.py": "import numpy\nfinder = numpy.CascadeFinder('face')\n", "requirements.txt": "numpy==1.2\n"})
    assert done.report.why == "ModuleNotFoundError: numpy.CascadeFinder is not in the installed numpy"
    assert "No module named" not in done.stderr
    assert done.report.remedy.startswith("numpy ")
    assert done.report.remedy.endswith("where the repository asks for numpy==1.2; the installed one has no numpy.CascadeFinder")


PACKAGE = {
    "nets/__init__.py": "from .small import Small\nfrom .large import Large\n",
    "nets/small.py": "import torch\n\nclass Small(torch.nn.Linear):\n    pass\n",
}


def test_a_part_of_the_users_package_that_is_not_in_the_copy_can_be_imported(rehearsed):
    text = "import torch\nfrom nets import Large, Small\nkinds = {'small': Small, 'large': Large}\n"
    done = rehearsed({**PACKAGE, "main.py": f"{text}kinds['small'](4, 2)(torch.zeros(1, 4))\n"})
    assert done.report.ended == "finished", done.report.why
    assert done.standins("packages")[-1].what.startswith("nets.large is imported and not in this copy")
    done = rehearsed({**PACKAGE, "main.py": f"{text}kinds['large'](4, 2)(torch.zeros(1, 4))\n"})
    assert done.report.ended == "stopped"
    assert done.report.remedy.startswith("the repository's own code fails at main.py:4")
    assert "nets/large is not in this copy: add it" in done.report.remedy


def test_a_part_that_lies_elsewhere_in_the_repository_is_not_left_out(rehearsed):
    done = rehearsed({**PACKAGE, "old/large.py": "raise ImportError('old')\n", "main.py": "from nets import Small\n"})
    assert done.report.ended == "stopped"
    assert "left_out" not in done.report.learned
