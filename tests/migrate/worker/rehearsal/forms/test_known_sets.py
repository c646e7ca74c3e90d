"""Well-known sets that scripts read by hand, as their descriptions have it."""

import gzip
import pickle
import struct

import numpy as np
import pytest

from headrace.migrate.worker.rehearsal.forms import known_sets

BY_HAND = """
import gzip, pickle, struct
import numpy as np


def images(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rb") as file:
        magic, count, rows, columns = struct.unpack(">IIII", file.read(16))
        return np.frombuffer(file.read(), np.uint8).reshape(count, rows, columns)


print(images("data/raw/train-images-idx3-ubyte").shape, images("data/t10k-images.idx3-ubyte.gz").shape)
labels = np.fromfile("data/raw/t10k-labels-idx1-ubyte", np.uint8, offset=8)
with open("cifar-10-batches-py/data_batch_2", "rb") as file:
    batch = pickle.load(file, encoding="bytes")
print(labels.max(), batch[b"data"].reshape(10000, 3, 32, 32).dtype, len(batch[b"labels"]), len(batch[b"filenames"]))
with open("cifar-10-batches-py/batches.meta", "rb") as file:
    print([name.decode() for name in pickle.load(file, encoding="bytes")[b"label_names"]][:2])
"""


def test_what_is_read_by_hand_is_as_large_as_it_is(rehearsed):
    done = rehearsed({"main.py": BY_HAND})
    assert done.report.ended == "finished", done.report.why
    assert done.stdout.splitlines() == ["(60000, 28, 28) (10000, 28, 28)", "9 uint8 10000 10000", "['airplane', 'automobile']"]
    assert "data/raw/train-images-idx3-ubyte" in [item.what for item in done.standins("data")]


@pytest.mark.parametrize(
    ("name", "rows"),
    [pytest.param("cifar-100-python/train", 50_000, marks=pytest.mark.slow), ("cifar-100-python/test", 10_000)],
)
def test_groups_of_a_hundred_classes(name, rows):
    entry = pickle.loads(known_sets.contents(f"somewhere/{name}"), encoding="latin1")
    assert entry["data"].shape == (rows, 3072)
    assert (entry["fine_labels"][57], entry["coarse_labels"][57]) == (57, 11)
    names = pickle.loads(known_sets.contents("cifar-100-python/meta"), encoding="latin1")
    assert (len(names["fine_label_names"]), len(names["coarse_label_names"])) == (100, 20)


def test_other_files_of_such_names_are_none():
    for path in ("train", "cifar/test", "meta", "data_batch", "train-images-idx3-ubyte.txt", "batches.meta.json"):
        assert not known_sets.is_file(path), path


def test_a_packed_file_holds_the_same():
    packed = gzip.decompress(known_sets.contents("emnist-letters-test-labels-idx1-ubyte.gz"))
    assert struct.unpack(">2i", packed[:8]) == (0x801, 10_000)
    assert np.array_equal(np.frombuffer(packed[8:18], np.uint8), np.arange(10))


def test_a_copy_of_an_old_data_set_finds_its_files_whole(rehearsed):
    pytest.importorskip("torchvision")
    text = (
        "import os, pickle\nfrom torchvision.datasets.utils import check_integrity, download_url\n"
        "FILES = [f'data_batch_{n}' for n in range(1, 6)] + ['test_batch']\n"
        "if not all(check_integrity(os.path.join('data', 'cifar-10-batches-py', name), 'c99c') for name in FILES):\n"
        "    download_url('https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz', 'data', 'cifar.tar.gz', 'c58f')\n"
        "print(check_integrity('data/other.bin', 'c99c'))\n"
        "print(pickle.load(open('data/cifar-10-batches-py/test_batch', 'rb'), encoding='latin1')['data'].shape)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "False\n(10000, 3072)\n"), done.report.why
