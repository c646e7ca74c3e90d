import json

import pytest

from headrace.migrate.worker.rehearsal.edges import arguments
from headrace.migrate.worker.rehearsal.making import Maker

PARSER = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("data", metavar="DIR")
parser.add_argument("--dataset", required=True, choices=["flowers", "birds"])
parser.add_argument("--ratio", required=True, type=float)
parser.add_argument("--image-path", required=True)
parser.add_argument("--weights", required=True, help="a file")
parser.add_argument("--lr", type=float, default=0.5)
args = parser.parse_args()
print(args.data, args.dataset, args.ratio, args.image_path, args.weights, args.lr)
"""


def test_what_argparse_requires_is_guessed(rehearsed):
    done = rehearsed({"main.py": PARSER})
    assert done.stdout == "data flowers 0.1 image.jpg checkpoint.pth 0.5\n"
    assert "--dataset flowers was guessed" in [item.what for item in done.standins("arguments")]
    assert all(item.where == "main.py:10" for item in done.standins("arguments"))


def test_what_was_given_is_kept(rehearsed):
    done = rehearsed({"main.py": PARSER}, "mine", "--dataset", "birds", "--ratio", "3", "--lr", "1")
    assert done.stdout == "mine birds 3.0 image.jpg checkpoint.pth 1.0\n"


def test_a_wrong_argument_is_still_wrong(rehearsed):
    done = rehearsed({"main.py": PARSER}, "mine", "--dataset", "fish")
    assert done.report.ended == "stopped"
    assert "invalid choice" in done.stderr


def test_another_spelling_of_a_choice_is_taken_for_it(rehearsed):
    text = (
        "import argparse\nMODELS = {'lenet': 1, 'mobile-net-v2': 2, 'mobile-net': 3}\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--model', choices=MODELS.keys(), required=True)\nparser.add_argument('--size', default='1')\n"
        "args = parser.parse_args()\nprint(MODELS[args.model], args.size)\n"
    )
    done = rehearsed({"main.py": text}, "--model", "MobileNet", "--size", "2")
    assert (done.stdout, done.report.attempts) == ("3 2\n", 2)
    assert "--model mobile-net was guessed" in [item.what for item in done.standins("arguments")]
    assert rehearsed({"main.py": text}, "--model=MobileNet", "--size=2").stdout == "3 2\n"


def test_click_and_argv_are_answered(rehearsed):
    click = "import click\n@click.command()\n@click.argument('image')\n@click.option('--size', type=int, required=True)\n"
    done = rehearsed({"main.py": click + "def main(image, size):\n    print(image, size)\nmain()\n"})
    assert done.stdout == "image.jpg 1\n"
    argv = "import sys\nif len(sys.argv) != 3:\n    sys.exit('usage')\nfolder = sys.argv[1]\n"
    argv += "weights = sys.argv[2]\nprint(folder, weights)\n"
    done = rehearsed({"main.py": argv})
    assert (done.stdout, done.report.attempts) == ("data checkpoint.pth\n", 3)


def test_typer_is_answered(rehearsed):
    text = (
        "import enum, typer\nfrom pathlib import Path\nfrom typing import Annotated, Optional\n"
        "class Kind(enum.Enum):\n    SMALL = 'small'\n    LARGE = 'large'\n"
        "def main(model_path: Path = typer.Argument(...), size: int = typer.Option(..., help='side'),\n"
        "         kind: Kind = typer.Option(...), images: list[str] = typer.Argument(...), rate: Optional[float] = None,\n"
        "         share: Annotated[float, typer.Option()] = ...):\n"
        "    print(model_path, size, kind, images, rate, share)\ntyper.run(main)\n"
    )
    done = rehearsed({"main.py": text})
    assert done.stdout == "checkpoint.pth 1 Kind.SMALL ['data'] None 0.1\n", done.report.why


def test_an_entry_that_a_table_lacks_is_chosen_from_it(rehearsed):
    text = (
        "import argparse\nmodels = {'small': 1, 'large': 2}\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--arch')\nprint(models[parser.parse_args().arch or 'medium'])\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.stdout, done.report.attempts) == ("1\n", 2)


@pytest.mark.parametrize(
    ("name", "told", "value"),
    [("data_dir", "", "data"), ("image_size", "", "224"), ("num_images", "number of images", "1"), ("batch_size", "", "1"),
     ("img", "", "image.jpg"), ("ckpt", "", "checkpoint.pth"),
     ("x", "path to the image", "image.jpg"), ("model", "path to the trained model", "checkpoint.pth"),
     ("input_path", "path to the directory of the images", "data"), ("image", "a folder with photos", "data"),
     ("input_path", "file or folder to classify", "image.jpg"),
     ("arch", "", "resnet18"), ("output_dir", "", "output"), ("n", "", "1"), ("config", "", "configs/a.yaml")],
)  # fmt: skip
def test_names_say_what_is_wanted(on_stage, name, told, value):
    world = on_stage()
    (world.root / "configs").mkdir()
    (world.root / "configs/a.yaml").touch()
    assert arguments.guess(name, told, Maker(world.stage)) == value


def test_a_name_that_the_scripts_own_table_has_not_gives_way_to_the_nearest_that_it_has(rehearsed):
    text = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--model', default='net34')\n"
        "args = parser.parse_args()\nmodels = {'other': 1, 'net32': 2}\n"
    )
    done = rehearsed({"main.py": text + "assert args.model in models\nprint(models[args.model])\n"})
    assert (done.report.ended, done.stdout) == ("finished", "2\n")
    assert [item.what for item in done.standins("arguments")] == ["--model net32 was guessed"]
    given_up = "if args.model not in models.keys():\n    raise ValueError('unknown')\nprint(models[args.model])\n"
    assert rehearsed({"main.py": text + given_up}).stdout == "2\n"


def test_another_error_in_a_branch_for_what_a_table_has_is_no_choice(rehearsed):
    text = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--model', default='a')\n"
        "args = parser.parse_args()\nif args.model in ('a', 'b'):\n    raise ValueError('broken')\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.report.attempts) == ("stopped", 1)


def test_the_configuration_that_the_readme_names_is_taken_else_one_for_evaluation(on_stage):
    world = on_stage()
    for name in ("configs/a.yaml", "configs/deep/b.yaml", "configs/eval_c.yaml", "environment.yml"):
        (world.root / name).parent.mkdir(parents=True, exist_ok=True)
        (world.root / name).touch()
    assert arguments.guess("config", "", Maker(world.stage)) == "configs/eval_c.yaml"
    (world.root / "README.md").write_text("python test.py --config configs/deep/b.yaml\n")
    assert arguments.guess("config", "", Maker(world.stage)) == "configs/deep/b.yaml"


def test_the_configuration_of_the_scripts_own_project_is_taken(on_stage):
    world = on_stage()
    for name in ("a/configs/a.cfg", "work/configs/b.cfg"):
        (world.root / name).parent.mkdir(parents=True, exist_ok=True)
        (world.root / name).touch()
    world.stage.directory = lambda: str(world.root / "work")
    assert arguments.guess("config", "", Maker(world.stage)) == "configs/b.cfg"


@pytest.mark.parametrize("wants", ["assert args.weights, 'give one'", "if not args.weights:\n    raise ValueError('give one')"])
def test_an_option_that_the_script_insists_on_is_given(rehearsed, wants):
    text = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--weights', default='')\n"
    done = rehearsed({"main.py": f"{text}args = parser.parse_args()\n{wants}\nprint(args.weights)\n"})
    assert (done.report.ended, done.stdout, done.report.attempts) == ("finished", "checkpoint.pth\n", 2)


def test_a_word_that_no_branch_knows_gives_way_to_one_that_a_branch_has(rehearsed):
    text = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--job', required=True)\n"
    text += "job = parser.parse_args().job\nif job == 'fit':\n    print('fits')\n"
    text += "elif job == 'evaluation':\n    print('evaluates')\n"
    done = rehearsed({"main.py": f"{text}else:\n    raise NotImplementedError\n"})
    assert (done.report.ended, done.stdout) == ("finished", "evaluates\n")


def test_a_command_is_chosen_and_its_own_arguments_are_guessed(rehearsed):
    text = (
        "import argparse\nparser = argparse.ArgumentParser()\nparts = parser.add_subparsers(dest='command', required=True)\n"
        "for name in ('train', 'evaluate'):\n    parts.add_parser(name).add_argument('--weights', required=True)\n"
        "args = parser.parse_args()\nprint(args.command, args.weights)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "evaluate checkpoint.pth\n")


def test_an_option_without_a_value_that_a_line_cannot_do_without_is_one_of_its_choices(rehearsed):
    text = (
        "import argparse\ndef small(): return 'small'\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--model-type', choices=['small', 'large'])\nparser.add_argument('--width', type=int)\n"
        "args = parser.parse_args()\nprint(eval(args.model_type)(), args.width)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "small None\n"), done.stderr
    assert [item.what for item in done.standins("arguments")] == ["--model-type small was guessed"]


def test_a_mandatory_value_of_a_configuration_is_told_on_the_command_line(rehearsed):
    text = (
        "import sys\nclass MissingMandatoryValue(Exception): ...\n"
        "given = dict(item.split('=') for item in sys.argv[1:])\n"
        "for name in ('model.ckpt_path', 'data.root'):\n"
        "    if name not in given:\n        raise MissingMandatoryValue(f'Missing mandatory value: {name}')\n"
        "print(*given.values())\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "checkpoint.pth data\n"), done.report.why
    assert [item.what for item in done.standins("arguments")] == [
        "'model.ckpt_path=checkpoint.pth' was guessed", "'data.root=data' was guessed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "named", ["name = args.img\n", "def f():\n    name = args.img\n    return Image.open(name)\nname = f().filename\n"]
)
def test_an_empty_option_that_a_line_takes_by_another_name_is_given(rehearsed, named):
    text = (
        "import argparse\nfrom PIL import Image\nparser = argparse.ArgumentParser()\nparser.add_argument('--img', default='')\n"
    )
    text += f"parser.add_argument('--note', default='')\nargs = parser.parse_args()\n{named}print(Image.open(name).size)\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "(256, 256)\n"), done.report.why
    assert [item.what for item in done.standins("arguments")] == ["--img image.jpg was guessed"]


def test_an_empty_option_that_a_statement_of_several_lines_hands_over_is_given(rehearsed):
    text = (
        "import argparse, os\nclass Data:\n    def __init__(self, list_file, size):\n        self.list_file = list_file\n"
        "        self.read()\n    def read(self):\n        assert os.path.exists(self.list_file)\n"
        "        print(open(self.list_file).readline(), end='')\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--val_list', default='')\nargs = parser.parse_args()\n"
        "Data(\n    list_file = args.val_list,\n    size = 3,\n)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "image_0000.jpg 0\n"), done.report.why


OPTION = "import argparse, os, yaml\nparser = argparse.ArgumentParser()\nparser.add_argument('-c', '--cfg', default='')\n"


@pytest.mark.parametrize(
    "load",
    [
        "    assert os.path.isfile(path), f'{path} is not there'\n    return yaml.safe_load(open(path))\n",
        "    if not path:\n        raise ValueError('no file')\n    return yaml.safe_load(open(path))\n",
        "    with open(path) as file:\n        return yaml.safe_load(file)\n",
    ],
)
def test_an_empty_option_that_a_function_was_handed_is_given(rehearsed, load):
    text = f"{OPTION}def settings(path):\n{load}args = parser.parse_args()\nprint(settings(args.cfg))\n"
    done = rehearsed({"main.py": text, "configs/net.yaml": "depth: 3\n"})
    assert (done.report.ended, done.stdout) == ("finished", "{'depth': 3}\n"), done.report.why
    assert "--cfg configs/net.yaml was guessed" in [item.what for item in done.standins("arguments")]


def test_an_option_that_has_nothing_to_do_with_what_failed_stays_empty(rehearsed):
    text = f"{OPTION}def check(depth):\n    assert depth > 3\nargs = parser.parse_args()\ncheck(len(args.cfg))\n"
    done = rehearsed({"main.py": text, "configs/net.yaml": "depth: 3\n"})
    assert (done.report.ended, done.report.attempts) == ("stopped", 1)


@pytest.mark.parametrize("take", ["settings['workers']", "Namespace(**settings).workers"])
@pytest.mark.parametrize("option", ["default=''", "required=True"])
def test_a_configuration_that_lacks_what_the_script_takes_gives_way_to_another(rehearsed, take, option):
    text = OPTION.replace("default=''", option) + "from argparse import Namespace\nargs = parser.parse_args()\n"
    text += f"settings = yaml.safe_load(open(args.cfg))\nprint({take})\n"
    files = {
        "configs/a.yaml": "depth: 3\n",
        "configs/b.yaml": "{}\n",
        "configs/c.yaml": "workers: 4\n",
        "d.yaml": "workers: 5\n",
    }
    done = rehearsed({"main.py": text, **files})
    assert (done.report.ended, done.stdout) == ("finished", "4\n"), done.report.why


@pytest.mark.parametrize("option", ["'--cfg', default=''", "'cfg'"])
def test_a_configuration_for_other_scripts_gives_way_to_one_of_another_folder(rehearsed, option):
    text = f"import argparse, yaml\nparser = argparse.ArgumentParser()\nparser.add_argument({option})\n"
    text += "args = parser.parse_args()\nname = yaml.safe_load(open(args.cfg)).get('name', '')\n"
    text += "if name != 'net':\n    raise NotImplementedError(f'invalid model {name}')\nprint(args.cfg)\n"
    files = {
        "configs/a_first/a.yaml": "{}\n",
        "configs/a_first/b.yaml": "{}\n",
        "configs/train/a.yaml": "name: net\n",
        "other/a.yaml": "name: net\n",
        "README.md": "python prepare.py configs/a_first/b.yaml\n",
    }
    done = rehearsed({"main.py": text, **files})
    assert (done.report.ended, done.stdout) == ("finished", "configs/train/a.yaml\n"), done.report.why


def test_a_configuration_without_which_no_other_does_stays(rehearsed):
    text = f"{OPTION}args = parser.parse_args()\nprint(yaml.safe_load(open(args.cfg))['workers'])\n"
    done = rehearsed({"main.py": text, "configs/a.yaml": "depth: 3\n", "other/b.yaml": "workers: 3\n"})
    assert (done.report.ended, done.report.why) == ("stopped", "KeyError: 'workers'")


@pytest.mark.parametrize(
    "read",
    [
        "root = os.environ['PLANTS_DATA_ROOT']",
        "root = os.environ.get('PLANTS_DATA_ROOT')\nif root is None:\n    raise ValueError('PLANTS_DATA_ROOT is not set')",
        "root = os.getenv('PLANTS_DATA_ROOT', '')\nif not root:\n    sys.exit('export PLANTS_DATA_ROOT=...')",
        "import settings\nroot = settings.root('PLANTS_DATA_ROOT')",
    ],
)
def test_a_variable_of_the_environment_without_which_the_script_gives_up_is_set(rehearsed, read):
    text = f"import os, sys\nos.environ.get('COLORS')\n{read}\nprint(root, 'COLORS' in os.environ)\n"
    settings = "import os\ndef root(name):\n    assert name in os.environ, f'{name} is not set'\n    return os.environ[name]\n"
    done = rehearsed({"main.py": text, "settings.py": settings})
    assert (done.report.ended, done.stdout, done.report.attempts) == ("finished", "data False\n", 2), done.report.why
    assert "PLANTS_DATA_ROOT=data was guessed" in [item.what for item in done.standins("arguments")]


def test_a_variable_that_an_error_does_not_name_stays_unset(rehearsed):
    done = rehearsed({"main.py": "import os\nif os.environ.get('ROOT') is None:\n    raise ValueError('ROOTS are missing')\n"})
    assert (done.report.ended, done.report.attempts) == ("stopped", 1)


def test_an_option_that_the_script_insists_on_is_one_of_what_it_may_be(rehearsed):
    text = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--model', choices=['densenet121', 'swin_t'])\nargs = parser.parse_args()\n"
        "if not args.model:\n    parser.error('--model is required')\nprint(args.model)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "densenet121\n"), done.report.why


SWITCHES = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--train", action="store_true")
parser.add_argument("--eval", action="store_true")
parser.add_argument("--test_time_augmentation", action="store_true")
parser.add_argument("--validate", action="store_false")
args = parser.parse_args()
told = (args.train, args.eval, args.test_time_augmentation, args.validate)
"""


