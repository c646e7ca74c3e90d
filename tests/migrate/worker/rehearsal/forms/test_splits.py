"""Files and columns that say which images are for training, and numbers of images that no made set has."""

import json

import pytest
import torch.utils.data

from headrace.migrate.worker.rehearsal.edges import data
from headrace.migrate.worker.rehearsal.forms import json_files, splits

LOAD = "import json\nparts = json.load(open('data/splits.json'))\n"


def test_a_file_of_splits_has_the_numbers_of_images_where_a_subset_takes_them(rehearsed):
    text = LOAD + (
        "from torch.utils.data import Subset\nimages = list(range(64))\n"
        "print(len(Subset(images, parts['train'])), len(Subset(images, parts['val_idx'])), parts['train'][:2])\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "16 16 [0, 1]\n"), done.report.why


def test_else_the_names_of_images(rehearsed):
    text = LOAD + "from PIL import Image\nprint(Image.open('photos/' + parts['test'][0]).size)\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "(256, 256)\n"), done.report.why


@pytest.mark.parametrize("key", ["mean", "training_rate", "tests"])
def test_another_key_is_no_split(rehearsed, key):
    done = rehearsed({"main.py": LOAD + f"print(parts[{key!r}])\n"})
    assert (done.report.ended, json_files.LEARNED in json.loads(done.report.learned)) == ("stopped", False)


def test_a_table_of_splits_has_those_that_are_stated_and_the_usual_ones(on_stage):
    text = "shuffle = part == 'training' or part == 'dev'\n"
    world = on_stage(files={"main.py": text})
    assert splits.named(world.stage) == ["training", "dev", "val", "test"]


def test_numbers_of_a_split_of_the_users_wrap_around_in_a_set_that_was_made(on_stage):
    world = on_stage(data)
    names = world.play(
        "from torch.utils.data import Subset\nown = Subset([10, 20], [0, 1])\nimport json\njson.load(open('a.json'))\n"
        "part = Subset([10, 20, 30], [0, 23033, 7])\nfits = Subset([10, 20], (1, 0))\n"
    )
    assert [*names["part"]] == [10, 30, 20]
    assert (names["own"].indices, names["fits"].indices) == ([0, 1], (1, 0))
    assert world.said("data")[-1] == "a split of more images than the 3 that stand in was wrapped around"


def test_where_no_data_stands_in_a_number_beyond_the_set_is_an_error(on_stage):
    names = on_stage(data).play("from torch.utils.data import Subset\npart = Subset([10, 20], [5])\n")
    assert isinstance(names["part"], torch.utils.data.Subset)
    with pytest.raises(IndexError):
        names["part"][0]


def test_parts_of_more_images_than_stand_in_are_as_large_parts_of_these(on_stage):
    world = on_stage(data)
    names = world.play(
        "from torch.utils.data import random_split\nimport json\njson.load(open('a.json'))\n"
        "parts = random_split(range(60), [13000, 2000, 20])\n"
        "own, shares = random_split(range(6), [4, 2]), random_split(range(6), [0.5, 0.5])\n"
    )
    assert [len(part) for part in names["parts"]] == [52, 7, 1]
    assert sorted(number for part in names["parts"] for number in part) == [*range(60)]
    assert ([*map(len, names["own"])], [*map(len, names["shares"])]) == ([4, 2], [3, 3])
    assert world.said("data")[2:] == ["parts of 15020 images in all became as large parts of the 60 that stand in"]


def test_where_no_data_stands_in_parts_that_do_not_fit_are_an_error(on_stage):
    with pytest.raises(ValueError, match="Sum of input lengths"):
        on_stage(data).play("from torch.utils.data import random_split\nrandom_split(range(6), [40, 2])\n")


def test_a_column_of_splits_holds_those_that_the_sources_compare_with(rehearsed):
    text = (
        "import csv\nrows = list(csv.DictReader(open('table.csv')))\nlabels = [row['label'] for row in rows]\n"
        "for part in ('a',):\n    kept = [row for row in rows if row['SPLIT'] == 'validation' or 'trn' == row['SPLIT']]\n"
        "print(len(kept) == len(rows) > 4, sorted({row['SPLIT'] for row in kept}), rows[3]['index'])\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "True ['trn', 'validation'] 3\n"), done.report.why
