import pytest

READ = """
import os
import numpy as np
from PIL import Image

class Birds:
    def __init__(self, root, train):
        paths = np.genfromtxt(os.path.join(root, 'images.txt'), dtype=str)
        kept = np.genfromtxt(os.path.join(root, 'train_test_split.txt'), dtype=int)
        names = [line.split()[1] for line in open(os.path.join(root, 'classes.txt'))]
        self.items = [
            (np.array(Image.open(os.path.join(root, 'images', path))).shape, int(path[:3]) - 1)
            for (_, path), (_, flag) in zip(paths, kept) if flag == train
        ]
        self.names = names

train, test = Birds('data/CUB', 1), Birds('data/CUB', 0)
print(len(train.items), len(test.items), len(train.names), sorted({label for _, label in test.items})[-1])
"""
WITH_PANDAS = """
import os
import pandas as pd
root = 'CUB_200_2011'
images = pd.read_csv(os.path.join(root, 'images.txt'), sep=' ', names=['img_id', 'filepath'])
labels = pd.read_csv(os.path.join(root, 'image_class_labels.txt'), sep=' ', names=['img_id', 'target'])
split = pd.read_csv(os.path.join(root, 'train_test_split.txt'), sep=' ', names=['img_id', 'is_training_img'])
data = images.merge(labels, on='img_id').merge(split, on='img_id')
test = data[data.is_training_img == 0]
print(len(data), len(test), sorted(set(test.target)) == list(range(1, 201)))
"""


def test_a_script_finds_all_that_belongs_together(rehearsed):
    done = rehearsed({"main.py": READ.replace("np.array(Image.open(os.path.join(root, 'images', path))).shape", "path")})
    assert (done.report.ended, done.stdout) == ("finished", "600 200 200 199\n"), done.report.why


def test_tables_of_them(rehearsed):
    pytest.importorskip("pandas")
    done = rehearsed({"main.py": WITH_PANDAS})
    assert (done.report.ended, done.stdout) == ("finished", "800 200 True\n"), done.report.why


def test_as_many_classes_as_the_sources_state(rehearsed):
    done = rehearsed({"main.py": "num_classes = 5\n" + READ})
    assert (done.report.ended, done.stdout) == ("finished", "15 5 5 4\n"), done.report.why


def test_a_list_of_that_name_alone_is_any_list(rehearsed):
    done = rehearsed({"main.py": "print(open('data/images.txt').readline())\n"})
    assert done.stdout == "image_0000.jpg 0\n\n", done.report.why
