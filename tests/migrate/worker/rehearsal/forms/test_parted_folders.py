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
