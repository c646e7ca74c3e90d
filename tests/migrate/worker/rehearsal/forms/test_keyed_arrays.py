import pytest


@pytest.mark.parametrize("path", ["'pcam/x.h5'", "'/nowhere/headrace/x.hdf5'", "Path('x.h5'), 'r'", "name='x.h5', mode='r'"])
def test_a_file_of_hdf5_has_the_arrays_that_a_script_takes_out_of_it(rehearsed, path):
    pytest.importorskip("h5py")
    text = (
        "import h5py\nfrom pathlib import Path\nnum_classes = 3\n"
        f"with h5py.File({path}) as file:\n    x, y = file['train']['img'], file['train/y']\n"
        "    print(x.shape[1:], x.dtype, sorted(set(y[:].tolist())))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "(256, 256, 3) uint8 [0, 1, 2]\n"), done.report.why


def test_a_file_of_hdf5_that_a_script_writes_is_its_own(rehearsed):
    pytest.importorskip("h5py")
    text = (
        "import h5py\nwith h5py.File('own.h5', 'w') as file:\n    file['a'] = [1, 2]\n"
        "with h5py.File('own.h5') as file:\n    print(list(file), file['a'][1])\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "['a'] 2\n"), done.report.why


def test_gray_images_of_a_table_have_no_axis_of_colors(rehearsed):
    text = (
        "import numpy as np\nimport torch\narrays = np.load('digits.npz')\nx, y = arrays['x_train'], arrays['y_train']\n"
        "print(torch.nn.Conv2d(1, 4, 3)(torch.from_numpy(x).float().unsqueeze(1)).ndim, len(x) == len(y))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "4 True\n"), done.report.why
