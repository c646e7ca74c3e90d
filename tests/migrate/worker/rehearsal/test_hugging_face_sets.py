import pytest

SCRIPT = """
from datasets import load_dataset
import numpy as np, torch
data = load_dataset("nobody/has-these-cats", trust_remote_code=True)
train = data["train"].train_test_split(test_size=0.25)
names = train["train"].features["label"].names
def prepare(rows):
    images = [image.convert("RGB").resize((32, 32)) for image in rows["img"]]
    rows["pixel_values"] = [torch.tensor(np.asarray(image)).permute(2, 0, 1).float() for image in images]
    return rows
loader = torch.utils.data.DataLoader(train["test"].with_transform(prepare), batch_size=4,
    collate_fn=lambda rows: (torch.stack([row["pixel_values"] for row in rows]), [row["label"] for row in rows]))
images, labels = next(iter(loader))
print(tuple(images.shape), names, max(labels) < 2, len(load_dataset("nobody/has-these-cats", split="test[:10%]")) > 0)
"""


def test_a_set_that_is_not_in_the_cache_has_the_columns_that_the_script_takes(rehearsed):
    pytest.importorskip("datasets")
    done = rehearsed({"main.py": SCRIPT, "classes.py": "CLASSES = ['cat', 'dog']\n"})
    assert (done.report.ended, done.stdout) == ("finished", "(4, 3, 32, 32) ['cat', 'dog'] True True\n"), done.stderr
    assert not done.report.user_data


def test_more_rows_than_were_made_are_split_off_in_halves(rehearsed):
    pytest.importorskip("datasets")
    load = "from datasets import load_dataset\nrows = load_dataset('nobody/has-these', split='train').with_format('torch')\n"
    done = rehearsed(
        {"main.py": f"{load}parts = rows.train_test_split(test_size=50000, seed=42)\nprint(*map(len, parts.values()))\n"}
    )
    assert (done.report.ended, done.stdout) == ("finished", "16 16\n"), done.report.why
    assert "32 rows were split in halves where 50000 are asked for" in [item.what for item in done.standins("data")]


def test_a_package_of_that_name_is_the_repositorys(rehearsed):
    files = {"main.py": "from datasets import load_dataset\nprint(load_dataset('x'))\n"}
    done = rehearsed({**files, "datasets/__init__.py": "def load_dataset(name):\n    return name\n"})
    assert (done.report.ended, done.stdout, done.standins("data")) == ("finished", "x\n", [])
