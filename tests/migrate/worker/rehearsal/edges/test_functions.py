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
