import csv
import io
import json
import pickle

import numpy as np
import pytest
from PIL import Image

from headrace.migrate.worker.rehearsal import Rehearsal, Stage, making
from headrace.migrate.worker.rehearsal.forms import keyed_arrays
from headrace.migrate.worker.rehearsal.making import Maker
from headrace.migrate.worker.rehearsal.weights import stand_in_file


@pytest.fixture
def maker(tmp_path):
    def make(text="", learned=None, **fields):
        (tmp_path / "main.py").write_text(text)
        stage = Stage(Rehearsal(root=str(tmp_path), script="main.py", made=str(tmp_path / "made"), **fields))
        stage.learned |= learned or {}
        return Maker(stage)

    return make


@pytest.mark.parametrize("suffix", [".jpg", ".JPEG", ".png", ".bmp", ".webp", ".ppm", ".tif"])
def test_an_image_is_made_in_the_format_of_its_name_and_is_the_same_each_time(maker, tmp_path, suffix):
    path = tmp_path / f"deep/x{suffix}"
    assert maker(image=(40, 60)).file(str(path))
    first = path.read_bytes()
    with Image.open(path) as image:
        assert image.size == (60, 40)
        assert np.asarray(image).std() > 10
    path.unlink()
    maker(image=(40, 60)).file(str(path))
    assert path.read_bytes() == first


def test_the_pictures_of_all_folders_are_drawn_once(maker, tmp_path):
    making._picture.cache_clear()
    own = maker(image=(20, 30))
    for name in ("train", "val", "test"):
        own.folder(str(tmp_path / "data" / name))
    assert making._picture.cache_info().misses == making._DRAWN
    pictures = [{path.read_bytes() for path in (tmp_path / "data" / name).rglob("*.*")} for name in ("train", "test")]
    assert pictures[0] == pictures[1]
    assert len(pictures[0]) == making._DRAWN


def test_different_images_differ(maker):
    own = maker()
    assert own._image("a.png") != own._image("b.png")


def test_what_nobody_knows_is_not_made(maker, tmp_path):
    assert not maker().file(str(tmp_path / "config.yaml"))
    assert not (tmp_path / "config.yaml").exists()


def test_a_table_has_the_columns_that_are_read(maker):
    text = "num_classes = 3\ndf = pd.read_csv(p)\nx = df['file'], df['label']\n"
    rows = list(csv.DictReader(io.StringIO(maker(text, {"columns": ["fold"]})._table("x.csv").decode())))
    assert list(rows[0]) == ["file", "label", "fold"]
    assert {row["label"] for row in rows} == {"0", "1", "2"}
    assert len({row["file"] for row in rows}) == len(rows)


def test_names_of_classes_come_in_the_form_of_the_file(maker):
    own = maker("classes = ['cat', 'dog']\n")
    assert json.loads(own._json("labels.json")) == {"0": "cat", "1": "dog"}
    assert json.loads(own._json("class_to_idx.json")) == {"cat": 0, "dog": 1}
    assert json.loads(own._json("imagenet_class_index.json"))["1"][1] == "dog"
    assert own._lines("classes.txt") == b"cat\ndog\n"
    assert own._lines("train.txt").splitlines()[1] == b"image_0001.jpg 1"


def test_arrays_have_the_keys_that_were_asked_for(maker):
    own = maker("num_classes = 4\n", {"keys": ["pictures"]}, image=(8, 8))
    with np.load(io.BytesIO(keyed_arrays.npz(own, "x.npz"))) as arrays:
        assert arrays["pictures"].shape == (40, 8, 8, 3)
        assert set(arrays["y_train"]) == {0, 1, 2, 3}
    assert np.load(io.BytesIO(own._array("labels.npy"))).max() == 3
    assert np.load(io.BytesIO(own._array("arrays/y_train.npy"))).max() == 3
    assert np.load(io.BytesIO(own._array("young.npy"))).ndim == 4
    assert pickle.loads(keyed_arrays.pickled(own, "batch.pkl"))["data"].shape == (40, 3072)


def test_a_folder_has_a_folder_of_images_for_each_class_and_goes_away_with_the_attempt(maker, tmp_path):
    own = maker("classes = ['cat', 'dog']\n", image=(8, 8))
    own.folder(str(tmp_path / "data/train"))
    assert sorted(path.name for path in (tmp_path / "data/train").iterdir()) == ["cat", "dog"]
    assert len(list((tmp_path / "data/train").glob("*/*.jpg"))) == 20
    own.folder(str(tmp_path / "data/images"), ".png")
    assert len(list((tmp_path / "data/images").glob("*.png"))) == 16
    own.stage.clear()
    assert list((tmp_path / "data").iterdir()) == []


