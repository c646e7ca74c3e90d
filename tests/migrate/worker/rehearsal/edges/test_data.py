import json
import os

import pytest
import torch

from headrace.migrate.worker.rehearsal.edges import data


def test_a_folder_that_the_script_insists_on_is_made_for_the_next_attempt(rehearsed):
    text = (
        "import os, sys\nroot = 'pictures/train'\nif not os.path.isdir(root):\n    sys.exit('put the data there')\n"
        "print(len(os.listdir(root)))\n"
    )
    done = rehearsed({"main.py": text, "net.py": "num_classes = 3\n"})
    assert (done.report.ended, done.report.attempts, done.stdout) == ("finished", 2, "3\n")
    assert [(item.what, item.where) for item in done.standins("data")] == [("pictures/train", "main.py:3")]


def test_a_path_without_an_ending_that_has_to_be_a_file_is_one_of_weights(rehearsed):
    text = (
        "import os, torch\npath = '/set/your/model/path'\nnet = torch.nn.Linear(2, 2)\n"
        "if os.path.isfile(path):\n    net.load_state_dict(torch.load(path)['state_dict'])\n"
        "else:\n    raise Exception(f'no checkpoint found at {path}')\nprint(os.path.isdir(path))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "False\n"), done.report
    assert done.report.user_weights is False


def test_a_path_without_an_ending_that_is_read_as_text_is_one_of_lines(rehearsed):
    done = rehearsed({"main.py": "key = [line.rstrip() for line in open('credentials')][0]\nprint(len(key) > 0)\n"})
    assert (done.report.ended, done.stdout, done.report.attempts) == ("finished", "True\n", 1), done.report.why


def test_a_folder_that_the_script_made_is_not_left_to_the_next_attempt(rehearsed):
    text = (
        "import os, sys\nfrom pathlib import Path\nout = Path('runs/1')\n"
        "if out.exists():\n    raise RuntimeError(f'{out} already exists')\n"
        "out.mkdir(parents=True)\n(out / 'config.yaml').write_text('x')\nos.makedirs('logs/deep')\n"
        "if not os.path.isdir('pictures/train'):\n    sys.exit('put the data there')\nprint('well')\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.report.attempts, done.stdout) == ("finished", 2, "well\n"), done.report
    again = rehearsed({"main.py": text})  # nor to a run that repeats it
    assert (again.report.ended, again.stdout) == ("finished", "well\n"), again.report


def test_two_rehearsals_with_one_folder_find_the_same_files(rehearsed, tmp_path):
    text = "import hashlib\nprint(hashlib.sha256(open('a/x.png', 'rb').read() + open('t.csv', 'rb').read()).hexdigest())\n"
    first = rehearsed({"main.py": text})
    (first.root / "a/x.png").unlink()
    assert rehearsed({"main.py": text}).stdout == first.stdout != ""


def test_opencv_reads_what_is_missing(on_stage):
    world = on_stage(data)
    for given in ("", "filename="):
        assert world.play(f"import cv2\nshape = cv2.imread({given}'images/x.jpg').shape\n")["shape"] == (256, 256, 3)
    assert world.said("data") == ["images/x.jpg"]


@pytest.mark.parametrize("line", ["torch.nn.Linear(4, 2)(torch.zeros(2, 5))", "torch.zeros(2, 5, 3, 3).view(-1, 7 * 9 * 11)"])
def test_a_model_of_one_size_teaches_to_try_another(on_stage, line):
    world = on_stage(data)
    error = world.stopped(f"import torch\n{line}\n")
    sizes = []
    while data.lesson(world.stage, error):
        sizes.append(world.stage.learned["image"][0])
    assert sizes == [224, 32, 28, 64]


def test_a_split_of_the_true_size_teaches_that(on_stage):
    world = on_stage(data)
    text = "import torch\ntorch.utils.data.random_split(range(64), [45000, 5000])\n"
    assert data.lesson(world.stage, world.stopped(text))
    assert world.stage.learned["full"] is True


def test_a_picked_few_of_a_folder_are_its_images(rehearsed):
    text = (
        "import random, sys\nfrom pathlib import Path\nprint(len(random.sample(list(Path('data').resolve().glob('*.*')), 7)))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "7\n"), done.report.why


def test_an_error_of_another_kind_teaches_nothing(on_stage):
    world = on_stage(data)
    assert not data.lesson(world.stage, world.stopped("1 / 0\n"))
    assert data.remedy(world.stage, FileNotFoundError("x")) == "give the folder of the data with --data DIR"
    assert data.remedy(world.stage, ZeroDivisionError("x")) is None


def test_the_other_parts_of_a_file_are_made_with_the_first(rehearsed):
    text = (
        "import os\nimport numpy as np\nfor fold in range(1, 11):\n    path = f'folds/fold_{fold}_y.npy'\n"
        "    if not os.path.exists(path):\n        raise FileNotFoundError(f'Missing {path}')\n    print(len(np.load(path)))\n"
    )
    done = rehearsed({"main.py": text, "net.py": "num_classes = 3\n"})
    assert (done.report.ended, done.report.attempts, done.stdout) == ("finished", 2, "30\n" * 10), done.stderr


def test_checkpoints_that_were_skipped_are_wanted_where_no_model_was_called(on_stage):
    world = on_stage(data)
    world.play(
        "import os\nfor name in ('small.pth', 'large.pth', 'notes.txt'):\n    path = f'models/{name}'\n"
        "    if not os.path.exists(path):\n        continue\n"
    )
    assert data.in_vain(world.stage)
    assert not data.in_vain(world.stage)
    assert sorted(os.path.basename(path) for path in world.stage.learned["wanted"]) == ["large.pth", "small.pth"]


def test_folders_of_classes_are_made_where_the_given_weights_are_for_more(rehearsed, tmp_path):
    torch.save({"weight": torch.ones(7, 2), "bias": torch.ones(7)}, tmp_path / "given.pth")
    text = (
        "import os, torch\nlabels = {os.path.basename(root) for root, _, files in os.walk('data/images') if files}\n"
        "os.listdir('data/images')\nlabels = {os.path.basename(root) for root, _, files in os.walk('data/images') if files}\n"
        "net = torch.nn.Linear(2, len(labels))\nnet.load_state_dict(torch.load('best.pth'))\nprint(len(labels))\n"
    )
    done = rehearsed({"main.py": text}, classes=7, checkpoint=str(tmp_path / "given.pth"))
    assert (done.report.ended, done.stdout) == ("finished", "7\n"), done.report.why


@pytest.mark.parametrize("many", ["1 / len(files)", "torch.utils.data.RandomSampler(files)", "files[0]"])
def test_a_folder_that_is_searched_for_files_holds_images_named_by_their_classes(rehearsed, many):
    text = (
        "import os, re, sys, torch\nfolder = sys.argv[1]\n"
        "files = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith('.jpg')]\n"
        f"{many}\nprint(len({{re.search(r'^(.*)_\\d+\\.jpg$', os.path.basename(file)).groups()[0] for file in files}}))\n"
    )
    done = rehearsed({"main.py": text}, "elsewhere/pets")
    assert (done.report.ended, done.stdout) == ("finished", "10\n"), done.report.why


def test_a_folder_of_which_nothing_was_predicted_holds_images_itself(rehearsed):
    """A trainer of Lightning's gives None for a loader without batches."""
    text = (
        "import argparse\nfrom pathlib import Path\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--image_dir', required=True)\n"
        "folder = Path(parser.parse_args().image_dir)\nassert folder.is_dir()\nfound = list(folder.glob('*.*'))\n"
        "predicted = [1] * len(found) if found else None\nprint(len(list(zip(predicted, found))) > 0)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "True\n"), done.report.why


def test_a_folder_whose_classes_are_looked_into_stays_so(rehearsed):
    text = (
        "import os\nclasses = sorted(os.listdir('pets'))\n"
        "files = [os.listdir(os.path.join('pets', name)) for name in classes]\n"
        "raise ValueError('num_samples=0')\n"
    )
    done = rehearsed({"main.py": text})
    assert done.report.ended == "stopped"
    assert "flat" not in done.report.learned


def test_a_file_that_a_library_misses_in_its_own_words_is_made(rehearsed, tmp_path):
    library = tmp_path / "site-packages" / "loading.py"
    library.parent.mkdir()
    library.write_text(
        "import os, torch\ndef load(path):\n    if not os.path.lexists(path):\n"
        "        raise FileNotFoundError(f'Checkpoint file not found: {path}')\n    return torch.load(path)\n"
    )
    text = (
        f"import sys\nsys.path.append({str(library.parent)!r})\nimport torch, loading\nnet = torch.nn.Linear(3, 2)\n"
        "net.load_state_dict(loading.load('runs/best.ckpt'))\nprint('loaded')\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "loaded\n"), done.report.why


@pytest.mark.parametrize(
    "insist", ["assert os.path.exists(root)", "if not os.path.isdir(root):\n        raise RuntimeError('no data')"]
)
def test_a_folder_on_which_a_library_insists_without_naming_it_is_made(rehearsed, tmp_path, insist):
    library = tmp_path / "site-packages" / "reading.py"
    library.parent.mkdir()
    library.write_text(
        f"import os\ndef images(name, root):\n    os.path.exists(name)\n    {insist}\n"
        "    return [file for part in sorted(os.listdir(root)) for file in os.listdir(os.path.join(root, part))]\n"
    )
    text = f"import sys\nsys.path.append({str(library.parent)!r})\nimport reading\nprint(reading.images('', 'val') != [])\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "True\n"), done.report.why


def test_a_made_pickle_has_the_parts_that_are_asked_for(rehearsed):
    text = "import pickle\nwith open('digits.pkl', 'rb') as file:\n    data = pickle.load(file)\n"
    done = rehearsed({"main.py": text + "print(data['train_img'].reshape(-1, 1, 28, 28).shape[1:], data['test_label'][0])\n"})
    assert (done.report.ended, done.stdout) == ("finished", "(1, 28, 28) 0\n"), done.report.why


def test_an_array_that_takes_the_place_of_a_sets_images_is_as_large(rehearsed):
    pytest.importorskip("torchvision")
    text = (
        "import numpy as np\nfrom torchvision.datasets import CIFAR10\ndata = CIFAR10('data', train=False, download=True)\n"
        "data.data = np.load('CIFAR-10-C/fog.npy')\nprint(data[0][0].size)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "(32, 32)\n"), done.report.why


TABLE = "import csv, glob, os, sys\nfrom pathlib import Path\nrows = list(csv.DictReader(open('labels.csv')))\n"


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        # the table's ids against the stems of the files that are listed
        (
            "files = {p.stem: p for p in Path('train').glob('*') if p.is_file()}\n"
            "found = [files[r['id_code']] for r in rows if r['id_code'] in files]\n"
            "if not found:\n    raise ValueError('No scans could be matched to the CSV ids.')\nprint(found[0].name)\n",
            "image_0000.jpg\n",
        ),
        # the same in a folder that the script insists on, without a word of what is missing
        (
            "root = Path('scans/train')\nif not root.exists():\n    raise FileNotFoundError(f'not found: {root}')\n"
            "files = {p.stem: p for p in root.glob('*') if p.is_file()}\n"
            "found = [files[r['id_code']] for r in rows if r['id_code'] in files]\nprint(max(found).name)\n",
            "image_0029.jpg\n",
        ),
        # the table's names against those of the files
        (
            "labels = {r['filename']: r['grade'] for r in rows}\n"
            "print(sorted((f, labels[f]) for f in os.listdir('images'))[1][0])\n",
            "image_0001.jpg\n",
        ),
        (
            "labels = {r['image_id']: r['grade'] for r in rows}\n"
            "print(sorted(os.path.splitext(f)[0] for f in os.listdir('images') if labels[os.path.splitext(f)[0]])[1])\n",
            "image_0001\n",
        ),
        # only those are kept that are there: they are, for the table names them
        ("print(sum(os.path.exists(os.path.join('data', r['filename'])) for r in rows) == len(rows))\n", "True\n"),
        ("print(all(Path('data', r['image_id'] + '.png').is_file() for r in rows))\n", "True\n"),
    ],
)
def test_tables_and_folders_agree_on_the_names_of_images(rehearsed, text, printed):
    files = {"main.py": TABLE + text, "net.py": "# read by csv.DictReader\nnum_classes = 3\n"}
    done = rehearsed(files)
    assert (done.report.ended, done.stdout) == ("finished", printed), (done.report.why, done.report.learned)


def test_a_file_that_no_table_names_is_not_there(on_stage):
    world = on_stage(data)
    names = world.play(
        "import os\nfirst = os.path.exists('data/image_0000.jpg')\n" + TABLE + "last = os.path.exists('data/x.jpg')\n"
    )
    assert (names["first"], names["last"]) == (False, False)


@pytest.mark.parametrize("folder", ["'train/'", "'data/' + '/train/'", "'/nowhere/headrace/' + '/train/'"])
def test_a_folder_that_is_named_with_a_slash_is_the_same(rehearsed, folder):
    text = (
        f"import os\nfrom PIL import Image\nroot = {folder}\nfor name in os.listdir(root):\n"
        "    Image.open(root + name).convert('RGB')\nprint(len(os.listdir(root)))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "16\n"), done.report.why


@pytest.mark.parametrize(("channels", "name", "mode"), [(1, "x.jpg", "L"), (4, "x.png", "RGBA"), (3, "x.jpg", "RGB")])
def test_images_have_the_channels_that_the_model_takes(rehearsed, channels, name, mode):
    text = (
        f"import numpy as np, torch\nfrom PIL import Image\nimage = Image.open('images/{name}')\n"
        "pixels = torch.from_numpy(np.array(image)).float()\n"
        "pixels = pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1)\n"
        f"torch.nn.Conv2d({channels}, 2, 3)(pixels[None])\nprint(image.mode)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", f"{mode}\n"), done.report.why


def test_channels_that_no_image_has_are_not_learned(on_stage):
    world = on_stage(data)
    error = RuntimeError("Given groups=1, expected input[1, 3, 8, 8] to have 7 channels, but got 3 channels instead")
    assert not data.lesson(world.stage, error)


WITHIN = (
    "from pathlib import Path\nfound = []\nfor folder in sorted(Path('data/images').iterdir()):\n"
    "    if folder.is_dir():\n        found += [path for path in sorted(folder.glob('*.jpg'))]\n"
)


@pytest.mark.parametrize("end", ["", "import sys\nif not found:\n    sys.exit('nothing here')\n", "assert 1 / len(found)\n"])
def test_a_folder_of_images_in_which_the_script_looks_for_folders_has_them(rehearsed, end):
    text = f"{WITHIN}print(len(found))\n{end}import PIL.Image\nPIL.Image.open(found[0]).load()\n"
    done = rehearsed({"main.py": text, "net.py": "num_classes = 3\n"})
    assert (done.report.ended, done.report.attempts, done.stdout) == ("finished", 2, "30\n"), done.report.why


@pytest.mark.parametrize("folder", ["data/images", "./data/images", "Path('data/images').resolve()"])
def test_a_folder_of_images_of_which_one_was_opened_stays_flat(rehearsed, folder):
    folder = folder if "(" in folder else repr(folder)
    text = (
        "import os\nfrom pathlib import Path\nimport PIL.Image\nos.listdir('data/images')\nfolder = str(" + folder + ")\n"
        "names = os.listdir(folder)\nPIL.Image.open(os.path.join(folder, names[0])).load()\nraise ValueError('of its own')\n"
    )
    done = rehearsed({"main.py": text, "net.py": "num_classes = 3\n"})
    assert (done.report.ended, done.report.attempts) == ("stopped", 1)


@pytest.mark.parametrize(
    ("select", "ending"),
    [
        ("path.suffix == '.png'", ".png"),
        ("path.suffix.lower() in ('.bmp',)", ".bmp"),
        ("path.name.endswith('.png')", ".png"),
        ("path.suffix in {'.png', '.jpg'}", ".jpg"),
        ("True", ".jpg"),
    ],
)
def test_images_have_the_ending_by_which_the_script_finds_them(rehearsed, select, ending):
    text = (
        "from pathlib import Path\nfound = [path for path in sorted(Path('pictures/images').iterdir()) if "
        f"{select}]\nprint(found[0].suffix)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", f"{ending}\n"), done.report.why


def test_folders_that_differ_in_their_numbers_are_all_there_where_one_is(rehearsed):
    text = (
        "from pathlib import Path\nfolders = [Path('set') / f'part_{number:02d}' / 'images' for number in range(1, 6)]\n"
        "found = [folder for folder in folders if folder.exists() and list(folder.iterdir())]\n"
        "if not found:\n    raise FileNotFoundError(f'no images in {folders[0]}')\nprint(len(found))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "5\n"), done.report.why


@pytest.mark.parametrize("name", ["id", "image_id", "filename"])
def test_rows_that_name_no_file_of_a_folder_are_not_made_of_its_classes(rehearsed, name):
    pytest.importorskip("pandas")
    text = (
        f"import os\nimport pandas as pd\nCLASSES = ['ant', 'bee']\ntable = pd.read_csv('labels.csv')[['{name}', 'label']]\n"
        f"table['{name}'] = table['{name}'].apply(lambda x: x if x.endswith('.png') else f'{{x}}.png')\n"
        f"kept = table[table['{name}'].isin(set(os.listdir('photos/train')))]\nassert len(kept), 'num_samples=0'\n"
        f"print(len(kept) == len(table), os.path.isfile(os.path.join('photos/train', kept['{name}'].iloc[0])))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "True True\n"), done.report.why


def test_a_loop_over_batches_that_went_through_nothing_gets_a_whole_set(rehearsed):
    pytest.importorskip("torchvision")
    text = (
        "import torchvision\nimages = torchvision.datasets.CIFAR10('data', download=True).data\n\n"
        "def train(size):\n    for at in range(len(images) // size):\n        rows = images[at * size : (at + 1) * size]\n"
        "    return len(rows)\n\nprint(train(1024))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "1024\n"), done.report.why


NUMBERED = """
import numpy as np
import pandas as pd
table = pd.read_csv('test/test.csv')
for _, row in table.iterrows():
    pixels = row[[f'pixel_{i}' for i in range(1, 193)]].values.astype(np.float32).reshape(3, 8, 8)
    number = int(row['ID'])
print(pixels.max() > 9, number == len(table) - 1)
"""


def test_numbered_columns_hold_the_pixels_of_an_image(rehearsed):
    pytest.importorskip("pandas")
    done = rehearsed({"main.py": NUMBERED})
    assert (done.report.ended, done.stdout) == ("finished", "True True\n"), done.report.why


@pytest.mark.parametrize("name", ["a.parquet", "a.feather", "a.xlsx"])
def test_tables_of_bytes_are_made_as_others(rehearsed, name):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("openpyxl" if name.endswith("xlsx") else "pyarrow")
    read = {"parquet": pandas.read_parquet, "feather": pandas.read_feather, "xlsx": pandas.read_excel}[name.partition(".")[2]]
    text = (
        f"import pandas as pd\nfrom PIL import Image\nCLASSES = ['ant', 'bee']\ntable = pd.{read.__name__}({name!r})\n"
        "print(sorted(set(table['label'])), Image.open(table['image'][0]).size)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "[0, 1] (256, 256)\n"), done.report.why


def test_a_key_that_the_scripts_own_table_lacks_is_no_column(rehearsed):
    pytest.importorskip("pandas")
    done = rehearsed({"main.py": "import pandas as pd\nkey = ['a', 'b']\nprint({}['c'])\n"})
    assert (done.report.ended, "columns" in done.report.learned) == ("stopped", False)


def test_lines_of_a_list_are_names_alone_where_a_table_is_searched_for_them(rehearsed):
    pytest.importorskip("pandas")
    text = (
        "import pandas as pd\ntable = pd.read_csv('entries.csv')\nwanted = open('train_list.txt').read().split('\\n')\n"
        "kept = table[table['image'].isin(wanted)]\nassert len(kept), 'no rows left'\nprint(len(kept) == len(table))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "True\n"), done.report.why


@pytest.mark.parametrize(
    ("find", "ending"),
    [
        ("glob.glob('scans/*.npy')", ".npy"),
        ("[str(path) for path in Path('scans').glob('*.JPEG')]", ".JPEG"),
        ("[str(path) for path in Path('scans').rglob('*.png')]", ".png"),
        ("[path for end in ('png', 'bmp', 'npy') for path in glob.glob('scans/**/*.' + end, recursive=True)][:1]", None),
    ],
)
def test_images_end_as_those_that_the_script_looks_for(rehearsed, find, ending):
    text = f"import glob, os\nfrom pathlib import Path\nnames = os.listdir('scans')\nfound = sorted({find})\n"
    text += "if not found:\n    raise ValueError('no images found in scans')\nprint(os.path.splitext(found[0])[1])\n"
    done = rehearsed({"main.py": text})
    assert done.report.ended == "finished", done.report.why
    assert done.stdout.strip() in ([ending] if ending else [".png", ".bmp", ".npy"])


def test_a_folder_whose_images_were_found_is_made_again_as_it_was(rehearsed):
    text = "import glob, os\nos.listdir('scans')\nfound = [glob.glob('scans/*/*.' + end) for end in ('jpg', 'png')]\n"
    done = rehearsed({"main.py": f"{text}assert found[0]\nraise ValueError('no images found')\n"})
    assert done.report.ended == "stopped"
    assert "endings" not in done.report.learned


def test_a_missing_folder_is_made_with_the_ending_that_is_asked_for(rehearsed):
    text = "import glob\nfrom PIL import Image\nnames = glob.glob('train/*/*.JPEG')\n"
    text += "print(len(names) > 9, Image.open(names[0]).format)\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout, done.report.attempts) == ("finished", "True JPEG\n", 1), done.report.why


def test_data_in_a_form_of_the_scripts_own_is_asked_for(rehearsed):
    text = "import os, pickle\nfor name in os.listdir('samples'):\n    pickle.load(open(os.path.join('samples', name), 'rb'))\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.report.remedy) == ("stopped", "give the folder of the data with --data DIR")
    assert "UnpicklingError" in done.report.why


def test_the_folders_of_all_classes_are_made_at_once(rehearsed):
    """A script that looks for each class in turn, and leaves out those without a folder, needs no attempt for each."""
    text = (
        "from pathlib import Path\nnames = [f'kind_{number}' for number in range(12)]\ndef gather(root):\n    found = []\n"
        "    for name in names:\n        folder = Path(root) / name\n        if not folder.exists():\n            continue\n"
        "        found += [file for file in folder.iterdir() if file.suffix == '.jpg']\n"
        "    if not found:\n        raise FileNotFoundError(f'No images found under {root}')\n    return found\n"
        "print(len(gather('data/train')) % 12, len(gather('data/test')) % 12)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "0 0\n"), done.report.why
    assert done.report.attempts <= 5


def test_a_class_whose_folder_may_be_written_in_two_ways_gets_one(rehearsed):
    text = (
        "from pathlib import Path\nroot = Path('data/raw')\n"
        "if not all((root / name).exists() or (root / name.capitalize()).exists() for name in ('cat', 'dog')):\n"
        "    raise FileNotFoundError(f\"no folders of the classes under '{root}'\")\n"
        "print(*sorted(path.name for path in root.iterdir() if path.is_dir()))\n"
    )
    done = rehearsed({"main.py": text})
    assert done.report.ended == "finished", done.report.why
    assert done.stdout.lower() == "cat dog\n"


def test_what_another_line_looked_for_is_not_made_with_it(rehearsed):
    text = (
        "import os\nif os.path.isdir('work/cache'):\n    raise SystemExit('an old cache')\n"
        "if not os.path.isdir('work/photos'):\n"
        "    raise FileNotFoundError('work/photos is missing')\nprint(sorted(os.listdir('work')))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "['photos']\n"), done.report.why


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("runs/epoch=3-step=9.ckpt", "give the file of the weights with --checkpoint FILE"),
        ("runs/labels.xml", "give the folder of the data with --data DIR"),
        ("configs/local.yaml", 'add the file to this copy, or name one that is here with --entry "SCRIPT ARGUMENTS"'),
    ],
)
def test_the_remedy_for_what_is_missing_names_the_option_for_it(on_stage, path, remedy):
    world = on_stage(data)
    assert data.remedy(world.stage, FileNotFoundError(f"Checkpoint file not found: {path}")) == remedy
    assert data.remedy(world.stage, FileNotFoundError(2, "No such file or directory", path)) == remedy


def test_a_checkpoint_named_as_lightning_names_it_is_made(rehearsed):
    text = (
        "import os, torch\nnet = torch.nn.Linear(2, 2)\npath = '/home/me/runs/epoch=33-step=7582.ckpt'\n"
        "if not os.path.exists(path):\n"
        "    raise FileNotFoundError(f'Checkpoint file not found: {path}')\n"
        "net.load_state_dict(torch.load(path)['state_dict'])\n"
    )
    done = rehearsed({"main.py": text})
    assert done.report.ended == "finished", done.report.why
    assert any("epoch=33-step=7582.ckpt" in item.what for item in done.standins("data"))


RESUMES = """
import os
import torch

net = torch.nn.Linear(4, 2)
if os.path.exists("last.pth"):
    torch.load("last.pth")
    print("goes on")
for epoch in range(2):
    torch.save({"model": net.state_dict(), "epoch": epoch, "by": print}, "last.pth")
numbers = open("numbers.txt").read()
raise ValueError("number of classes does not match")
"""


def test_an_attempt_does_not_go_on_with_what_the_one_before_it_saved(rehearsed):
    done = rehearsed({"main.py": RESUMES})
    assert done.report.attempts > 1
    assert "goes on" not in done.stdout
    assert "number of classes" in done.report.why
    assert not done.report.saved_over, "a file that the script made itself"


def test_labels_that_are_shared_out_class_by_class_have_several_of_each(rehearsed):
    text = (
        "from torchvision.datasets import OxfordIIITPet\n"
        "data = OxfordIIITPet('data', download=True)\n"
        "least = min(map(data._labels.count, set(data._labels)))\n"
        "if least < 2:\n"
        "    raise ValueError(f'The least populated classes in y have only {least} member, which is too few.')\n"
    )
    pytest.importorskip("torchvision")
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.report.attempts) == ("finished", 2), done.report.why


NAMES_OF_ANOTHER_FOLDER = """
import os
from PIL import Image

def names():
    if os.path.exists("data/labels.txt"):
        return open("data/labels.txt").read().split()
    found = [name for name in os.listdir("data/train") if os.path.isdir(os.path.join("data/train", name))]
    with open("data/labels.txt", "w") as file:
        file.write("\\n".join(found))
    return found

images = [os.path.join("data/val", name, image) for name in names() for image in os.listdir(os.path.join("data/val", name))]
print(len(names()) > 1, Image.open(images[0]).mode)
"""


def test_a_folder_that_is_read_for_the_classes_of_another_keeps_them_and_what_a_script_writes_is_not_left(rehearsed):
    done = rehearsed({"main.py": NAMES_OF_ANOTHER_FOLDER})
    assert (done.report.ended, done.stdout) == ("finished", "True RGB\n"), done.report.why
    assert done.report.attempts > 1
    learned = json.loads(done.report.learned)
    assert not any(folder.endswith("train") for folder in learned["flat"]), learned


@pytest.mark.parametrize("path", ["best.pth", "my_digit.png", "labels.csv", "photos/test"])
def test_what_a_script_looked_for_before_it_ended_without_a_model_is_made(on_stage, path):
    world = on_stage(data)
    text = f"import os\nif not os.path.exists({path!r}):\n    print('not found')\nelse:\n    print(os.path.exists({path!r}))\n"
    world.play(text)
    world.play("import os\nif not os.path.exists('runs'):\n    os.makedirs('runs')\n", "other.py")
    assert data.in_vain(world.stage) or data.last_in_vain(world.stage)
    assert [os.path.basename(found) for found in world.stage.learned["wanted"]] == [os.path.basename(path)]
    assert not data.in_vain(world.stage)
    assert not data.last_in_vain(world.stage), world.stage.learned


@pytest.mark.parametrize(("reader", "made"), [("torch.load", True), ("read", False)])
def test_a_file_of_an_unknown_ending_without_which_a_script_gives_up_is_a_checkpoint_where_it_loads_some(
    rehearsed, reader, made
):
    text = (
        "import os, torch\nnet = torch.nn.Linear(2, 3)\npath = os.path.join(os.getcwd(), 'best.pth2')\n"
        "if not os.path.isfile(path):\n    raise FileNotFoundError(f'no model at {path}')\n"
        f"net.load_state_dict({reader}(path))\nprint(net(torch.rand(1, 2)).shape)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended == "finished") is made, done.report.why


PASSED_OVER = (
    "import os\nbase = '/nowhere/input/plums/set'\nprint(len(os.listdir(base)) > 0)\ninner = os.path.join(base, 'plums')\n",
    "if os.path.exists(inner):\n    classes = os.listdir(inner)\n",
    "print(len(classes))\n",
)


@pytest.mark.parametrize("script", ["main.py", "main.ipynb"])
def test_what_only_a_folder_that_is_not_here_would_have_given_is_no_fault_of_the_scripts(rehearsed, script):
    cells = [{"cell_type": "code", "source": text, "metadata": {}, "outputs": []} for text in PASSED_OVER]
    notebook = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})
    text = "".join(PASSED_OVER) if script.endswith(".py") else notebook
    done = rehearsed({script: text}, script=script, classes=3)
    assert (done.report.ended, done.stdout) == ("finished", "True\n3\n"), done.report.why


def test_folders_that_are_called_like_the_classes_hold_images(rehearsed):
    """The classes' names are known here, and would be those of folders in each of them."""
    text = """
import os
import torch

classes = ["Cat", "Dog"]
samples = []
for number, name in enumerate(classes):
    folder = os.path.join("data/PetImages", name)
    samples += [(os.path.join(folder, file), number) for file in os.listdir(folder) if file.endswith(".jpg")]
sampler = torch.utils.data.RandomSampler(samples)
print({os.path.dirname(path) for path, _ in samples} == {"data/PetImages/Cat", "data/PetImages/Dog"})
"""
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "True\n"), done.report.why
