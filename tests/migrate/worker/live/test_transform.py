"""Preprocessing taken live: whatever stands between an image's file and the model's call, in a data set or in a function."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headrace.migrate.proving import trace_transform
from headrace.migrate.proving.sandbox import Sandbox
from headrace.migrate.proving.trace_transform import Traced, confirm, trace
from headrace.migrate.reading.recipe import LiveModel, TransformRecipe
from headrace.specs import CenterCrop, Pad, Preprocessing, Resize
from tests.migrate import probes

pytestmark = pytest.mark.usefixtures("warm_sandbox")


@pytest.fixture(params=["few", pytest.param("all", marks=pytest.mark.slow)], autouse=True)
def taken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "all":
        probes.take(probes.ALL, monkeypatch.setattr)


HEAD = """
import io
import random
import numpy as np
import torch
from PIL import Image, ImageOps
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).eval()
"""
# A data set of its own, behind a loader with a batch; training comes first, with another preparation.
LOADED = """
from torch.utils.data import DataLoader, Dataset

class Photos(Dataset):
    def __init__(self, train):
        self.train = train
    def __len__(self):
        return 8
    def __getitem__(self, index):
        image = Image.open(f"{index}.png").convert("RGB").resize((24, 20), Image.BILINEAR)
        if self.train:
            image = image.crop((0, 0, 16, 16)).resize((24, 20))
        pixels = np.asarray(image, np.float32) / 255
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy()), index % 2

optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for images, targets in DataLoader(Photos(True), batch_size=4, shuffle=True):
    nn.functional.cross_entropy(net.train()(images), targets).backward()
net.eval()
with torch.no_grad():
    for images, targets in DataLoader(Photos(False), batch_size=4):
        print(net((images - 0.5) / 0.25).argmax(1))
"""
# A service: bytes in, opened upright, and a padded square.
SERVED = """
def prepare(data):
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    side = max(image.size)
    square = Image.new("RGB", (side, side), (7, 8, 9))
    square.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
    square = square.resize((32, 32), Image.BICUBIC).crop((4, 4, 28, 28))
    return torch.from_numpy(np.array(square)).permute(2, 0, 1).float().div(255)[None]

with torch.no_grad():
    print(net(prepare(open("3.png", "rb").read())).argmax(1))
"""
ARRAYS = """
pixels = np.random.randint(0, 255, (5, 40, 40, 3), np.uint8)
with torch.no_grad():
    image = Image.fromarray(pixels[0]).resize((16, 16), Image.LANCZOS)
    print(net(torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float()).argmax(1))
"""
RANDOM = """
with torch.no_grad():
    image = Image.open("1.png").resize((20, 20), Image.BILINEAR)
    left = random.randint(0, 4)
    image = image.crop((left, 0, left + 16, 16))
    print(net(torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float()).argmax(1))
"""
# Evaluated with what it trains on, prepared at random, and then with what it tests on.
TWICE_EVALUATED = """
from torch.utils.data import DataLoader, Dataset

class Photos(Dataset):
    def __init__(self, angles):
        self.angles = angles
    def __len__(self):
        return 8
    def __getitem__(self, index):
        image = Image.open(f"{index}.png").convert("RGB")
        image = image.resize((16, 16), Image.BILINEAR)
        image = image.rotate(random.choice(self.angles)) if self.angles else image
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)

def evaluate(loader):
    with torch.no_grad():
        for images in loader:
            print(net(images).argmax(1))

evaluate(DataLoader(Photos([0, 90, 180, 270]), batch_size=4))
evaluate(DataLoader(Photos(TESTED), batch_size=4))
"""
# What is not here is made, by Pillow too; all images of a batch are alike, but for the probes.
MADE = """
data = open("uploads/new.jpg", "rb").read()
with torch.no_grad():
    image = Image.open(io.BytesIO(data)).convert("RGB").resize((16, 16), Image.BILINEAR)
    print(net(torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float().div(255)).argmax(1))
