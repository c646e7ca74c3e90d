import sys
import types

import pytest

from headrace.migrate.worker.rehearsal.edges import functions
from headrace.migrate.worker.rehearsal.requests import ADDRESS

CLASSIFY = """
import torch
from PIL import Image
model = torch.nn.Linear(3, 2)
LABELS = ["ant", "bee"]

def helper(image, missing):
    raise AssertionError("nobody has `missing`")

def show(picture):
    raise ValueError("not this one")

def predict_label(image_path: str, model, LABELS, size=(4, 4)):
    image = Image.open(image_path).resize(size)
    scores = model(torch.tensor([[float(band) for band in image.getpixel((0, 0))]]))
    return LABELS[int(scores.argmax())]
"""


def played(on_stage, text, files=None):
    """The script run as a rehearsal does that found no model: the edge is asked, and holds in the next attempt."""
    world = on_stage(files=files)
    before = sys.modules["__main__"]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        vars(main).update(world.play(text))
        knows = functions.in_vain(world.stage)
        again = functions.in_vain(world.stage)
        with functions.stand_in(world.stage):
            world.stage.finish()
    finally:
        sys.modules["__main__"] = before
    return world, knows, again


def test_the_function_that_takes_an_image_is_called_once(on_stage, capsys):
    world, knows, again = played(on_stage, CLASSIFY)
    assert (knows, again) == (True, False)
    assert world.said("functions") == ["predict_label was called with a made image, for nothing here calls it"]
    assert capsys.readouterr().out in ("predict_label: ant\n", "predict_label: bee\n")


@pytest.mark.parametrize(
    ("parameter", "kind"),
    [("image_bytes", "bytes"), ("img", "Image"), ("filename", "str"), ("x_path: Path", "PosixPath"), ("image: bytes", "bytes")],
)
def test_the_image_comes_as_the_parameter_says(on_stage, capsys, parameter, kind):
    text = f"from pathlib import Path\ndef predict({parameter}):\n    return type({parameter.partition(':')[0]}).__name__\n"
    _, knows, _ = played(on_stage, text)
    assert knows
    assert capsys.readouterr().out == f"predict: {kind}\n"


@pytest.mark.parametrize(
    ("annotation", "form"),
    [
        ("list[bytes]", "[bytes]"),
        ("Sequence[Path]", "[PosixPath]"),
        ("'List[Image.Image]'", "[Image]"),
        ("list[tuple[str, bytes]]", "[(image.jpg, bytes)]"),
        ("tuple[str, Image.Image]", "(image.jpg, Image)"),
        ("tuple[int, bytes]", "bytes"),
    ],
)
def test_several_images_and_such_with_a_name_come_as_annotated(on_stage, capsys, annotation, form):
    text = """from __future__ import annotations
def kind(value):
    if type(value) in (list, tuple):
        inner = ", ".join(map(kind, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return value if value == "image.jpg" else type(value).__name__
def predict_many(files: %s):
    return kind(files)
"""
    _, knows, _ = played(on_stage, text % annotation)
    assert knows
    assert capsys.readouterr().out == f"predict_many: {form}\n"


def test_an_error_of_the_only_function_is_the_scripts(on_stage):
    with pytest.raises(ZeroDivisionError):
        played(on_stage, "def classify(path):\n    return 1 / 0\n")


@pytest.mark.parametrize(
    "text",
    ["def predict(x):\n    return x\n", "def _predict(image):\n    return 1\n", "async def predict(image):\n    return 1\n",
     "from shutil import copyfile as take_image\n", "def predict(image, other):\n    return 1\n"],
)  # fmt: skip
def test_others_are_not_called(on_stage, text):
    world, knows, _ = played(on_stage, text)
    assert not knows
    assert world.said("functions") == []


def test_a_function_that_takes_an_address_is_given_one(on_stage, capsys):
    _, knows, _ = played(on_stage, "def predict(image_url: str):\n    return image_url\n")
    assert knows
    assert capsys.readouterr().out == f"predict: {ADDRESS}\n"


