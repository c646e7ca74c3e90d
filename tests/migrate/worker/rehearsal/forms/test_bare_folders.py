"""Folders that are here without the data that lies in them."""

import pytest

from headrace.migrate.worker.rehearsal.forms.bare_folders import is_bare, waits_for_data

LISTED = """
import os
classes = ["ant", "bee"]
found = FOUND
assert found, "no images found"
print(len(found), os.path.exists("data/train/README.md"))
"""
WAYS = [
    'sorted(os.path.join(c, f) for c in classes for f in os.listdir(f"data/train/{c}")) if os.path.isdir("data/train/ant") else'
    ' [d for d in os.listdir("data/train") if os.path.isdir(f"data/train/{d}")]',
    '[os.path.join(d, f) for d, _, files in os.walk("data/train") for f in files if f.endswith(".jpg")]',
    '__import__("glob").glob("data/train/*/*.jpg")',
    '[p for p in __import__("pathlib").Path("data/train").rglob("*") if p.suffix == ".jpg"]',
]
KEPT = {"data/train/.gitkeep": "", "data/train/README.md": "Put the images here."}


@pytest.mark.parametrize("way", WAYS)
def test_a_folder_that_git_keeps_is_filled(rehearsed, way):
    done = rehearsed({"main.py": LISTED.replace("FOUND", way), **KEPT}, classes=2)
    assert (done.report.ended, done.stdout) == ("finished", "20 True\n"), done.report.why
    assert [(item.what, item.where.partition(":")[0]) for item in done.standins("data")] == [("data/train", "main.py")]


def test_what_is_beside_the_data_stays_for_the_next_attempt(rehearsed):
    """An attempt that makes the images otherwise leaves the user's own files where they are."""
    way = '[f for f in os.listdir("data/train") if f.endswith(".jpg")]'
    done = rehearsed({"main.py": LISTED.replace("FOUND", way), **KEPT}, classes=2)
    assert (done.report.ended, done.stdout.split()[1]) == ("finished", "True"), done.report.why
    assert done.report.attempts == 3  # filled with folders of classes, then flat


def test_a_data_set_of_torchvision_is_made_beside_a_script_that_downloads_it(rehearsed):
    pytest.importorskip("torchvision")
    text = 'from torchvision.datasets import ImageFolder\nprint(len(ImageFolder("data/")), open("data/download.py").read())\n'
    done = rehearsed({"main.py": text, "data/download.py": "# kaggle", "data/split.txt": "70 : 30"}, classes=2)
    assert (done.report.ended, done.stdout.split()[1:]) == ("finished", ["#", "kaggle"]), done.report.why


@pytest.mark.parametrize(
    ("files", "bare", "waits"),
    [
        (["x/.gitkeep"], True, True),
        (["x/a/.gitkeep", "x/b/README"], True, True),
        (["x/download.py", "x/README.md"], True, False),
        (["x/base.yaml"], True, False),
        (["x/train.csv", "x/.gitkeep"], False, False),
        (["x/a/1.jpg"], False, False),
        (["results/.gitkeep"], True, False),
        ([], False, False),
    ],
)
def test_what_is_a_folder_without_data(tmp_path, files, bare, waits):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    folder = str(tmp_path / (files or ["x/"])[0].partition("/")[0])
    assert (is_bare(folder), waits_for_data(folder)) == (bare, waits)


def test_a_folder_of_settings_stays_as_it_is(rehearsed):
    text = 'import os\nassert [f for f in os.listdir("configs") if f.endswith(".json")], "no files found"\n'
    done = rehearsed({"main.py": text, "configs/base.yaml": "a: 1"}, classes=2)
    assert done.report.ended == "stopped"
    assert done.standins("data") == []


def test_a_folder_of_code_that_an_error_names_stays_as_it_is(rehearsed):
    text = "import os\nraise RuntimeError(\"no plugin found in 'src/plugins'\")\n"
    done = rehearsed({"main.py": text, "src/plugins/base.py": "", "src/plugins/README.md": ""}, classes=2)
    assert (done.report.ended, done.report.attempts) == ("stopped", 1)
    assert done.standins("data") == []