"""
BATCHED = """
from torch.utils.data import DataLoader, Dataset

class Photos(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        image = Image.open(f"{index}.png").convert("RGB")
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)

with torch.no_grad():
    for images in DataLoader(Photos(), batch_size=4):
        print(net(images).argmax(1))
"""
# Torch's threads work before the images are opened, as they do when weights are drawn, and on the images afterwards.
THREADED = """
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(4)
print(torch.ones(64, 100, 100).exp().sum())

class Photos(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        image = Image.open(f"{index}.png").convert("RGB").resize((240, 200), Image.BILINEAR)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float()

with torch.no_grad():
    for images in DataLoader(Photos(), batch_size=4):
        print(net(images / 255).argmax(1))
"""
# Images that a table names, and that are no more here than it is.
NAMED = """
import csv
from torch.utils.data import DataLoader, Dataset

class Photos(Dataset):
    rows = list(csv.DictReader(open("photos.csv")))
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        image = Image.open("photos/" + self.rows[index]["image"]).convert("RGB").resize((24, 20), Image.BILINEAR)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float(), int(self.rows[index]["label"])

net.train()(torch.stack([Photos()[index][0] for index in range(12)]))  # more images than there are attempts
net.eval()
with torch.no_grad():
    for images, targets in DataLoader(Photos(), batch_size=4):
        print(net(images / 255).argmax(1))
"""
# Another model gets the same images before.
TOLD_TWICE = """
body = nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
with torch.no_grad():
    for index in range(4):
        image = Image.open(f"{index}.png").convert("RGB").resize((20, 16), Image.BILINEAR)
        row = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float().div(255)
        print(body(row).shape, net(row).argmax(1))
"""
# What is too dark is left out, and the next image taken.
GATED = """
for index in range(8):
    image = Image.open(f"{index}.png").convert("RGB")
    if np.asarray(image).mean() < 40:
        print(index, "unusable")
        continue
    with torch.no_grad():
        row = torch.from_numpy(np.array(image.resize((20, 16), Image.BILINEAR))).permute(2, 0, 1)[None].float().div(255)
        print(index, net(row).argmax(1))
"""
# Whatever ends the opening of an image is taken for a damaged one.
CAUGHT = """
from torch.utils.data import DataLoader, Dataset

class Photos(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        try:
            image = Image.open(f"{index}.png").convert("RGB").resize((24, 20), Image.BILINEAR)
        except:
            image = Image.new("RGB", (24, 20))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)

with torch.no_grad():
    for images in DataLoader(Photos(), batch_size=4):
        print(net(images).argmax(1))
"""
NONE = """
with torch.no_grad():
    print(net(torch.rand(2, 3, 16, 16)).argmax(1))
"""


def traced(tmp_path: Path, text: str, row: tuple[int, int, int]) -> Traced:
    return trace(*script(tmp_path, text, row))


def script(tmp_path: Path, text: str, row: tuple[int, int, int], ordinal: int = 0) -> tuple[TransformRecipe, Sandbox]:
    sandbox = Sandbox(scratch=tmp_path)
    sandbox.tree.mkdir()
    (sandbox.tree / "script.py").write_text(HEAD + text)
    rng = np.random.default_rng(0)
    for index in range(8):
        Image.fromarray(rng.integers(0, 255, (30, 40, 3), np.uint8)).save(sandbox.tree / f"{index}.png")
    live = LiveModel(class_name="Sequential", ordinal=ordinal, evaluating=True, row=row)
    root = str(sandbox.tree)
    return TransformRecipe(root=root, script="script.py", live=live, takes="image", source_at="script.py:1"), sandbox


def test_of_an_image_that_stands_in_for_one(tmp_path: Path) -> None:
    found = traced(tmp_path, MADE, (3, 16, 16))
    assert [made.geometry for made in found.candidates] == [(Resize(size=(16, 16)),)], found


def test_of_images_whose_every_error_is_handled(tmp_path: Path) -> None:
    found = traced(tmp_path, CAUGHT, (3, 20, 24))
    assert [made.geometry for made in found.candidates] == [(Resize(size=(20, 24)),)], found.why


def test_of_images_that_another_model_gets_before(tmp_path: Path) -> None:
    found = trace(*script(tmp_path, TOLD_TWICE, (3, 16, 20), ordinal=1))
    assert [made.geometry for made in found.candidates] == [(Resize(size=(16, 20)),)], found.why


def test_of_what_a_script_leaves_out_that_is_told_and_the_rest_is_found(tmp_path: Path) -> None:
    found = traced(tmp_path, GATED, (3, 16, 20))
    (made,) = found.candidates
    assert made.row_size == (16, 20)
    left = [note for note in found.notes if "to its model" in note]
    assert len(left) == bool(trace_transform.LIGHTS)
    assert all(note.startswith("the script does not bring a dark image and 2 more of the probes to its model") for note in left)


def test_of_images_that_a_made_table_names(tmp_path: Path) -> None:
    found = traced(tmp_path, NAMED, (3, 20, 24))
    assert [named.geometry for named in found.candidates] == [(Resize(size=(20, 24)),)], found.why


def test_of_a_script_that_does_not_come_to_its_call_the_reason_is_told(tmp_path: Path) -> None:
    found = traced(tmp_path, "raise OSError('gone')\n", (3, 20, 24))
    assert "the model's call was not made again: OSError: gone" in (found.why or "")


def test_what_was_read_is_confirmed_by_a_run_or_not(tmp_path: Path) -> None:
    recipe, sandbox = script(tmp_path, BATCHED, (3, 30, 40))
    ones = (1.0, 1.0, 1.0)
    right = Preprocessing(mode="RGB", geometry=(), scale=1 / 255, mean=(0.0, 0.0, 0.0), std=ones, channels="RGB")
    wrong = replace(right, std=(0.5, 0.5, 0.5))
    gray = Preprocessing(mode="L", geometry=(), scale=1 / 255, mean=(0.0,), std=(1.0,), channels="L")
    found = confirm(recipe, Traced(candidates=(wrong, gray, right)), sandbox)
    assert found is not None
    assert found.candidates == (right,), found


def test_nothing_is_confirmed_where_no_image_comes_to_the_model(tmp_path: Path) -> None:
    recipe, sandbox = script(tmp_path, NONE, (3, 16, 16))
    plain = Preprocessing(mode="RGB", geometry=(), scale=1.0, mean=(0.0,) * 3, std=(1.0,) * 3, channels="RGB")
    assert confirm(recipe, Traced(candidates=(plain,)), sandbox) is None


@pytest.mark.slow  # the same and more: past a training step, below
def test_through_a_loader_after_training(tmp_path: Path) -> None:
    found = traced(tmp_path, LOADED, (3, 20, 24))
    (made,) = found.candidates
    assert made.geometry == (Resize(size=(20, 24)),), found
    assert (made.mean, made.std, made.channels) == ((0.5,) * 3, (0.25,) * 3, "RGB")


@pytest.mark.parametrize(
    "of",
    [
        pytest.param("Subset(Photos(), range(0, 8, 2))", marks=pytest.mark.slow),
        "Subset(random_split(Photos(), [6, 2])[0], [0, 2, 4, 5])",
    ],
)
def test_of_images_of_any_size_that_are_a_part_of_a_data_set(tmp_path: Path, of: str) -> None:
    text = "from torch.utils.data import Subset, random_split\n" + BATCHED.replace("DataLoader(Photos()", f"DataLoader({of}")
    (made,) = traced(tmp_path, text, (3, 30, 40)).candidates
    assert (made.geometry, made.std) == ((), (1.0,) * 3)


def test_of_images_that_torchvision_reads(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    text = """
from torchvision.io import ImageReadMode, read_image
with torch.no_grad():
    image = read_image("3.png", ImageReadMode.RGB).float() / 255
    image = nn.functional.interpolate(image[None], size=(20, 24), mode="bilinear", antialias=True)
    print(net(image).argmax(1))
"""
    (made,) = traced(tmp_path, text, (3, 20, 24)).candidates
    assert [step.size for step in made.geometry] == [(20, 24)]


def test_past_images_that_were_opened_and_not_used(tmp_path: Path) -> None:
    taken = "net.eval()\n" + "\n".join(f'Image.open("{number}.png").load()' for number in range(8)) + "\n"
    found = traced(tmp_path, LOADED.replace("net.eval()\n", taken, 1), (3, 20, 24))
    assert [made.geometry for made in found.candidates] == [(Resize(size=(20, 24)),)], found


# The model's image is that of its pixels, not those whose mean is taken off it, which change it as well.
NORMED = """
def pixels(name):
    return np.asarray(Image.open(name).convert("RGB").resize((24, 20), Image.BILINEAR), np.float32)

mean = np.concatenate([np.asarray(Image.open(f"{index}.png"), np.float32).reshape(-1, 3) for index in range(3)]).mean(0)
with torch.no_grad():
    for index in (3, 4):
        print(net(torch.from_numpy(STEP(pixels(f"{index}.png") - mean).transpose(2, 0, 1).copy())[None]).argmax(1))
"""


def test_past_images_that_only_say_what_all_others_are_normalized_by(tmp_path: Path) -> None:
    recipe, sandbox = script(tmp_path, NORMED.replace("STEP", ""), (3, 20, 24))
    found = trace(recipe, sandbox)
    (made,) = found.candidates
    assert made.geometry == (Resize(size=(20, 24)),), found
    opened = [np.asarray(Image.open(sandbox.tree / f"{index}.png"), np.float32).reshape(-1, 3) for index in range(3)]
    assert made.mean == pytest.approx(np.concatenate(opened).mean(0), abs=1e-2)


def test_where_no_image_is_the_models_pixel_by_pixel_the_first_one_says_why(tmp_path: Path) -> None:
    why = traced(tmp_path, NORMED.replace("STEP", "np.cumsum"), (3, 20, 24)).why or ""
    assert why
    assert "opened neither by Pillow" not in why


# Data sets that open all their images as they are made, both before the first call.
AT_ONCE = """
from torch.utils.data import DataLoader, TensorDataset

class Photos:
    def __init__(self, size):
        self.items = [self.opened(f"{index}.png", size) for index in range(8)]
    def opened(self, path, size):
        pixels = np.asarray(Image.open(path).convert("RGB").resize(size, Image.BILINEAR), np.float32) / 255
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy())
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return self.items[index], index % 2

