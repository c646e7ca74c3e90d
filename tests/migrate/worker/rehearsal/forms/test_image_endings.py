"""Folders of images that a script takes with another ending than most."""

import pytest

FOLDER = (
    "import numpy as np, torchvision\n"
    "def load(path):\n    return np.load(path).astype(np.float32)\n"
    "found = torchvision.datasets.DatasetFolder(root='/srv/scans/train', loader=load, extensions={ending!r})\n"
    "print(len(found.classes), found[0][0].shape[:2], found.samples[0][0].rpartition('.')[2])\n"
)


@pytest.mark.parametrize("ending", ["npy", (".npy", ".nii")])
def test_the_ending_that_torchvision_names(rehearsed, ending):
    pytest.importorskip("torchvision")
    done = rehearsed({"main.py": FOLDER.format(ending=ending)}, classes=2)
    assert (done.report.ended, done.stdout) == ("finished", "2 (256, 256) npy\n"), done.report.why


def test_what_nobody_can_make_stops_the_script(rehearsed):
    pytest.importorskip("torchvision")
    done = rehearsed({"main.py": FOLDER.format(ending=(".nii",))}, classes=2)
    assert done.report.ended == "stopped"
    assert "Supported extensions are: .nii" in done.report.why


def test_arrays_have_the_channels_that_the_model_takes(rehearsed):
    pytest.importorskip("torchvision")
    text = (
        "import numpy as np, torch, torchvision\nnet = torch.nn.Conv2d(1, 2, 3)\n"
        "found = torchvision.datasets.DatasetFolder('scans', np.load, ('.npy',), torchvision.transforms.ToTensor())\n"
        "print(tuple(net(found[0][0][None]).shape))\n"
    )
    done = rehearsed({"main.py": text}, classes=2)
    assert (done.report.ended, done.stdout) == ("finished", "(1, 2, 254, 254)\n"), done.report.why


def test_a_data_set_that_puts_the_ending_to_its_rows_finds_them_on_disk(rehearsed):
    pytest.importorskip("pandas")
    files = {
        "scans.py": "import os\nfrom torch.utils.data import Dataset\n\nclass Scans(Dataset):\n"
        "    def __init__(self, table, folder):\n        names = table['scan_id'].astype(str) + '.npy'\n"
        "        self.table = table[names.isin(set(os.listdir(folder)))]\n\n"
        "    def __len__(self):\n        return len(self.table)\n",
        "draw.py": "for name in ['a.jpg']:\n    if name.endswith('.jpg'):\n        print(name)\n",
        "main.py": "import pandas as pd\nfrom scans import Scans\nscans = Scans(pd.read_csv('rows.csv'), 'arrays')\n"
        "if not len(scans):\n    raise ValueError('no scans found')\nprint(len(scans) > 3)\n",
    }
    done = rehearsed(files)
    assert (done.report.ended, done.stdout) == ("finished", "True\n"), done.report.why
