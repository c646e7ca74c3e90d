import os

import pytest

PACKAGE = {"src/animals/__init__.py": "", "src/animals/nets.py": "SIDE = 8\n"}


def test_a_package_of_the_repository_is_found_below_a_folder_that_is_not_on_the_import_path(rehearsed):
    done = rehearsed({**PACKAGE, "tools/run.py": "from animals.nets import SIDE\nprint(SIDE)\n"}, script="tools/run.py")
    assert (done.report.ended, done.stdout) == ("finished", "8\n")
    assert [item.what for item in done.standins("packages")] == ["src was put on the import path"]


def test_of_several_modules_of_a_name_that_below_the_scripts_folder_is_meant(rehearsed):
    files = {"a/utils.py": "name = 'a'\n", "z/lib/utils.py": "name = 'z'\n", "z/main.py": "from utils import *\nprint(name)\n"}
    done = rehearsed(files, script="z/main.py")
    assert (done.report.ended, done.stdout) == ("finished", "z\n"), done.report.why


def test_a_file_of_a_package_runs_as_its_module(rehearsed):
    run = "from .nets import SIDE\nimport sys\nprint(SIDE, __package__)\n"
    done = rehearsed({**PACKAGE, "src/animals/run.py": run}, script="src/animals/run.py", directory=None)
    assert (done.report.ended, done.stdout) == ("finished", "8 animals\n")
    assert [item.what for item in done.standins("packages")] == ["run as python -m animals.run"]


def test_a_relative_import_of_the_folder_above_runs_from_above_it(rehearsed):
    files = {"lib/nets.py": "SIDE = 4\n", "lib/tools/run.py": "from ..nets import SIDE\nprint(SIDE)\n"}
    done = rehearsed(files, script="lib/tools/run.py")
    assert (done.report.ended, done.stdout) == ("finished", "4\n")


def test_the_package_is_meant_where_the_scripts_own_folder_has_a_file_of_that_name(rehearsed):
    files = {"helpers/__init__.py": "", "helpers/logs.py": "def say(): print('said')\n", "helpers/helpers.py": ""}
    files["helpers/run.py"] = "from helpers.logs import say\nsay()\n"
    done = rehearsed(files, script="helpers/run.py")
    assert (done.report.ended, done.stdout) == ("finished", "said\n")


def test_the_repositorys_package_is_meant_where_an_installed_one_of_that_name_lacks_the_module(rehearsed):
    files = {"src/packaging/__init__.py": "", "src/packaging/boxes.py": "def say(): print('said')\n"}
    files["scripts/run.py"] = (
        "import sys\nfrom pathlib import Path\nsys.path.append(str(Path(__file__).parents[1] / 'src'))\n"
        "from packaging.boxes import say\nsay()\n"
    )
    done = rehearsed(files, script="scripts/run.py")
    assert (done.report.ended, done.stdout) == ("finished", "said\n"), done.report.why
    assert done.standins("packages")[0].what == "src came first on the import path"


def test_a_file_of_the_repository_is_read_where_its_user_would_stand(rehearsed):
    files = {"lists/classes.txt": "ant\nbee\n", "tools/run.py": "print(open('lists/classes.txt').read().split())\n"}
    done = rehearsed(files, script="tools/run.py", directory=None)
    assert done.stdout == "['ant', 'bee']\n"
    done = rehearsed(files, script="tools/run.py", directory=os.path.join(done.root, "tools"))
    assert done.stdout == "['ant', 'bee']\n"
    assert [item.what for item in done.standins("packages")] == ["run in the folder ."]
    assert not done.standins("data")


def test_what_a_script_looks_for_and_then_gives_up_is_found_where_its_user_would_stand(rehearsed):
    looks = "import os\npath = 'weights/net.txt'\nif not os.path.exists(path):\n    raise FileNotFoundError('train it first')\n"
    files = {"weights/net.txt": "seven\n", "src/run.py": f"{looks}print(open(path).read())\n"}
    root = rehearsed(files, script="src/run.py", directory=None).root
    done = rehearsed(files, script="src/run.py", directory=os.path.join(root, "src"))
    assert done.stdout == "seven\n\n", done.report.why
    assert not done.standins("data")


def test_a_library_that_is_nowhere_is_no_module_of_the_repository(rehearsed):
    done = rehearsed({"main.py": "import nobody_has_this\n"})
    assert not done.standins("packages")


def test_a_package_of_python_2_finds_its_own_modules(rehearsed):
    files = {
        "main.py": "from models import *\nimport models.net\nprint(Net().name, Net is models.net.Net)\n",
        "models/__init__.py": "from net import *\n",
        "models/net.py": "from .parts import NAME\nclass Net:\n    name = NAME\n",
        "models/parts.py": "NAME = 'part'\n",
    }
    done = rehearsed(files)
    assert (done.report.ended, done.stdout) == ("finished", "part True\n"), done.stderr
    assert "modules of models were found by their own package, as Python 2 did" in [
        item.what for item in done.standins("packages")
    ]


def test_a_module_that_wraps_a_library_of_its_own_name_is_not_that_library(rehearsed):
    files = {
        "examples/main.py": "from models.nobodysnets import NAME\n",
        "models/__init__.py": "",
        "models/nobodysnets.py": "import nobodysnets\nfrom nobodysnets.parts import Net\nNAME = 'net'\n",
    }
    done = rehearsed(files, script="examples/main.py")
    assert "nobodysnets is not installed; it can be imported and not used" in [item.what for item in done.standins("libraries")]


