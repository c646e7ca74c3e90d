"""What made files of JSON hold: what the script takes out of them."""

import json

import pytest

from headrace.migrate.worker.rehearsal.forms import json_files

MANIFEST = """
import json
from collections import Counter
from PIL import Image


class Settings:
    def __init__(self, data):
        self.data = data

    def __getitem__(self, name):
        return self.data[name]


class Images:
    def __init__(self, items, numbers):
        self.items, self.numbers = items, numbers

    def __getitem__(self, index):
        sample = self.items[index]
        return Image.open(sample["path"]).size, self.numbers[sample["label"]]


def load_manifest(path):
    with open(path) as file:
        return json.load(file)


manifest = load_manifest(Settings({"file": "data/manifest.json"})["file"])
classes = manifest["classes"]
class_to_index = {name: number for number, name in enumerate(classes)}
sets = {name: Images(items, class_to_index) for name, items in manifest["splits"].items()}
counts = Counter(item["label"] for item in manifest["splits"]["train"])
print(len(classes), [1 / counts[name] < 1 for name in classes][:2], sets["train"][1], sets["val"][0], sets["test"][2])
"""


def test_a_manifest_of_classes_and_splits_with_records(rehearsed):
    done = rehearsed({"main.py": MANIFEST}, classes=3)
    expected = "3 [True, True] ((256, 256), 1) ((256, 256), 0) ((256, 256), 2)\n"
    assert (done.report.ended, done.stdout) == ("finished", expected), done.report.why


@pytest.mark.parametrize(
    ("body", "printed"),
    [
        ("found = [(item['file_name'], item.get('label')) for item in data]", "('image_0001.jpg', 1)"),
        ("first = data[0]\nfound = [(item['image'], item['label']) for item in data]", "('image_0001.jpg', 1)"),
        ("found = [(path, label) for path, label in data]", "('image_0001.jpg', 1)"),
        # As CoOp's splits are written: the path, the number and the name of each image.
        ("found = [(a, b, c) for a, b, c in ((impath, label, classname) for impath, label, classname in data['train'])]",
         "('image_0001.jpg', 1, 'class_001')"),
        ("found = [(item['image'], item['label']) for item in data['annotations']]", "('image_0001.jpg', 1)"),
        ("found = list(zip(data['images'], data['labels']))", "('image_0001.jpg', 1)"),
        # As COCO's are: three tables that refer to one another.
        ("names = {item['id']: item['name'] for item in data['categories']}\n"
         "files = {item['id']: item['file_name'] for item in data['images']}\n"
         "found = [(files[item['image_id']], names[item['category_id']]) for item in data['annotations']]",
         "('image_0001.jpg', 'class_001')"),
    ],
)  # fmt: skip
def test_records_are_taken_apart_as_they_are_made(rehearsed, body, printed):
    done = rehearsed({"main.py": f"import json\ndata = json.load(open('data/all.json'))\n{body}\nprint(found[1])\n"}, classes=3)
    assert (done.report.ended, done.stdout) == ("finished", f"{printed}\n"), done.report.why


def test_what_was_just_read_is_the_file(rehearsed):
    text = "import json\nprint(json.load(open('a.json'))['num_classes'], json.load(open('b.json'))['class_to_idx'])\n"
    done = rehearsed({"main.py": text}, classes=2)
    assert (done.report.ended, done.stdout) == ("finished", "2 {'class_000': 0, 'class_001': 1}\n"), done.report.why


def test_a_list_of_names_that_is_taken_by_number(rehearsed):
    text = "import json\nnames = json.load(open('class_names.json'))\nprint(names[1])\n"
    done = rehearsed({"main.py": text}, classes=2)
    assert (done.report.ended, done.stdout) == ("finished", "class_001\n"), done.report.why


@pytest.mark.parametrize(
    "line", ["{'a': 1}['train']", "data['learning_rate']", "make()['labels']", "for a, b in ['abc']: pass"], ids=str.split
)
def test_other_errors_teach_nothing_of_the_file(rehearsed, line):
    text = f"import json\ndata = json.load(open('a.json'))\n\ndef make():\n    return {{}}\n\n{line}\n"
    done = rehearsed({"main.py": text})
    assert done.report.ended == "stopped"
    assert json_files.LEARNED not in json.loads(done.report.learned)


def test_that_nothing_states_how_many_classes_there_are_is_told(rehearsed):
    text = "import json\ndata = json.load(open('a.json'))\nprint(len(data['classes']))\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "10\n"), done.report.why
    assert "10 classes, as many as nothing states" in [item.what for item in done.standins("data")]


def test_records_have_the_fields_that_transforms_are_told(rehearsed):
    """A transform takes what it is for by a name that it was given."""
    transforms = (
        "class Read:\n    def __init__(self, keys):\n        self.keys = keys\n"
        "    def __call__(self, row):\n        for key in self.keys:\n            row[key] = type(row[key]).__name__\n"
        "        return row\n"
        "STEPS = [Read(keys=['image']), Read(keys=['image', 'label'])]\n"
    )
    text = (
        "import copy, json\nfrom steps import STEPS\ndata = json.load(open('data/fold_0.json'))\n"
        "for row in map(copy.deepcopy, data['train'][:1]):\n    for step in STEPS:\n        row = step(row)\n    print(row)\n"
    )
    done = rehearsed({"main.py": text, "steps.py": transforms})
    assert (done.report.ended, done.stdout) == ("finished", "{'image': 'str', 'label': 'int'}\n"), done.report.why
