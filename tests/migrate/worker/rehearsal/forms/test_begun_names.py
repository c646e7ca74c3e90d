import pytest

from headrace.migrate.worker.rehearsal.forms.begun_names import lacking

BY_NAME = """
from pathlib import Path
from PIL import Image

def folder_of_images(base):
    for folder in (base / "pets" / "train", base):
        if folder.is_dir() and any(folder.glob("cat.*")):
            return folder
    raise FileNotFoundError("put the images into the folder")

folder = folder_of_images(Path("data"))
files = sorted(folder.glob("cat.*")) + sorted(folder.glob("dog.*.png"))
print(sorted({(path.name[:4], path.suffix, Image.open(path).mode) for path in files}))
"""


def test_a_made_folder_has_images_whose_names_begin_as_the_script_asks(rehearsed):
    done = rehearsed({"main.py": BY_NAME})
    assert done.report.ended == "finished", done.report.why
    assert done.stdout == "[('cat.', '.jpg', 'RGB'), ('dog.', '.png', 'RGB')]\n"


BESIDE = """
import glob
import numpy as np

images = glob.glob("train/*.jpg")
table = np.genfromtxt(glob.glob("train/*.csv")[0], delimiter=";", skip_header=1, dtype=str)
print(len(images) > 10, len(np.unique(table[:, 1])))
"""


def test_a_made_folder_has_the_table_for_which_the_script_looks_beside_the_images(rehearsed):
    done = rehearsed({"main.py": BESIDE, "net.py": "num_classes = 4"})
    assert done.report.ended == "finished", done.report.why
    assert done.stdout == "True 4\n"


@pytest.mark.parametrize(
    ("pattern", "count", "first"),
    [
        ("cat.*", 10, "cat.0000.jpg"),
        ("cat*.png", 10, "cat0000.png"),
        ("IMG_*.JPG", 10, "IMG_0000.JPG"),
        ("run_*.csv", 0, None),
        ("*.csv", 1, "labels.csv"),
        ("dog.*", 0, None),
        ("*.jpg", 0, None),
        ("*/cat*.jpg", 0, None),
    ],
)
def test_the_names_that_a_pattern_asks_for(pattern, count, first):
    names = lacking(pattern, ["dog.1.jpg"])
    assert (len(names), next(iter(names), None)) == (count, first)