sets = [Photos((16, 12)), Photos((24, 20)), Photos((20, 12))]
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for images, targets in DataLoader(sets[0], batch_size=4):
    nn.functional.cross_entropy(net.train()(images), targets).backward()
net.eval()
with torch.no_grad():
    for images, targets in DataLoader(sets[1], batch_size=2):
        print(net(images).argmax(1))
"""


def test_of_data_sets_that_open_all_their_images_as_they_are_made(tmp_path: Path) -> None:
    found = traced(tmp_path, AT_ONCE, (3, 20, 24))
    assert [made.geometry for made in found.candidates] == [(Resize(size=(20, 24)),)], found


def test_images_that_were_opened_long_before_and_were_not_found_are_told(tmp_path: Path) -> None:
    others = "for index in range(16):\n    Image.open(f'{index % 8}.png').load()\n"
    why = traced(tmp_path, others + NONE, (3, 16, 16)).why or ""
    assert "the script opens 16 images before the model's call, and changed none of its batch" in why


def test_past_a_training_step_whose_accuracy_is_measured(tmp_path: Path) -> None:
    step = "nn.functional.cross_entropy(net.train()(images), targets).backward()\n"
    measured = f"{step}    with torch.no_grad():\n        print(net(images).argmax(1))\n"
    recipe, sandbox = script(tmp_path, LOADED.replace(step, measured), (3, 20, 24))
    assert recipe.live is not None
    found = trace(replace(recipe, live=replace(recipe.live, settled=True)), sandbox)
    (made,) = found.candidates
    assert (made.geometry, made.mean, made.std) == ((Resize(size=(20, 24)),), (0.5,) * 3, (0.25,) * 3), found


def test_after_threads_that_a_fork_has_not(tmp_path: Path) -> None:
    found = traced(tmp_path, THREADED, (3, 200, 240))
    assert [made.geometry for made in found.candidates] == [(Resize(size=(200, 240)),)], found


def test_through_a_function_that_gets_bytes(tmp_path: Path) -> None:
    found = traced(tmp_path, SERVED, (3, 24, 24))
    (made,) = found.candidates
    assert made.upright
    assert made.geometry == (
        Pad(size=None, fill=(7, 8, 9)), Resize(size=(32, 32), interpolation="bicubic"), CenterCrop(size=(24, 24)),
    )  # fmt: skip


@pytest.mark.slow
def test_of_images_that_were_arrays(tmp_path: Path) -> None:
    found = traced(tmp_path, ARRAYS, (3, 16, 16))
    assert found.candidates[0].geometry == (Resize(size=(16, 16), interpolation="lanczos"),), found
    assert found.candidates[0].scale == 1.0


def test_what_differs_from_run_to_run_is_said_to(tmp_path: Path) -> None:
    assert "random" in (traced(tmp_path, RANDOM, (3, 16, 16)).why or "")
    assert len(list(tmp_path.rglob("probe-*.npz"))) < 6  # what becomes of the others need not be known


def test_of_the_first_data_set_whose_preparation_is_always_the_same(tmp_path: Path) -> None:
    found = traced(tmp_path, TWICE_EVALUATED.replace("TESTED", "[]"), (3, 16, 16))
    (made,) = found.candidates
    assert made.geometry == (Resize(size=(16, 16)),), found


def test_of_data_sets_that_are_all_prepared_at_random_that_is_said(tmp_path: Path) -> None:
    found = traced(tmp_path, TWICE_EVALUATED.replace("TESTED", "[0, 45, 90, 135]"), (3, 16, 16))
    assert "random" in (found.why or ""), found


def test_what_was_read_elsewhere_does_not_stand_where_the_run_is_random(tmp_path: Path) -> None:
    recipe, sandbox = script(tmp_path, RANDOM, (3, 16, 16))
    plain = Preprocessing(mode="RGB", geometry=(), scale=1.0, mean=(0.0,) * 3, std=(1.0,) * 3, channels="RGB")
    found = confirm(recipe, Traced(candidates=(plain,)), sandbox)
    assert found is not None
    assert found.candidates == ()
    assert "random" in (found.why or "")


def test_a_call_without_opened_images_says_so(tmp_path: Path) -> None:
    assert "neither by Pillow nor by OpenCV" in (traced(tmp_path, NONE, (3, 16, 16)).why or "")


POOLED = """
import os
from concurrent.futures import ThreadPoolExecutor
from headrace.migrate.worker.live import transform

def read():
    return 3

def answer(fails):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    transform._end_with(transform._outermost(os.path.dirname(os.path.abspath(__file__))))
    assert read() == 3  # a function within it returns, and nothing ends
    if fails:
        raise ValueError("no gray images")

with ThreadPoolExecutor(1) as pool:
    print([pool.submit(answer, fails).result() for fails in (True, False)])
"""


def test_a_fork_of_a_pools_thread_ends_with_the_function_that_it_runs(
    tmp_path: Path, warm_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Its thread would wait for more to do, and nobody is there who gives it any."""
    (tmp_path / "pooled.py").write_text(POOLED)
    done = warm_python([tmp_path / "pooled.py"], cwd=tmp_path, timeout=60)
    assert done.stdout == "[8, 8]\n", done.stderr