def test_a_thousand_classes_have_an_image_each(maker, tmp_path):
    maker("num_classes = 1000\n", image=(8, 8)).folder(str(tmp_path / "data"))
    assert len(list((tmp_path / "data").glob("*/*.jpg"))) == 1000


def test_what_a_pattern_asks_for_is_made(maker, tmp_path):
    own = maker("num_classes = 2\n", image=(8, 8))
    own.matching(str(tmp_path / "a"), "*/*.png")
    own.matching(str(tmp_path / "b"), "*.bmp")
    own.matching(str(tmp_path / "c"), "*.py")
    own.matching(str(tmp_path / "d"), "*.*")
    assert len(list((tmp_path / "a").glob("*/*.png"))) == 20
    assert len(list((tmp_path / "b").glob("*.bmp"))) == 16
    assert not (tmp_path / "c").exists()
    assert len(list((tmp_path / "d").glob("*.*"))) == 16


COMPETITION = """
import csv, cv2, glob, os
from sklearn.model_selection import StratifiedKFold, train_test_split
CLASSES = ["cbb", "cbsd", "cgm", "cmd", "healthy"]
rows = list(csv.DictReader(open("../input/cassava/train.csv")))
labels = [int(row["label"]) for row in rows]
train, valid = next(StratifiedKFold(n_splits=5, shuffle=True, random_state=0).split(rows, labels))
image = cv2.imread(f"../input/cassava/train_images/{rows[valid[0]]['image_id']}")
files = sorted(glob.glob(os.path.join("data", "train", "*", "*.jpg")))
names = [file.split(os.sep)[-2] for file in files]
held = train_test_split(files, names, test_size=0.1, stratify=names, random_state=0)[1]
print(image.shape, len(valid) >= 5, len(set(names)), len(held) >= 5)
"""


def test_what_is_made_can_be_split_by_class(rehearsed):
    done = rehearsed({"kaggle/main.py": COMPETITION}, script="kaggle/main.py")
    assert (done.report.ended, done.stdout) == ("finished", "(256, 256, 3) True 5 True\n"), done.stderr


BESIDE = """
import os, torch
from glob import glob
from PIL import Image
class Set(torch.utils.data.Dataset):
    def __init__(self, path, phase):
        path = os.path.join(path, phase)
        names = os.listdir(path)
        self.images, self.labels = sorted(glob(path + "/images/*")), sorted(glob(path + "/labels/*"))
    def __len__(self):
        return len(self.images)
    def __getitem__(self, index):
        Image.open(self.images[index]).convert("RGB")
        return int(open(self.labels[index]).read().strip().split(" ")[0])
labels = [label for part in ("train", "test") for label in Set("/nowhere/at/all", part)]
print(len(labels) > 8, min(labels), torch.nn.Linear(3, 5)(torch.ones(1, 3)).shape[1] >= len(set(labels)))
"""


def test_labels_may_stand_in_a_folder_beside_that_of_the_images(rehearsed):
    done = rehearsed({"main.py": BESIDE}, classes=5)
    assert (done.report.ended, done.stdout) == ("finished", "True 0 True\n"), done.report.why


def table(maker, text, learned=None):
    return list(csv.DictReader(io.StringIO(maker(text, learned)._table("x.csv").decode())))


def test_a_column_of_pixels_holds_an_image_each(maker):
    text = "df = pd.read_csv(p)\nx = df['pixels'], df['emotion']\nz = np.array(x.split()).reshape(1, 48, 48)\nnum_classes = 7\n"
    rows = table(maker, text)
    assert {len(row["pixels"].split()) for row in rows} == {48 * 48}
    assert {row["emotion"] for row in rows} == set("0123456")
    assert rows[0]["pixels"] != rows[1]["pixels"]


def test_a_column_holds_large_images_in_few_rows(maker):
    text = (
        "df = pd.read_parquet(p)\nx = np.fromstring(df['image_vector'], sep=',').reshape(512, 512, 3), df['label']\n"
        "num_classes = 4\n"
    )
    before = csv.field_size_limit(1 << 24)
    try:
        rows = table(maker, text)
    finally:
        csv.field_size_limit(before)
    assert {row["image_vector"].count(",") + 1 for row in rows} == {512 * 512 * 3}
    assert [row["label"] for row in rows] == ["0", "1", "2", "3"] * 4


def test_the_name_of_a_class_stands_beside_its_number(maker):
    text = "df = pd.read_csv(p)\nx = df['path'], df['label'], df['class_name']\nnum_classes = 2\n"
    assert list(table(maker, text)[1].values()) == ["image_0001.jpg", "1", "class_001"]


