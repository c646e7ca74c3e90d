"""A folder whose folders are opened as data sets of their own."""

import pytest

from headrace.migrate.worker.rehearsal.forms import parted_folders

PARTS = """
import os
from torchvision import datasets

root = "../scans"
found = [datasets.ImageFolder(os.path.join(root, name)) for name in os.listdir(root)]
print(sorted(os.listdir(root)), [len(one.classes) for one in found], len(datasets.ImageFolder(os.path.join(root, "val"))) > 0)
"""


def test_each_of_them_has_the_folders_of_the_classes(rehearsed):
    pytest.importorskip("torchvision")
    done = rehearsed({"code/main.py": PARTS}, script="code/main.py", classes=3)
    assert (done.report.ended, done.stdout) == ("finished", "['test', 'train', 'val'] [3, 3, 3] True\n"), done.report.why


def test_a_folder_that_was_not_made_teaches_nothing(on_stage):
    world = on_stage()
    for text in ("Couldn't find any class folder in /srv/own/train.", "No such file: 'photos'"):
        assert not parted_folders.lesson(world.stage, FileNotFoundError(text), str)
    assert world.stage.learned == {}


def test_where_a_script_falls_back_on_its_own_folder_the_folders_that_it_looked_for_are_made(rehearsed):
    text = (
        "from pathlib import Path\n\nown = Path(__file__).parent\n"
        "there = [own / name for name in ('images', 'data') if (own / name).is_dir()]\nroot = there[0] if there else own\n"
        "classes = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith('_'))\n"
        'error = FileNotFoundError(f"Couldn\'t find any class folder in {root}.")\n'
        "if not classes:\n    exec(compile('raise error', 'a library', 'exec'))\n"
        "print(root.name, len(classes))\n"
    )
    done = rehearsed({"main.py": text}, classes=3)
    assert (done.report.ended, done.stdout) == ("finished", "images 3\n"), done.report.why