def test_a_script_that_called_no_model_is_told_to_evaluate_and_then_to_train(on_stage, rehearsed, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["main.py"])
    stage = (world := on_stage(arguments)).stage
    assert world.play(SWITCHES)["told"] == (False, False, False, True)
    assert [arguments.last_in_vain(stage) for _ in range(3)] == [True, True, False]
    assert stage.learned["switches"] == ["--eval", "--train"]
    learned = json.dumps({"switches": ["--eval"]})
    done = rehearsed({"main.py": f"{SWITCHES}print(told)\n"}, made=tmp_path / "other", learned=learned)
    assert done.stdout == "(False, True, False, True)\n"
    assert "--eval was set, for without it no model is called" in [item.what for item in done.standins("arguments")]


@pytest.mark.parametrize(
    ("text", "argv", "named"),
    [
        ("import sys\nfor path in sys.argv[1:]:\n    print(path)\n", (), True),
        ("from sys import argv\nmain(argv[1:])\n", (), True),
        ("import sys\nfor path in sys.argv[1:]:\n    print(path)\n", ("a.jpg",), False),
        ("import sys\nprint(len(sys.argv))\n", (), False),
    ],
)
def test_a_script_that_goes_through_what_it_is_told_and_was_told_nothing_is_told_of_an_image(on_stage, text, argv, named):
    stage = on_stage(arguments, files={"main.py": text}, argv=argv).stage
    assert [arguments.last_in_vain(stage) for _ in range(2)] == [named, False]
    assert stage.learned.get("argv") == (["image"] if named else None)


