"""Gradients that train nothing, images that come as rows of their pixels, and inputs that are no tensors."""

import pytest
import torch

from headrace.migrate.survey import call_purposes
from headrace.migrate.survey.call_purposes import part_of_input
from headrace.migrate.survey.survey import project_index, survey

NETWORK = """
class Net(torch.nn.Module):
    def __init__(self, sizes, hidden, num_classes):
        super().__init__()
        self.first = torch.nn.Linear(sizes, hidden)
        self.last = torch.nn.Linear(hidden, num_classes)

    def forward(self, x):
        return self.last(torch.relu(self.first({given})))
"""
LOOP = """
net = Net(784, 100, 10)
net.eval()
for images, labels in loader:
    {rows}
    scores = net(images)
    hits += (scores.argmax(1) == labels).sum()
"""


def found(tmp_path, *, imports="import torchvision", rows="pass", given="x", network=NETWORK, loop=LOOP):
    text = f"import torch\n{imports}\n{network.format(given=given)}{loop.format(rows=rows)}"
    (tmp_path / "main.py").write_text(text)
    return [item.kind for item in survey(tmp_path).loops]


@pytest.mark.parametrize(
    "rows",
    [
        "images = images.view(-1, 784)",
        "images = images.reshape(-1, 28 * 28).to('cuda')",
        "images = images.view(images.size(0), -1)",
        "images = images.reshape((len(images), -1))",
        "images = images.flatten(1)",
        "images = torch.flatten(images, 1)",
    ],
)
def test_a_network_of_vectors_that_gets_flattened_images_is_a_model(tmp_path, rows):
    assert found(tmp_path, rows=rows) == ["evaluate"]


def test_one_image_may_be_flattened_by_its_transform(tmp_path):
    imports = "from torchvision import transforms\nflat = transforms.Lambda(lambda x: x.view(-1))"
    assert found(tmp_path, imports=imports) == ["evaluate"]


@pytest.mark.parametrize(
    ("imports", "rows"),
    [
        ("import torchvision", "pass"),  # nothing makes rows
        ("import gym", "images = images.view(-1, 784)"),  # no images: states of a game, say
        ("import torchvision", "images = images.view(2, 2, 7, 28)"),
    ],
)
def test_a_network_of_other_vectors_is_none(tmp_path, imports, rows):
    assert found(tmp_path, imports=imports, rows=rows) == []


def test_an_autoencoder_of_rows_is_no_model(tmp_path):
    network = NETWORK.replace("self.last", "self.decoder")
    assert found(tmp_path, rows="images = images.view(-1, 784)", network=network) == []


def test_a_regressor_that_makes_its_own_rows_says_nothing_of_images(tmp_path):
    other = NETWORK.replace("class Net", "class Other").format(given="x.view(-1, 4)")
    assert found(tmp_path, network=NETWORK + other.replace("{", "{{").replace("}", "}}")) == []


GIVEN = """
@torch.no_grad()
def classify(model, {parameter}, loader=()):
    model.eval()
    {before}
    scores = model({given})
    {after}
    return scores
"""


def part_read(tmp_path, parameter="data", before="pass", given="data", after="pass"):
    text = GIVEN.format(parameter=parameter, before=before, given=given, after=after)
    (tmp_path / "main.py").write_text(f"import torch\n{text}")
    (site,) = project_index(survey(tmp_path)).sites
    return part_of_input(site.module, site.function, site.call.args[0])


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ({"after": "hits = scores[data.train_mask] == data.y"}, "data.train_mask"),
        ({"before": "labels = batch['label']", "parameter": "batch", "given": "batch"}, "batch['label']"),
        ({"before": "other.y = None\n    data = other.to('cuda')", "parameter": "other"}, "other.y"),
        ({"before": "data = data.to('cuda')", "after": "print(data.edge_index)"}, "data.edge_index"),
        ({"given": "data.to('cuda')", "after": "print(data.num_graphs)"}, "data.num_graphs"),
        # A tensor's own, and other things of the same name.
        ({"after": "print(data.shape, data.is_cuda, data.size(0), data[0], data[:, 1])"}, None),
        ({"before": "print(data.width)\n    data = transform(data)", "after": "print(data.ndim)"}, None),
        ({"after": "data = load()\n    print(data.width)"}, None),
        ({"before": "images = data.images", "given": "images"}, None),
        ({"given": "data['image']", "after": "print(data['label'])"}, None),
    ],
)
def test_what_no_tensor_has_is_read_of_an_object(tmp_path, code, part):
    assert part_read(tmp_path, **code) == part


def test_what_tensors_have_is_known():
    plain = [name for name in dir(torch.Tensor) if not name.startswith("_") and not callable(getattr(torch.Tensor, name, None))]
    assert {name for name in plain if not name.startswith("is_")} <= call_purposes._OF_TENSORS


