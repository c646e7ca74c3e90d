from importlib.metadata import version

import pytest

from headrace.migrate.worker.rehearsal.edges import libraries


def test_another_library_is_imported_and_not_used(rehearsed):
    done = rehearsed({"main.py": "import nobody_has_this\nfrom nor_this.part import name\nprint('on')\n"})
    assert (done.report.ended, done.stdout, done.report.attempts) == ("finished", "on\n", 2)
    assert "nobody_has_this is not installed" in done.standins("libraries")[0].what


def test_all_names_of_another_library_are_those_that_the_file_uses(rehearsed):
    text = (
        "import torch\nfrom nobody_has_this.parts import *\nfrom own import *\n\n\nclass Mine(Part):\n    def merge(self):\n"
        "        return fold(self, here)\n\n\nprint(Mine.__name__, here, len([1]), 'fold' in globals(), 'Mine' in globals())\n"
    )
    done = rehearsed({"main.py": text, "own.py": "here = 3\n"})
    assert (done.report.ended, done.stdout) == ("finished", "Mine 3 1 True True\n"), done.report.why
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
    assert f"torch {version('torch')} is installed, where the repository asks for torch==1.4" in done.report.remedy


def test_modules_of_old_lightning_may_assign_their_parameters(on_stage):
    pytest.importorskip("pytorch_lightning")
    names = on_stage(libraries).play(
        "import argparse, pytorch_lightning as pl\nclass Net(pl.LightningModule):\n    def __init__(self, hparams):\n"
        "        super().__init__()\n        self.hparams = hparams\nrate = Net(argparse.Namespace(rate=0.5)).hparams.rate\n"
    )
    assert names["rate"] == 0.5


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


WINDOWS = """
import toolkit_of_nobody
if tuple(toolkit_of_nobody.version()) < (5, 12):
    raise ImportError("the toolkit is too old")
"""


@pytest.mark.parametrize("use", ["", "class Window(Canvas):\n    pass\nWindow().draw()\n"])
def test_a_part_of_a_library_that_refuses_to_be_imported_here_is_done_without(rehearsed, tmp_path, use):
    """As matplotlib's windows, where the toolkit that draws them only stands in."""
    files = {"plots/__init__.py": "", "plots/compat.py": WINDOWS, "plots/windows.py": "from . import compat\n"}
    start = installed(tmp_path, files)
    text = f"{start}import toolkit_of_nobody\nfrom plots.windows import Canvas\n{use}print('on')\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "on\n"), done.report.why
    assert "plots.windows is not in the installed plots" in [item.what.partition(";")[0] for item in done.standins("libraries")]


def test_a_library_that_refuses_as_a_whole_ends_the_script(rehearsed, tmp_path):
    start = installed(tmp_path, {"plots.py": "raise ImportError('not on this machine')\n"})
    done = rehearsed({"main.py": f"{start}import plots\n"})
    assert (done.report.ended, done.report.why) == ("stopped", "ImportError: not on this machine")


def test_a_tracker_of_another_version_does_nothing_either(rehearsed, tmp_path):
    start = installed(tmp_path, {"swanlab/__init__.py": "version = '9'\n", "aim/__init__.py": ""})
    text = (
        "import aim.old as aim\nfrom swanlab import begin\nrun = aim.init('plants')\nrun['loss'].log(begin(1))\nprint('well')\n"
    )
    done = rehearsed({"main.py": start + text})
    assert (done.report.ended, done.stdout) == ("finished", "well\n"), done.report.why
    said = {item.what.partition(";")[0] for item in done.standins("libraries")}
    assert said == {"aim.old is not in the installed library", "swanlab.begin is not in the installed swanlab"}
