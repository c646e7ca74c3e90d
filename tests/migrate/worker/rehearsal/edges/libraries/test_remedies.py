import importlib.util

import pytest

from headrace.migrate.worker.rehearsal.edges import libraries


def test_what_a_missing_library_gave_may_explain_a_later_error(rehearsed):
    script = "from nobody_has_this import load\nsettings = {}\nload('config.yaml', into=settings)\nprint(settings['trainer'])\n"
    done = rehearsed({"main.py": script})
    assert (done.report.ended, done.report.why) == ("stopped", "KeyError: 'trainer'")
    assert done.report.remedy.startswith("what nobody_has_this would have done stood in: install nobody_has_this (nothing here")
    done = rehearsed({"main.py": "from nobody_has_this import load\nload('config.yaml')\nprint(settings)\n"})
    assert done.report.remedy.startswith("the repository's own code fails at main.py:3")


@pytest.mark.parametrize("error", ["RuntimeError", "SystemError", "Exception", "LookupError"])
def test_what_a_missing_library_did_not_find_may_explain_what_the_script_raises(rehearsed, error):
    text = f"import nobody_has_this\nfor face in nobody_has_this.faces('a.jpg'):\n    break\nraise {error}('no face')\n"
    done = rehearsed({"main.py": text})
    assert done.report.why == f"{error}: no face"
    assert done.report.remedy.startswith("what nobody_has_this would have done stood in: install nobody_has_this (nothing here")


def test_a_library_that_another_one_asks_for_by_name_is_to_be_installed(rehearsed):
    text = "import nobody_has_this\nraise ValueError('the engine wants nobody_has_this 3.0; version 0 is installed')\n"
    done = rehearsed({"main.py": text})
    assert done.report.remedy.startswith("install nobody_has_this (nothing here says where from")


def test_what_a_missing_library_would_compute_of_images_stops_the_script(rehearsed):
    text = "import torch\nimport nobody_has_this\nimages = nobody_has_this.load('a.jpg')\ntorch.nn.Linear(2, 1)(images)\n"
    done = rehearsed({"main.py": text})
    assert done.report.ended == "stopped"
    assert done.report.where == "main.py:4"
    assert done.report.remedy.startswith("install nobody_has_this (nothing here says where from")
    named = rehearsed({"main.py": text, "requirements.txt": "numpy\nNobody-has-this\n"})
    assert named.report.remedy == "install nobody_has_this into the environment in which headrace runs"


@pytest.mark.parametrize(("library", "distribution"), [("nibabel", "nibabel"), ("openslide", "openslide-python")])
def test_of_a_library_that_everybody_knows_nothing_is_to_be_feared(rehearsed, library, distribution):
    if importlib.util.find_spec(library) is not None:
        pytest.skip(f"{library} is installed here")
    done = rehearsed({"main.py": f"import torch\nimport {library}\ntorch.nn.Linear(2, 1)({library}.load('a'))\n"})
    assert done.report.remedy == f"install {distribution} into the environment in which headrace runs"


def test_libraries_that_own_the_script_are_to_be_installed(rehearsed):
    text = "import hydra\n@hydra.main(config_path='conf')\ndef main(cfg):\n    print(cfg)\nmain()\n"
    done = rehearsed({"main.py": text})
    assert done.report.ended == "stopped"
    assert done.report.remedy == "install hydra-core into the environment in which headrace runs"


def test_code_of_a_submodule_that_is_not_here_is_fetched_and_not_installed(rehearsed):
    files = {"main.py": "import my_nets, torch\ntorch.nn.Linear(2, 1)(my_nets.x('a'))\n"}
    done = rehearsed({**files, ".gitmodules": '[submodule "n"]\n\tpath = third_party/my-nets\n'})
    assert done.report.remedy.startswith("my_nets is the git submodule third_party/my-nets, which is not checked out")


def test_what_code_of_a_submodule_gave_may_explain_a_later_error(rehearsed):
    files = {"main.py": "from my_nets import load\nsettings = {}\nload(settings)\nprint(settings['trainer'])\n"}
    done = rehearsed({**files, ".gitmodules": '[submodule "n"]\n\tpath = my_nets\n'})
    assert "my_nets is the git submodule my_nets, which is not checked out" in done.report.remedy


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
        (["pkg_resources"], "what pkg_resources would have done stood in: install setuptools<82 into the environment"),
        (["neptune.new.init"], "what neptune.new.init would have done stood in: install neptune into the environment"),
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


def test_a_module_that_is_spelled_otherwise_is_not_to_be_installed(rehearsed):
    files = {"main.py": "import torch\nfrom Nets import load\ntorch.nn.Linear(2, 1)(load('a.jpg'))\n", "src/nets.py": "x = 1\n"}
    done = rehearsed(files)
    assert done.report.remedy.startswith("Nets is not here, and src/nets.py is: import it as it is spelled")


def test_a_model_out_of_the_store_of_a_library_that_only_watches_is_told_by_its_name(rehearsed):
    text = "import wandb\nimport mlflow.pytorch\nimport torch\n\nmodel = mlflow.pytorch.load_model('models:/net/1')\n"
    done = rehearsed({"main.py": f"{text}print(torch.argmax(model(torch.ones(1, 3)), 1))\n"})
    assert done.report.ended == "stopped"
    assert done.report.remedy == "install mlflow into the environment in which headrace runs"