@pytest.mark.parametrize(
    "text",
    [
        "from parts import nothing\n",
        "import parts, torch\ntorch.load('weights.pth')\nparts()\n",
        "import torch\nprint(torch.nn.Linear(2, misspelled))\n",
        "import parts, torch\ntorch.load('weights.pth')\nprint(parts.MODELS_PATH)\n",
        "TABLE = {'a': 1}\nCHOSEN = 'b'\nprint(TABLE[CHOSEN])\n",
        "import parts\nfrom dataclasses import dataclass\n@dataclass\nclass Config:\n    of: parts.Of = parts.Of()\n",
    ],
)
def test_code_that_fails_for_everybody_is_said_to_be_the_repositorys_own(rehearsed, text):
    done = rehearsed({"main.py": text, "parts.py": "class Of:\n    __hash__ = None\n"})
    assert done.report.ended == "stopped"
    assert done.report.remedy.startswith(f"the repository's own code fails at {done.report.where}, and would without Headrace")


def test_code_that_fails_on_what_was_made_is_not(rehearsed):
    text = "import json\nprint(json.load(open('labels.json'))['no such'])\n"
    done = rehearsed({"main.py": text})
    assert done.report.ended == "stopped"
    assert done.report.remedy is None


def test_a_folder_whose_name_is_none_of_python_is_no_package(rehearsed):
    done = rehearsed({"net-1.2/main.py": "from .lib import x\n", "net-1.2/lib.py": "x = 1\n"}, script="net-1.2/main.py")
    assert done.report.ended == "stopped"
    assert "relative import" in done.report.why


@pytest.mark.parametrize(
    ("ignored", "told"),
    [
        ("*.pth\n# Data\ndata/\n", "src/data is not in this copy, and .gitignore:3 (data/) keeps it out of git; where"),
        ("src/data\n", "src/data is not in this copy, and .gitignore:1 (src/data) keeps it out of git"),
        ("dat*\n", "src/data is not in this copy, and .gitignore:1 (dat*) keeps it out of git"),
        ("!data/\n#data/\nother/data\n\n", "src/data is not in this copy: add it, or take another script"),
        (None, "src/data is not in this copy: add it, or take another script"),
    ],
)  # fmt: skip
def test_a_module_that_git_was_told_to_leave_out_is_said_to_be(rehearsed, ignored, told):
    files = {"main.py": "from src.data.loaders import build\nbuild()\n", "src/__init__.py": "", "src/net.py": ""}
    done = rehearsed(files if ignored is None else {**files, ".gitignore": ignored})
    assert told in done.report.remedy


@pytest.mark.parametrize(
    ("source", "told"),
    [("src/_mask.pyx", "src/_mask.pyx is not compiled: build it, or take"), ("src/_masks.c", ": mend it, or")],
)
def test_an_extension_of_which_the_source_is_here_is_to_be_built(rehearsed, source, told):
    done = rehearsed(
        {"main.py": "from src import rle\n", "src/__init__.py": "", "src/rle.py": "from . import _mask\n", source: ""}
    )
    assert told in done.report.remedy


def test_a_module_of_a_package_without_an_init_is_no_library_to_install(rehearsed):
    files = {"main.py": "import wandb\nfrom src.data.loaders import build\nbuild()\n", "src/data/sets.py": ""}
    done = rehearsed(files)
    assert "src/data/loaders is not in this copy: add it" in done.report.remedy
    assert "install" not in done.report.remedy


@pytest.mark.parametrize(
    ("go", "folder"),
    [
        ("os.chdir('/content/drive/My Drive/plants')", "."),
        ("os.chdir('/content/Image-Classification')", "."),
        ("if 'plants' not in os.getcwd():\n    os.chdir('./plants')", "."),
        ("os.chdir(r'C:\\Users\\me\\plants\\src')", "src"),
        ("os.chdir(Path('/home/me/plants/src/nets'))", "src/nets"),
        ("os.chdir('src')", "src"),
    ],
)
def test_a_script_that_goes_where_its_authors_copy_lies_goes_on_in_this_one(rehearsed, go, folder):
    text = f"import os\nfrom pathlib import Path\n{go}\nprint(os.path.relpath(os.getcwd(), os.path.dirname(__file__)))\n"
    done = rehearsed({"main.py": text, "src/nets/a.py": ""})
    assert (done.report.ended, done.stdout, done.report.attempts) == ("finished", f"{folder}\n", 1), done.report.why
    where = [item.what for item in done.standins("packages")]
    assert (
        not where if go == "os.chdir('src')" else where[0].endswith(f"is not here; the script went on in the folder {folder}")
    )


@pytest.mark.parametrize("folder", ["/srv/plants/images", "train_data", "/srv/data", "/srv/PlantsDataset"])
def test_a_folder_of_data_is_made_where_a_script_goes_into_it(rehearsed, folder):
    done = rehearsed({"main.py": f"import os\nos.chdir('{folder}')\nprint(len(os.listdir('.')) > 1)\n"})
    assert not [item for item in done.standins("packages") if "went on" in item.what]
    assert done.report.ended == "stopped" or done.stdout == "True\n"


def test_a_script_that_copes_with_a_missing_folder_goes_its_own_way(rehearsed):
    text = "import os\ntry:\n    os.chdir('/kaggle/working')\nexcept FileNotFoundError:\n    os.chdir('src')\n"
    done = rehearsed({"main.py": f"{text}print(os.path.basename(os.getcwd()))\n", "src/a.py": ""})
    assert (done.report.ended, done.stdout) == ("finished", "src\n")
