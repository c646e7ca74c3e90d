"""How many classes made data has, and what stands in it for them, as errors say."""

import importlib.util

import pytest

from headrace.migrate.worker.rehearsal.edges import data


def test_more_labels_than_the_model_has_outputs_teaches_the_count(on_stage):
    world = on_stage(data)
    text = (
        "import torch\noutputs = torch.zeros(2, 4, requires_grad=True)\n"
        "torch.nn.functional.cross_entropy(outputs, torch.tensor([1, 7]))\n"
    )
    assert data.lesson(world.stage, world.stopped(text))
    assert world.stage.learned["classes"] == 4


def test_a_metric_of_fewer_classes_teaches_how_many(on_stage):
    pytest.importorskip("torchmetrics")
    world = on_stage(data)
    text = (
        "import torch\nfrom torchmetrics.classification import MulticlassAccuracy\n"
        "metric = MulticlassAccuracy(8, average='macro', validate_args=False)\n"
        "metric(torch.tensor([1, 2]), torch.tensor([9, 1]))\n"
    )
    assert data.lesson(world.stage, world.stopped(text))
    assert world.stage.learned == {"classes": 8}


def test_folders_of_classes_are_numbered_where_the_script_takes_them_for_numbers(rehearsed):
    script = "import os\nprint(sorted(int(name) for name in os.listdir('photos/train'))[:3])\n"
    done = rehearsed({"main.py": script})
    assert (done.report.ended, done.stdout, done.report.attempts) == ("finished", "[0, 1, 2]\n", 2), done.stderr


@pytest.mark.parametrize(
    ("label", "use"),
    [
        ("int(row['kind'])", "print(label)"),
        ("{'0': 5, '1': 6}.get(row['kind'], row['kind'])", "labels = [label] * 4\n    print(torch.tensor(labels)[0].item())"),
    ],
)
def test_a_column_that_is_no_name_of_a_file_holds_labels_where_the_script_wants_numbers(rehearsed, label, use):
    script = (
        "import csv\nimport torch\nfrom PIL import Image\n"
        "for row in list(csv.DictReader(open('data/test.csv')))[:1]:\n    Image.open('data/' + row['name'])\n"
        f"    label = {label}\n    {use}\n"
    )
    done = rehearsed({"main.py": script})
    assert (done.report.ended, done.report.attempts) == ("finished", 2), done.stderr
    assert done.stdout in ("0\n", "5\n")


def test_a_function_named_shape_is_no_output_of_the_model(rehearsed):
    text = "from numpy import shape\nimport numpy\ndef take(library):\n    return [][3]\ntake(numpy)\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.report.why) == ("stopped", "IndexError: list index out of range")


CHECKS = """
import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 102, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
kept = torch.load("best.pth")
with torch.no_grad():
    scores = net(torch.rand(2, 3, 8, 8) + torch.arange(2).view(2, 1, 1, 1))
{take}
print(len(kept["class_to_idx"]), len(kept["class_names"]))
"""


@pytest.mark.parametrize(
    "take",
    [
        "names = {i: name for name, i in kept['class_to_idx'].items()}\nprint(*(names[i][:0] for i in range(scores.shape[1])))",
        "names = kept['class_names']\nprint(*(names[i][:0] for i in range(scores.shape[1])))",
    ],
)
def test_a_table_of_the_classes_has_as_many_as_the_model(rehearsed, take):
    done = rehearsed({"main.py": CHECKS.format(take=take)})
    assert done.stdout.splitlines()[1:] == ["102 102"], done.report


def test_names_of_classes_that_the_first_batches_lack_are_gathered_from_all(rehearsed):
    text = (
        "import torch\nfrom torchvision_free import folder\nloader = torch.utils.data.DataLoader(folder, batch_size=4)\n"
        "index = {name: i for i, name in enumerate(sorted({name for batch in loader for name in batch}))}\n"
        "print(index['class_002'])\n"
    )
    helper = "folder = [f'class_{i // 8:03d}' for i in range(40)]\n"
    done = rehearsed({"main.py": text, "torchvision_free.py": helper})
    assert (done.report.ended, done.stdout) == ("finished", "2\n"), done.report.why


