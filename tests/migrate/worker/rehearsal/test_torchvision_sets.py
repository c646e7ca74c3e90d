"""The formats are torchvision's; where torchvision is installed its own classes read them."""

import pickle
import struct

import numpy as np
import pytest

from headrace.migrate.worker.rehearsal import Rehearsal, Stage
from headrace.migrate.worker.rehearsal.edges import data
from headrace.migrate.worker.rehearsal.making import PER_CLASS, Maker
from headrace.migrate.worker.rehearsal.torchvision_sets import ROWS, _cifar, _item_by_item, _made_for, _mnist


@pytest.fixture
def maker(tmp_path):
    return Maker(Stage(Rehearsal(root=str(tmp_path), script="main.py", made=str(tmp_path / "made"))))


def test_idx_files(tmp_path):
    _mnist(tmp_path, type("MNIST", (), {}), full=False)
    images = (tmp_path / "t10k-images-idx3-ubyte").read_bytes()
    labels = (tmp_path / "train-labels-idx1-ubyte").read_bytes()
    assert struct.unpack(">4i", images[:16]) == (2051, ROWS, 28, 28)
    assert len(images) == 16 + ROWS * 784
    assert set(labels[8:]) == set(range(10))


@pytest.mark.parametrize(("full", "rows"), [(False, ROWS), pytest.param(True, 10_000, marks=pytest.mark.slow)])
def test_pickles_of_cifar(tmp_path, full, rows):
    meta = {"key": "label_names", "filename": "batches.meta"}
    lists = {
        "train_list": [["data_batch_1", ""], *[[f"data_batch_{i}", ""] for i in range(2, 6)]],
        "test_list": [["test_batch", ""]],
    }
    _cifar(tmp_path, type("CIFAR10", (), {"meta": meta, **lists}), full=full)
    batch = pickle.loads((tmp_path / "data_batch_3").read_bytes(), encoding="latin1")
    assert batch["data"].shape == (rows, 3072)
    assert len(batch["labels"]) == rows
    assert "airplane" in pickle.loads((tmp_path / "batches.meta").read_bytes(), encoding="latin1")["label_names"]


def test_any_other_set_gives_items_of_its_classes(maker):
    class Flowers102:
        pass

    made = Flowers102()
    _item_by_item(maker, made, "Flowers102", ("root",), {"split": "val", "transform": np.asarray})
    image, label = made[3]
    assert (len(made), len(made.classes), image.shape, label) == (ROWS, 102, (256, 256, 3), 3)
    assert isinstance(made, Flowers102)
    with pytest.raises(IndexError):
        made[ROWS]
    full = Flowers102()
    _item_by_item(maker, full, "Flowers102", ("root",), {"split": "val"}, full=True)
    assert min(map(full._labels.count, range(102))) >= PER_CLASS
    assert len(full) == 5_000  # no batch is larger than the set


def test_torchvisions_own_classes_read_them(on_stage):
    pytest.importorskip("torchvision")
    names = on_stage(data).play(
        "from torchvision import datasets as d\n"
        "sets = [d.MNIST('data', train=False, download=True), d.CIFAR10(root='data', train=True, download=True),\n"
        "        d.CIFAR100('data'), d.Food101('data', split='test'), d.EMNIST('data', split='letters')]\n"
        "found = [(len(s), len(s.classes), s[0][0].size) for s in sets]\n"
    )
    assert names["found"] == [
        (64, 10, (28, 28)),
        (320, 10, (32, 32)),
        (64, 100, (32, 32)),
        (64, 101, (256, 256)),
        (64, 27, (28, 28)),
    ]


def test_a_users_own_subclass_is_read_from_the_folder_of_its_name(on_stage):
    pytest.importorskip("torchvision")
    names = on_stage(data).play(
        "from torchvision import datasets as d\n"
        "class Digits(d.MNIST):\n    def __init__(self):\n        super().__init__('data', train=True, download=True)\n"
        "class Things(d.CIFAR10):\n    def __init__(self):\n        super().__init__('data', train=False, download=True)\n"
        "found = [(len(s), s[0][0].size) for s in (Digits(), Things())]\n"
    )
    assert names["found"] == [(64, (28, 28)), (64, (32, 32))]


def test_every_folder_that_a_set_was_made_in_is_made_anew(on_stage):
    pytest.importorskip("torchvision")
    world = on_stage(data)
    world.play("from torchvision import datasets\ndatasets.MNIST('own/sets', download=True)\n")
    assert [world.stage.has_made(world.root / path) for path in ("own", "own/sets", "own/sets/MNIST/raw", ".")] == [
        True
    ] * 3 + [False]


def test_a_set_below_the_users_home_is_found_there(rehearsed):
    pytest.importorskip("torchvision")
    text = "from torchvision import datasets\nprint(len(datasets.MNIST('~/sets', train=True, download=True)))\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", f"{ROWS}\n"), done.stderr


OWN_COPY = """
import os, pickle
import numpy as np
from torchvision.datasets.utils import check_integrity

class CourseCIFAR100:
    train_list = [["train_part", "49eee854445c1e2ebe796cd93c20bb0f"]]
    test_list = [["test_part", "d3fe9f6a9251bd443f428f896d27384f"]]

    def __init__(self, root):
        self.root = root
        if not self._check_integrity():
            raise RuntimeError("Dataset not found or corrupted.")

    def _check_integrity(self):
        return all(check_integrity(os.path.join(self.root, name), md5) for name, md5 in self.train_list + self.test_list)

found = CourseCIFAR100("data/course")
for name in ("train_part", "test_part"):
    with open(f"data/course/{name}", "rb") as file:
        entry = pickle.load(file, encoding="latin1")
    print(entry["data"].shape, len(set(entry["fine_labels"])))
print(check_integrity("data/other", "d3fe9f6a9251bd443f428f896d27384f"))
"""


def test_a_file_of_a_copy_of_cifar_is_made_for_what_lists_it(tmp_path):
    stage = Stage(Rehearsal(root=str(tmp_path), script="main.py", made=str(tmp_path / "made")))
    owner = type("Own", (), {"train_list": [["one", ""], ["two", ""]], "test_list": [("three", "")]})()
    made = [name for name in ("one", "three", "four") if _made_for(stage, str(tmp_path / "set" / name), owner)]
    assert made == ["one", "three"]
    assert not _made_for(stage, str(tmp_path / "one"), None)
    entry = pickle.loads((tmp_path / "set" / "one").read_bytes(), encoding="latin1")
    assert (entry["data"].shape, len(set(entry["labels"]))) == ((25_000, 3072), 10)


def test_the_files_of_a_copy_of_cifar_are_called_as_its_lists_say(rehearsed):
    pytest.importorskip("torchvision")
    done = rehearsed({"main.py": OWN_COPY})
    assert done.report.ended == "finished", done.report.why
    assert done.stdout == "(50000, 3072) 100\n(10000, 3072) 100\nFalse\n"
