import json

import pytest

from headrace.migrate.worker.rehearsal.forms import arrays

IMAGES_IN_A_PICKLE = """
import csv, pickle
import numpy as np
import torch

images = pickle.load(open("train_images.pkl", "rb"))
labels = np.array([int(row["Category"]) for row in csv.DictReader(open("train_labels.csv"))])
images = np.asarray([(image - np.mean([part.mean() for part in images])) / 2 for image in images])
images = images.reshape(-1, 40, 40)
if len(images) != len(labels):
    raise ValueError(f"Found input variables with inconsistent numbers of samples: [{len(images)}, {len(labels)}]")
x, y = images[::2], labels[::2]
net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 38 * 38, 10))
scores = net(torch.from_numpy(x).view(-1, 1, 40, 40))
print(torch.nn.functional.cross_entropy(scores, torch.from_numpy(y).long()).ndim, len(x) > 20)
"""


def test_images_in_a_pickle_are_as_many_as_the_table_as_large_and_of_the_kind_that_the_script_takes_them_for(rehearsed):
    done = rehearsed({"main.py": IMAGES_IN_A_PICKLE})
    assert (done.report.ended, done.stdout) == ("finished", "0 True\n"), done.report.why


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("-1, 1, 64, 48", [64, 48]),
        ("100, 3, 32, 32", [32, 32]),
        ("-1,28,28", [28, 28]),
        ("64,64,3", [64, 64]),
        ("-1, 4096", [64, 64]),
        ("-1, 784", [28, 28]),
        ("-1, 512, 8, 8", None),
        ("-1, 1000", None),
        ("-1, 16", None),
        ("-1", None),
    ],
)
def test_the_size_of_images_that_are_to_have_a_shape(shape, size):
    assert arrays._image_size(shape) == size


@pytest.mark.parametrize("call", ["torch.from_numpy(image.copy()).view", "image.reshape"])
def test_images_that_are_to_have_one_channel_are_gray(rehearsed, call):
    text = (
        "import numpy as np, torch\nfrom PIL import Image\n"
        "image = np.asarray(Image.open('letters/0001.png').resize((20, 20)))\n"
        f"print(list({call}(1, 1, 20, 20).shape))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "[1, 1, 20, 20]\n"), done.report.why
    assert json.loads(done.report.learned)["mode"] == "L"


FILES_OF_CLASSES = """
import numpy as np

names = [line.strip() for line in open("categories.txt") if line.strip()]
rows = [np.load(f"drawings/{name}.npy", mmap_mode="r") for name in names]
images = np.stack([one[0].reshape(28, 28) for one in rows])
print(images.shape == (len(names), 28, 28), len(names) > 1)
"""


def test_a_file_of_the_images_of_each_class_holds_images_as_the_script_shapes_them(rehearsed):
    done = rehearsed({"main.py": FILES_OF_CLASSES})
    assert (done.report.ended, done.stdout) == ("finished", "True True\n"), done.report.why