def test_a_loss_for_yes_and_no_teaches_that_there_are_two_classes(rehearsed):
    text = (
        "import os\nimport torch\nclasses = sorted(os.listdir('pictures/train'))\nlabels = torch.arange(len(classes)).float()\n"
        "torch.nn.BCELoss()(torch.full(labels.shape, 0.5), labels)\nprint(len(classes))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "2\n"), done.report.why


@pytest.mark.parametrize(
    "take",
    [
        "table['label'].str.split('|').str[0].tolist()[:2]",
        "[label.split('|')[0] for label in table['label'].tolist()[:2]]",
        "[NUMBERS[label] for label in table['label'].tolist()[:2]]",
        "' '.join(table['label'][:2]).split()",
        "[os.path.basename(os.path.join('a', label)) for label in table['label'][:2]]",
        "['' + label for label in table['label'][:2]]",
        "[re.sub(' ', '', label) for label in table['label'][:2]]",
    ],
)
def test_labels_are_names_where_the_script_takes_them_for_texts(rehearsed, take):
    pytest.importorskip("pandas")
    text = "import os, re\nimport pandas as pd\nCLASS_NAMES = ['ant', 'bee']\nNUMBERS = {'ant': 'ant', 'bee': 'bee'}\n"
    text += f"def labels():\n    table = pd.read_csv('a.csv')\n    return {take}\nprint(labels())\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "['ant', 'bee']\n"), done.report.why


def test_numbers_that_are_put_into_texts_say_nothing_of_labels_where_no_table_was_made(rehearsed):
    done = rehearsed({"main.py": "print(open('photos/a.jpg', 'rb').read()[:1])\n'epoch ' + 3\n"})
    assert (done.report.ended, "labels" in done.report.learned, done.report.attempts) == ("stopped", False, 1)


def test_labels_are_yes_or_no_where_a_curve_takes_no_others(rehearsed):
    if importlib.util.find_spec("sklearn") is None:
        pytest.skip("scikit-learn is not installed")
    text = (
        "import csv\nfrom sklearn.metrics import roc_auc_score\nnames = [f'finding {n}' for n in range(14)]\n"
        "rows = list(csv.DictReader(open('a.csv')))\nlabels = [int(row['label']) for row in rows]\n"
        "print(sorted(set(labels)), roc_auc_score(labels, labels))\n"
    )
    done = rehearsed({"main.py": text, "settings.py": "num_classes = 14\n"})
    assert (done.report.ended, done.stdout) == ("finished", "[0, 1] 1.0\n"), done.report.why


def test_a_column_that_looks_like_names_and_is_taken_for_numbers(rehearsed):
    pytest.importorskip("pandas")
    text = (
        "import pandas as pd\ntable = pd.read_csv('a.csv')\nfor _, row in table.iterrows():\n"
        "    found = {\n        'path': row['image_path'],\n        'subject': int(row['subject_id']),\n"
        "        'label': row['label'],\n    }\n"
        "print(found['subject'] == len(table) - 1, found['path'][:6])\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "True image_\n"), done.report.why


@pytest.mark.parametrize(
    "use", ["round(age)", "age * 0.5", "age + np.random.randn()", "0.5 - age", "age < 4", "math.floor(age)", "-age", "abs(age)"]
)
def test_a_column_that_a_script_computes_with_holds_numbers(rehearsed, use):
    pytest.importorskip("pandas")
    text = (
        "import math\nimport numpy as np\nimport pandas as pd\n"
        "def load(rows, at):\n    age, name = rows[at]\n    return name, " + use + "\n"
        "rows = [(row['apparent_avg'], row['file_name']) for _, row in pd.read_csv('a.csv').iterrows()]\n"
        "print(load(rows, 1)[0][:6])\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "image_\n"), done.report.why


@pytest.mark.parametrize(
    "divide",
    [
        "train_test_split(table, test_size=0.2, stratify=table['dx'])",
        "next(StratifiedKFold(n_splits=3).split(table, pd.Categorical(table['dx']).codes))",
    ],
)
def test_a_column_by_which_rows_are_divided_evenly_holds_few_classes(rehearsed, divide):
    pytest.importorskip("pandas")
    text = (
        "import pandas as pd\nfrom sklearn.model_selection import StratifiedKFold, train_test_split\n"
        f"table = pd.read_csv('a.csv')\nfirst, second = {divide}\nprint(table['image_id'][1][:6], table['dx'].nunique() < 20)\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "image_ True\n"), done.report.why


@pytest.mark.parametrize("said", ["Unknown label {name!r} at row 3", "invalid class: {name}"])
def test_a_number_that_the_script_calls_no_label_becomes_a_name(rehearsed, said):
    text = (
        "import csv\nlabel_to_index = {'ant': 0, 'bee': 1}\nfor row in csv.DictReader(open('all.csv')):\n"
        "    name = row['label']\n    if name not in label_to_index:\n"
        f"        raise ValueError(f{said!r})\nprint(name)\n"
    )
    done = rehearsed({"main.py": text}, classes=2)
    assert (done.report.ended, done.stdout) == ("finished", "bee\n"), done.report.why


def test_numbers_in_a_column_that_the_script_calls_unknown_labels_become_names(rehearsed):
    pytest.importorskip("pandas")
    text = (
        "import pandas as pd\nCLASS_NAMES = ['ant', 'bee']\ntable = pd.read_csv('all.csv')\n"
        "unknown = set(table['label'].unique()) - set(CLASS_NAMES)\n"
        "if unknown:\n    raise ValueError(f'Unknown labels in CSV: {unknown}')\nprint(sorted(set(table['label'])))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "['ant', 'bee']\n"), done.report.why


@pytest.mark.parametrize("look", ["numbers.get(name)", "numbers[name]"])
def test_folders_are_named_as_the_labels_of_the_table_that_numbers_them(rehearsed, look):
    text = (
        "import csv, os, torch\nlabels = sorted({row['label'] for row in csv.DictReader(open('a.csv'))})\n"
        "numbers = {name: number for number, name in enumerate(labels)}\n"
        "print(torch.tensor([" + look + " for name in sorted(os.listdir('train'))])[:3])\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "tensor([0, 1, 2])\n"), done.report.why


@pytest.mark.parametrize("within", ["torch.enable_grad()", "torch.no_grad()"])
def test_a_loss_says_how_many_classes_there_are(rehearsed, within):
    text = (
        "import csv, torch\nlabels = [int(row['label']) for row in csv.DictReader(open('a.csv'))]\n"
        "net = torch.nn.Linear(4, 3)\n"
        f"with {within}:\n    torch.nn.CrossEntropyLoss()(net(torch.ones(len(labels), 4)), torch.tensor(labels))\n"
        "print(max(labels))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "2\n"), done.report.why


@pytest.mark.parametrize("first", [0, 1])
def test_a_table_of_numbers_by_their_names_says_how_classes_are_called(rehearsed, first):
    pytest.importorskip("pandas")
    text = (
        "import pandas as pd\nfrom PIL import Image\n"
        "def item(rows, index):\n"
        f"    numbers = {{'aircraft': {first}, 'ship': {first + 1}, 'none': {first + 2}}}\n"
        "    return Image.open(rows.iloc[index, 0]).size, numbers[rows.iloc[index, 1]]\n"
        "rows = pd.read_csv('train/training.csv')\nprint(item(rows, 0), item(rows, 1)[1], sorted(set(rows.iloc[:, 1])))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == (
        "finished", f"((256, 256), {first}) {first + 1} ['aircraft', 'none', 'ship']\n"
    ), done.report.why  # fmt: skip


def test_a_table_of_numbers_says_how_many_classes_there_are(rehearsed):
    pytest.importorskip("pandas")
    text = (
        "import pandas as pd\n\nclass Cases:\n    def __init__(self):\n"
        "        self.table = pd.read_csv('cases.csv')\n        self.groups = {0: 0, 1: 1, 2: 1, 3: 0}\n\n"
        "    def __getitem__(self, row):\n        return self.groups[int(self.table.iloc[row]['target'])]\n\n"
        "cases = Cases()\nprint({cases[row] for row in range(len(cases.table))}, cases.table['target'].max())\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "{0, 1} 3\n"), done.report.why


def test_a_number_that_no_table_of_classes_lacks_teaches_nothing(rehearsed):
    done = rehearsed({"main.py": "ports = {80: 'http', 443: 'https'}\nprint(ports[8080])\n"})
    assert (done.report.ended, done.report.why) == ("stopped", "KeyError: 8080")


@pytest.mark.parametrize(
    ("order", "label"),
    [
        ("int(p.split('.')[-2])", "int('dog' in p.split('/')[-1])"),
        ("int(p.split('.')[-2].split('/')[-1])", "int('dog' in p.split('/')[-1])"),
        ("p", "int(os.path.basename(p).split('_')[0])"),
        ("p", "int(os.path.basename(p).split('_')[2])"),
        ("int(os.path.splitext(os.path.basename(p))[0])", "0"),
    ],
)
def test_images_of_one_folder_are_called_as_the_script_reads_their_names(rehearsed, order, label):
    text = (
        "import os\nfrom PIL import Image\nclasses = ['cat', 'dog']\n"
        "paths = sorted((os.path.join('./data/train/', name) for name in os.listdir('./data/train/')), key=lambda p: "
        f"{order})\nprint(len({{{label} for p in paths}}), Image.open(paths[1]).size)\n"
    )
    done = rehearsed({"main.py": text})
    assert done.report.ended == "finished", done.report.why
    assert done.stdout == f"{1 if label == '0' else 2} (256, 256)\n"


APART = """
import glob, os
import pandas as pd
from PIL import Image

rows = pd.read_csv('faces.csv', index_col=0)
for file in glob.glob('faces/**/*.jpg'):
    Image.open(file)
    label = rows.loc[os.path.relpath(file, 'faces')]['smile']
    if label == -1:
        smiles = False
    elif label == 1:
        smiles = True
    else:
        raise Exception('what is %s?' % label)
print(sorted(rows['smile'].unique().tolist()))
"""


def test_a_table_of_images_in_folders_has_the_numbers_that_the_script_tells_apart(rehearsed):
    pytest.importorskip("pandas")
    done = rehearsed({"main.py": APART})
    assert (done.report.ended, done.stdout) == ("finished", "[-1, 1]\n"), done.report.why
