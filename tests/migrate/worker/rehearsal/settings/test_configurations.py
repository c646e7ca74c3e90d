import pytest

SCRIPT = """
import argparse, json, sys
parser = argparse.ArgumentParser()
parser.add_argument("-c", "--config", default="configs/config.json")
args = parser.parse_args()
"""
READ = "print(json.load(open(args.config))['root_dir'])\n"


@pytest.mark.parametrize(
    "read",
    [
        READ,
        f"import os\nif not os.path.isfile(args.config):\n    sys.exit('no settings')\n{READ}",
        f"import os\nif not os.path.isfile(args.config):\n    raise ValueError(args.config + ' is missing')\n{READ}",
    ],
)
def test_for_a_configuration_that_is_named_and_not_here_another_of_its_format_is_taken(rehearsed, read):
    files = {"configs/examples/net.json": '{"root_dir": "here"}', "labels.json": "{}", "configs/net.yaml": "a: 1\n"}
    done = rehearsed({"main.py": SCRIPT + read, **files})
    assert (done.report.ended, done.stdout) == ("finished", "here\n"), done.report.why
    assert "--config configs/examples/net.json was guessed" in [item.what for item in done.standins("arguments")]


def test_the_configuration_that_lacks_what_the_script_takes_gives_way_here_too(rehearsed):
    files = {"configs/a.json": '{"depth": 3}', "configs/b.json": '{"root_dir": "there"}'}
    assert rehearsed({"main.py": SCRIPT + READ, **files}).stdout == "there\n"


def test_without_another_one_it_is_made_as_other_files_are(rehearsed):
    done = rehearsed({"main.py": SCRIPT + READ, "labels.json": '{"root_dir": "a table of labels"}'})
    assert "a table of labels" not in done.stdout
    assert not any("was guessed" in item.what for item in done.standins("arguments"))


def test_a_configuration_that_is_not_here_and_that_nothing_reads_stays(rehearsed):
    text = SCRIPT + "raise KeyError('depth')\n"
    done = rehearsed({"main.py": text, "configs/net.json": "{}"})
    assert (done.report.ended, done.report.attempts) == ("stopped", 1)


def test_each_of_two_configurations_is_the_one_that_is_called_like_it(rehearsed):
    text = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--config', required=True)\n"
    text += "parser.add_argument('--data-config', required=True)\nparser.add_argument('--model_cfg', required=True)\n"
    text += "args = parser.parse_args()\nprint(args.config, args.data_config, args.model_cfg)\n"
    files = dict.fromkeys(("configs/base.yaml", "configs/data_pets.yaml"), "{}")
    done = rehearsed({"main.py": text, **files})
    assert done.stdout == "configs/base.yaml configs/data_pets.yaml configs/base.yaml\n"


def test_each_of_several_configurations_lies_in_the_folder_that_is_called_like_it(rehearsed):
    text = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--model_config_path', required=True)\n"
    text += "parser.add_argument('--dataset_config', required=True)\nargs = parser.parse_args()\n"
    text += "print(args.model_config_path, args.dataset_config)\n"
    files = dict.fromkeys(("res/env/dataset.json", "res/datasets/mnist.json", "res/models/lenet.json", "res/run/a.json"), "{}")
    done = rehearsed({"main.py": text, **files})
    assert done.stdout == "res/models/lenet.json res/datasets/mnist.json\n"


def test_for_one_that_names_a_module_that_is_not_here_another_is_taken_and_no_switch_set(rehearsed):
    text = SCRIPT.replace("args =", "parser.add_argument('--eval', action='store_true')\nargs =")
    text += "import importlib\nnet = importlib.import_module(json.load(open(args.config))['module'])\n"
    text += "print(net.__name__, args.eval)\n"
    files = {"configs/template.json": '{"module": "nets.*_net"}', "configs/examples/small.json": '{"module": "nets.small"}'}
    done = rehearsed({"main.py": text, "nets/__init__.py": "", "nets/small.py": "", **files})
    assert (done.report.ended, done.stdout) == ("finished", "nets.small False\n"), done.report.why
