"""Tables of MATLAB's are made with what the sources take out of them, in the form in which they take it."""

import pytest

from headrace.migrate.worker.rehearsal.edges import data

pytest.importorskip("scipy")


def test_lists_of_files_and_labels_from_one_on(on_stage):
    world = on_stage(data, files={"hints.py": "num_classes = 3\n"})
    names = world.play(
        "from PIL import Image\nfrom scipy.io import loadmat\nm = loadmat('lists/train_list.mat')\n"
        "files = [m['file_list'][i][0][0] for i in range(len(m['file_list']))]\n"
        "labels = {int(m['labels'][i][0]) for i in range(len(files))}\nsize = Image.open('images/' + files[0]).size\n"
    )
    assert (names["files"][1], names["labels"], names["size"]) == ("image_0001.jpg", {1, 2, 3}, (256, 256))
    assert world.said("data")[0] == "lists/train_list.mat"


def test_rows_where_the_sources_take_the_first_and_stacks_of_images(on_stage):
    text = (
        "import scipy.io as sio\nlabels = sio.loadmat('imagelabels.mat')['labels'][0]\nm = sio.loadmat('setid.mat')\n"
        "ids = m['trnid'][0] - 1\npixels = sio.loadmat('train_32x32.mat')['X']\nfirst = pixels[:, :, :, 0]\n"
    )
    names = on_stage(data, files={"main.py": text}).play(text)
    assert len(names["labels"]) == len(names["ids"]) == names["pixels"].shape[-1]
    assert (names["ids"].min(), names["first"].shape) == (0, (256, 256, 3))


def test_a_name_that_the_sources_compute_is_learned(rehearsed):
    text = "from scipy.io import loadmat\nname = '_'.join(['file', 'names'])\nprint(loadmat('a.mat')[name][0][0][0])\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "image_0000.jpg\n"), done.report.why
