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


def test_gray_images_of_an_array_get_their_channel_from_the_script(rehearsed):
    text = (
        "import numpy as np\nimport torch\n"
        "x, y = np.load('X_train.npy'), np.load('y_train.npy')\n"
        "images = torch.tensor(x / 255.0, dtype=torch.float32).unsqueeze(1)\n"
        "print(torch.nn.Conv2d(1, 4, 3)(images).ndim, len(x) == len(y))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "4 True\n"), done.report.why


@pytest.mark.parametrize("use", ["np.sum(x / 3, axis=3, keepdims=True)", "x.transpose(0, 3, 1, 2)", "np.zeros(x.shape[3])"])
@pytest.mark.parametrize("ending", ["p", "pickle"])
def test_images_in_a_table_that_is_pickled_have_axes_of_their_own_where_a_script_takes_them_so(rehearsed, use, ending):
    text = (
        "import pickle\nimport numpy as np\nnum_classes = 43\n"
        f"with open('signs/train.{ending}', 'rb') as file:\n    train = pickle.load(file)\n"
        "x, y = train['features'], train['labels']\norder = np.random.permutation(len(x))\n"
        f"print({use}.ndim > 0, y[order].max())\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "True 42\n"), done.report.why


@pytest.mark.parametrize("use", ["x.unsqueeze(1)", "x.float()[:, None]", "TensorDataset(x, y).tensors[0].unsqueeze(1)"])
def test_a_file_of_tensors_that_is_called_like_images_or_labels_holds_them(rehearsed, use):
    text = (
        "import torch\nfrom torch.utils.data import TensorDataset\n"
        "x, y = torch.load('processed/train_images.pt'), torch.load('processed/y_train.pt')\n"
        f"images = {use}\nprint(images.shape[1:], y.max().item(), len(x) == len(y))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "torch.Size([1, 28, 28]) 9 True\n"), done.report.why


def test_a_file_of_tensors_that_is_called_like_a_model_is_none_of_data(rehearsed):
    done = rehearsed({"main.py": "import torch\nprint(torch.load('best.pt').unsqueeze(1))\n"})
    assert (done.report.ended, done.report.why) == (
        "stopped",
        "AttributeError: best.pt is not here, and the script takes from it what has .unsqueeze",
    )


def test_a_table_of_numbers_that_numpy_reads_has_a_column_for_each_pixel(rehearsed):
    text = (
        "import numpy as np\nimport torch\ntable = np.loadtxt('mnist_train.csv', delimiter=',', skiprows=1)\n"
        "print(torch.tensor(table[:, 1:]).view(-1, 1, 28, 28).shape[1:], table[:, 0].max())\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "torch.Size([1, 28, 28]) 9.0\n"), done.report.why


def test_a_packed_pickle_holds_pairs_of_images_and_labels(rehearsed):
    text = (
        "import gzip, pickle\nwith gzip.open('data/mnist.pkl.gz', 'rb') as file:\n"
        "    ((x, y), (x_valid, y_valid), _) = pickle.load(file, encoding='latin-1')\n"
        "print(x.shape[1], x.dtype, x.max() <= 1, y.max(), len(x_valid) == len(y_valid))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "784 float32 True 9 True\n"), done.report.why