HELD = """
from __future__ import annotations
import torch
import openvino as ov
from openvino import CompiledModel

class One:
    {declared}

    def predict(self, images):
        return torch.from_numpy(self.model(images)[0])

class Two:
    def __init__(self, net: torch.nn.Module):
        self.model = net

    def predict(self, images):
        return self.model(images)

def run({parameter}, images):
    return model(images)[0]
"""


@pytest.mark.parametrize(
    "declared",
    [
        "model: CompiledModel",
        "model: ov.CompiledModel | None = None",
        "@property\n    def model(self) -> 'ov.CompiledModel':\n        return self._model",
        "def load(self, path):\n        self.model: CompiledModel = ov.Core().compile_model(path)",
    ],
)
def test_what_is_said_to_be_another_runtimes_is_no_network(tmp_path, declared):
    (tmp_path / "main.py").write_text(HELD.format(declared=declared, parameter="model: ov.CompiledModel"))
    (loop,) = survey(tmp_path).loops
    assert loop.function == "Two.predict"


def test_what_nobody_says_anything_of_is_judged_by_its_name(tmp_path):
    (tmp_path / "main.py").write_text(HELD.format(declared="model = None", parameter="model: torch.nn.Module"))
    assert [loop.function for loop in survey(tmp_path).loops] == ["One.predict", "Two.predict", "run"]


CONVOLUTIONS = """
import torch.nn.functional as F
class Red(torch.nn.Module):
    def __init__(self, {count}):
        super().__init__()
        self.first = torch.nn.Conv2d(1, 8, 3)
        self.last = torch.nn.Linear(8, {count})

    def forward(self, x):
        return self.last(self.first(x).mean((2, 3)))

red = Red(40)
red.eval()
for image in images:
    answer = red(image)
    {asked}
"""


@pytest.mark.parametrize(
    "asked",
    [
        "F.softmax(answer, dim=1)",
        "torch.nn.Softmax(dim=1)(answer)",
        "answer.argmax(1)",
        "_, best = torch.max(answer.data, 1)",
        "answer.topk(5)",
        "torch.softmax(red(image), 1)",
    ],
)
def test_a_network_whose_answers_are_ranked_gives_classes_however_their_count_is_called(tmp_path, asked):
    """The count has words of any language: `Linear(8, salida)`."""
    (tmp_path / "main.py").write_text("import torch\n" + CONVOLUTIONS.format(count="salida_dim", asked=asked))
    assert {item.model for item in survey(tmp_path).loops} == {"red"}


@pytest.mark.parametrize(
    ("answers", "found"),
    [("self.last(x)[:, :, 0, 0]", True), ("self.last(x).flatten(1)", True), ("self.last(x)", False)],
)
def test_a_ranked_network_may_end_in_a_convolution_but_not_in_one_answer_for_each_pixel(tmp_path, answers, found):
    (tmp_path / "main.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.last = torch.nn.Conv2d(3, 4, 3)\n"
        f"    def forward(self, x):\n        return {answers}\n"
        "red = Net()\nfor image in images:\n    print(red(image).argmax(1))\n"
    )
    assert bool(survey(tmp_path).loops) is found


@pytest.mark.parametrize("asked", ["answer.norm()", "torch.max(answer)", "other.argmax(1)", "F.normalize(answer, dim=1)"])
def test_a_network_whose_answers_nothing_ranks_is_told_by_its_layers_alone(tmp_path, asked):
    (tmp_path / "main.py").write_text("import torch\n" + CONVOLUTIONS.format(count="salida_dim", asked=asked))
    assert survey(tmp_path).loops == ()


@pytest.mark.parametrize(
    ("loop", "given"),
    [
        ("for path in folder.glob('*.png'):", "str(path)"),
        ("for path in tqdm(sorted(os.listdir(folder)), desc='x'):", "path"),
        ("for name in names:", "f'{folder}/{name}'"),
        ("for name in names:", "os.path.join(folder, name)"),
        ("for name in names:\n    file = Path(folder, name)", "file"),
    ],
)
def test_what_opens_files_itself_is_no_network_of_tensors(tmp_path, loop, given):
    """A detector of torch.hub's is given paths, and what it answers is no tensor either."""
    source = "import os, torch\nfrom pathlib import Path\nmodel = torch.hub.load('a/b', 'c')\nmodel.eval()\n"
    (tmp_path / "main.py").write_text(f"{source}{loop}\n    found = model({given})\n    print(found.xyxy[0])\n")
    assert survey(tmp_path).loops == ()


@pytest.mark.parametrize(
    "loop",
    [
        "for path in folder.glob('*.png'):\n    image = load(path)",
        "for path, image in zip(os.listdir(folder), images):",
        "for image in map(load, os.listdir(folder)):",
        "for inputs in loader:\n    image = inputs.to(device)",
        "for path in os.listdir(folder):\n    image = stretched(path)",
    ],
)
def test_an_image_that_was_opened_from_a_file_is_no_text(tmp_path, loop):
    (tmp_path / "main.py").write_text(f"import os, torch\nmodel.eval()\n{loop}\n    print(model(image))\n")
    assert [item.inputs for item in survey(tmp_path).loops] == ["image"]