def test_an_encoded_image_is_given_where_the_source_decodes_one(on_stage, capsys):
    text = (
        "import io\nfrom base64 import b64decode\nfrom PIL import Image\n"
        "def process_image(image):\n    return Image.open(io.BytesIO(b64decode(image))).size\n"
    )
    played(on_stage, text)
    assert capsys.readouterr().out == "process_image: (256, 256)\n"


def test_what_the_parameter_does_not_say_is_read_off_the_source(on_stage, capsys):
    played(on_stage, "import io\ndef predict(file):\n    return len(io.BytesIO(file).getvalue()) > 100\n")
    assert capsys.readouterr().out == "predict: True\n"


CLASS = """
import torch

class Net(torch.nn.Module):
    def predict(self, image):
        raise AssertionError("a model is no classifier of images by itself")

class Failed(Exception):
    def predict(self, image):
        raise self

class Classifier:
    def __init__(self, model_path, size=4):
        self.model, self.path, self.size = None, model_path, size

    def load_model(self):
        self.model = torch.nn.Linear(3, 2)

    def explain_prediction(self, image, labels):
        raise AssertionError("nobody has `labels`")

    def predict(self, image_bytes):
        import io
        from PIL import Image
        image = Image.open(io.BytesIO(image_bytes)).resize((self.size, self.size))
        self.model(torch.tensor([[float(band) for band in image.getpixel((0, 0))]]))
        return self.path
"""


def test_an_object_of_a_class_that_classifies_is_made_and_asked(on_stage, capsys):
    world, knows, _ = played(on_stage, CLASS)
    assert knows
    assert capsys.readouterr().out == "Classifier.predict: checkpoint.pth\n"
    assert world.said("functions")[0] == "Classifier.predict was called with a made image, for nothing here calls it"


def test_the_scripts_own_object_is_asked_where_it_has_one(on_stage, capsys):
    played(on_stage, f"{CLASS}\nclassifier = Classifier('own.pth')\nclassifier.load_model()\n")
    assert capsys.readouterr().out == "Classifier.predict: own.pth\n"


def test_a_class_is_asked_with_a_table_out_of_which_it_takes_an_image(on_stage, capsys):
    """What another program makes, loads and asks; of its methods not the one that only prepares."""
    text = CLASSIFY.partition("def helper")[0] + (
        "import base64, io\n\nclass Model:\n    def __init__(self, **settings):\n        self.model = None\n\n"
        "    def load(self):\n        self.model = model\n\n"
        "    def preprocess(self, request):\n        data = base64.b64decode(request['picture'])\n"
        "        return Image.open(io.BytesIO(data)).convert('RGB').resize((4, 4))\n\n"
        "    def predict(self, request, others=None):\n        pixel = self.preprocess(request).getpixel((0, 0))\n"
        "        return LABELS[int(self.model(torch.tensor([[float(band) for band in pixel]])).argmax())]\n"
    )
    world, knows, _ = played(on_stage, text)
    assert knows
    assert world.said("functions") == ["Model.predict was called with a made image, for nothing here calls it"]
    assert capsys.readouterr().out in ("Model.predict: ant\n", "Model.predict: bee\n")


POINT = '[project.scripts]\nleaves = "leaves.cli:Tool.main"\n'
CLI = """\
import sys


class Tool:
    @staticmethod
    def main():
        print("told", sys.argv[1:])
        return 0
"""


def test_what_the_command_calls_is_called(rehearsed):
    done = rehearsed({"pyproject.toml": POINT, "src/leaves/cli.py": CLI}, "a.jpg", script="src/leaves/cli.py")
    assert (done.report.ended, done.stdout) == ("finished", "told ['a.jpg']\n")


@pytest.mark.parametrize("end", ["\nif __name__ == '__main__':\n    Tool.main()\n", None])
def test_a_file_that_calls_it_or_is_none_of_a_command_is_only_run(rehearsed, end):
    files = {"pyproject.toml": POINT if end else "", "src/leaves/cli.py": CLI + (end or "")}
    done = rehearsed(files, "a.jpg", script="src/leaves/cli.py")
    assert done.stdout == ("told ['a.jpg']\n" if end else "")