def test_a_row_of_pixels_is_an_image_where_no_file_is_named(maker):
    text = "df = pd.read_csv(p)\ny = df['label'].values\nx = df.iloc[:, 1:].values.reshape(-1, 1, 28, 28)\nnum_classes = 10\n"
    rows = table(maker, text)
    assert (list(rows[0])[:2], len(rows[0])) == (["label", "pixel0"], 785)


def test_a_table_that_names_files_has_no_pixels(maker):
    text = "df = pd.read_csv(p)\ny = df['label'], df['file']\nx = load(y).view(-1, 3, 32, 32)\n"
    assert list(table(maker, text)[0]) == ["label", "file"]


def test_names_without_endings_where_tables_and_folders_agree_so(maker):
    text = "df = pd.read_csv(p)\nx = df['image_id'], df['level'], df['path']\n"
    row = table(maker, text, {"agreed": "stems"})[1]
    assert (row["image_id"], row["path"]) == ("image_0001", "image_0001.jpg")


def test_a_column_that_says_yes_or_no_keeps_most_rows_of_each_class(maker):
    text = "df = pd.read_csv(p)\nx = df['gradable'], df['is_valid'], df['grade'], df['path']\nnum_classes = 3\n"
    rows = table(maker, text)
    assert {row["gradable"] for row in rows} == {row["is_valid"] for row in rows} == {"0", "1"}
    assert {row["grade"] for row in rows if row["gradable"] == "1"} == set("012")
    assert {row["grade"] for row in rows if row["is_valid"] == "0"} == set("012")


@pytest.mark.parametrize(
    ("name", "shape", "kind"),
    [
        ("image_0003.npy", (256, 256, 3), "uint8"),
        ("image_0003.jpg.npy", (256, 256, 3), "uint8"),
        ("images.npy", (100, 256, 256, 3), "uint8"),
        ("image_0003_labels.npy", (100,), "int64"),
        ("train_labels.npy", (100,), "int64"),
        ("mean.npy", (3,), "float32"),
        ("train_std.npy", (3,), "float32"),
        ("normalization.npy", (2, 3), "float32"),
        ("mean_std.npy", (2, 3), "float32"),
        ("demeaned.npy", (100, 256, 256, 3), "uint8"),
    ],
)
def test_an_array_is_an_image_many_or_numbers_about_them(on_stage, name, shape, kind):
    world = on_stage()
    assert Maker(world.stage).file(str(world.root / name))
    made = np.load(world.root / name)
    assert (made.shape, str(made.dtype)) == (shape, kind)


def test_a_pickle_is_a_batch_by_keys_or_an_array_of_images_or_of_labels(on_stage):
    world = on_stage()
    (world.root / "keyed.py").write_text("batch = load('x_keyed.pkl')\nprint(batch['data'])\n")
    made = {}
    for name in ("data_batch_1.pkl", "train_images.pkl", "X_train.pickle", "train_labels.pkl", "x_keyed.pkl"):
        assert Maker(world.stage).file(str(world.root / name))
        made[name] = pickle.loads((world.root / name).read_bytes())
    assert {"data", "labels"} <= set(made["data_batch_1.pkl"])
    assert {"data", "labels"} <= set(made["x_keyed.pkl"])
    assert made["train_images.pkl"].shape == made["X_train.pickle"].shape == (100, 28, 28)
    assert made["train_labels.pkl"].shape == (100,)
    world.stage.learn("floats", True)
    world.stage.learn("rows", 60)
    assert Maker(world.stage).file(str(world.root / "test_images.pkl"))
    images = pickle.loads((world.root / "test_images.pkl").read_bytes())
    assert (images.shape, images.dtype) == ((60, 28, 28), np.float32)


def test_what_torch_loads_is_weights_whatever_its_name(on_stage):
    world = on_stage()
    world.stage.loading = "net.pkl"
    assert Maker(world.stage).file(str(world.root / "net.pkl"))
    assert (world.root / "net.pkl").read_bytes() == stand_in_file()


def test_arrays_of_images_are_as_large_as_those_of_the_set_whose_place_they_take(maker):
    own = maker()
    own.stage.size_of_set = (32, 32)
    assert np.load(io.BytesIO(own._array("fog.npy"))).shape[1:] == (32, 32, 3)
    own = maker(image=(48, 40))
    own.stage.size_of_set = (32, 32)
    assert np.load(io.BytesIO(own._array("fog.npy"))).shape[1:] == (48, 40, 3)


def test_a_pickle_holds_the_images_and_the_labels_that_were_asked_for(maker):
    made = pickle.loads(keyed_arrays.pickled(maker(learned={"keys": ["train_img", "train_label"]}), "mnist.pkl"))
    assert made["train_img"].shape == (len(made["train_label"]), 28 * 28)
    assert made["train_label"].max() == 9