def test_an_option_of_several_values_whose_default_is_one_gets_that_one(rehearsed):
    text = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--batch_size', nargs='+', default=128)\n"
        "args = parser.parse_args()\nprint([int(size) for size in args.batch_size])\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "[128]\n"), done.report


NETWORKS = """
import torch

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = torch.nn.Conv2d(width, width, 3)

class Perceptron(torch.nn.Module):
    pass

class SmallNet(torch.nn.Module):
    def __init__(self, classes=10):
        super().__init__()

def helper():
    return None
"""


def test_a_model_that_is_taken_by_its_name_from_a_module_is_one_of_that_module(rehearsed):
    text = (
        "import argparse, networks\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('model', help='class name')\nparser.add_argument('--times', default='1')\n"
        "args = parser.parse_args()\nprint(type(getattr(networks, args.model)()).__name__)\n"
    )
    done = rehearsed({"main.py": text, "networks.py": NETWORKS})
    assert (done.report.ended, done.stdout) == ("finished", "SmallNet\n"), done.report.why
    assert "model SmallNet was guessed" in [item.what for item in done.standins("arguments")]


def test_a_name_that_was_not_guessed_is_the_scripts_own_fault(rehearsed):
    done = rehearsed({"main.py": "import networks\nnetworks.resnet18()\n", "networks.py": NETWORKS})
    assert done.report.ended == "stopped"
    assert "module 'networks' has no attribute 'resnet18'" in done.report.why
