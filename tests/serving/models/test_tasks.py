"""What the outputs of a model are, from the module to the answer: one server of a model of each kind."""

import json

import httpx
import numpy as np
import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.runtime.artifact.manifest import read_manifest, write_manifest
from headrace.runtime.base.task import Task
from headrace.serving.bench.services import image_path
from headrace.serving.triton.lint import lint
from headrace.specs import CenterCrop, Preprocessing, Resize

STEPS = Preprocessing(geometry=(Resize(size=20), CenterCrop(size=(16, 16))), mean=(0.5,) * 3, std=(0.25,) * 3)
COLORS, SHAPES = ("red", "green", "blue"), ("disc", "ring", "bar", "dot")


class Body(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3)

    def forward(self, images):
        return self.conv(images).mean((2, 3))


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.color, self.shape = Body(8), nn.Linear(8, 3), nn.Linear(8, 4)

    def forward(self, images):
        features = self.body(images)
        return {"features": features, "color": self.color(features), "shape": 20 * self.shape(features)}


# Name -> the module, what its outputs are told to be, its labels.
MODELS = {
    "tags": (lambda: Body(4), "multi-label:0.45/0.5/0.55/0.5", SHAPES),
    "own_sigmoid": (lambda: nn.Sequential(Body(4), nn.Sigmoid()), "", SHAPES),
    "own_softmax": (lambda: nn.Sequential(Body(3), nn.Softmax(1)), "", COLORS),
    "heads": (Heads, "color=single-label,shape=multi-label:0.6,features=embedding", {"color": COLORS, "shape": SHAPES}),
    "vector": (lambda: Body(6), "embedding", None),
    "map": (lambda: nn.Conv2d(3, 5, 3), "", None),
    "number": (lambda: Body(1), "", None),
}


@pytest.fixture(scope="module")
def modules():
    torch.manual_seed(0)
    return {name: make().eval() for name, (make, _, _) in MODELS.items()}


@pytest.fixture(scope="module")
def models(modules, once):
    return once("tasks-models", lambda folder: _models(folder / "models", modules))


def _models(folder, modules):
    for name, (_, task, labels) in MODELS.items():
        config = GraphConfig(backend="onnxruntime", buckets=(1,), threads=1, max_tuning_seconds=0.1, task=task)
        graph = headrace.compile(modules[name], torch.randn(2, 3, 16, 16), config=config)
        graph.save(folder / name, labels=labels, preprocessing=STEPS)
    return folder


@pytest.fixture(scope="module")
def ask(models, launch, make_photo):
    with launch(models) as server:

        def answer(route, seed=0, status=200):
            found = httpx.post(f"{server.url}{route}", content=make_photo(seed), timeout=30)
            assert found.status_code == status, found.text
            return found.json()

        answer.url = server.url
        yield answer


@pytest.fixture(scope="module")
def row(make_photo):
    from headrace.serving.images.fast_preprocessing import make_preprocessor

    def of(seed=0):
        return torch.from_numpy(make_preprocessor(STEPS.to_json()["steps"])(make_photo(seed)))[None]

    return of


def test_all_labels_above_their_thresholds_are_given(modules, ask, row):
    counts = set()
    for seed in range(6):
        with torch.no_grad():
            shares = torch.sigmoid(modules["tags"](row(seed)))[0]
        holds = [index for index in shares.argsort(descending=True).tolist() if shares[index] > (0.45, 0.5, 0.55, 0.5)[index]]
        answer = ask("/v1/classify/tags?k=1", seed)  # k is of classes of which one holds
        assert answer["task"] == "multi-label"
        assert [item["index"] for item in answer["predictions"]] == holds
        assert [item["label"] for item in answer["predictions"]] == [SHAPES[index] for index in holds]
        given = [item["probability"] for item in answer["predictions"]]
        assert given == pytest.approx([float(shares[index]) for index in holds], abs=1e-4)
        counts.add(len(holds))
    assert len(counts) > 1


def test_what_the_model_computes_itself_is_not_computed_again(modules, ask, row):
    with torch.no_grad():
        shares, softmax = modules["own_sigmoid"](row())[0], modules["own_softmax"](row())[0]
    answer = ask("/v1/classify/own_sigmoid")
    assert {item["index"] for item in answer["predictions"]} == set((shares > 0.5).nonzero().flatten().tolist())
    answer = ask("/v1/classify/own_softmax?k=3")
    assert "task" not in answer
    assert answer["predictions"][0]["probability"] == pytest.approx(float(softmax.max()), abs=1e-4)


def test_every_head_answers_with_its_own_labels_and_the_vector_at_its_route(modules, ask, row):
    with torch.no_grad():
        wanted = modules["heads"](row())
    answer = ask("/v1/classify/heads?k=2")
    assert answer.keys() == {"model", "version", "heads"}
    color, shape = answer["heads"]["color"], answer["heads"]["shape"]
    assert color["predictions"][0]["label"] == COLORS[int(wanted["color"].argmax())]
    assert len(color["predictions"]) == 2
    assert {item["label"] for item in shape["predictions"]} == {
        SHAPES[index] for index in (torch.sigmoid(wanted["shape"][0]) > 0.6).nonzero().flatten().tolist()
    }
    np.testing.assert_allclose(ask("/v1/embed/heads")["embedding"], wanted["features"][0], atol=1e-4)
    assert ask("/v1/classify/heads_classify?k=2")["heads"] == answer["heads"]


def test_the_protocol_knows_the_labels_of_each_output(ask, row):
    body = {
        "inputs": [{"name": "images", "datatype": "FP32", "shape": [1, 3, 16, 16], "data": row().flatten().tolist()}],
        "outputs": [{"name": name, "parameters": {"classification": 1}} for name in ("shape", "color", "features")],
    }
    outputs = httpx.post(f"{ask.url}/v2/models/heads/infer", json=body).raise_for_status().json()["outputs"]
    names = {output["name"]: output["data"][0].split(":")[2:] for output in outputs}
    assert names["shape"][0] in SHAPES
    assert names["color"][0] in COLORS
    assert names["features"] == []


def test_a_vector_is_given_where_vectors_are(modules, ask, row):
    with torch.no_grad():
        wanted = modules["vector"](row())[0]
    np.testing.assert_allclose(ask("/v1/embed/vector?timeout_ms=30000")["embedding"], wanted, atol=1e-4)
    assert "send the image to /v1/embed/vector" in ask("/v1/classify/vector", status=501)["error"]
    assert "send the image to /v1/classify/tags" in ask("/v1/embed/tags", status=501)["error"]
    assert ask("/v1/embed/vector?k=3")["model"] == "vector"  # as any route, it does not mind what it has no use for


@pytest.mark.parametrize(("name", "said"), [("map", "output: dense map"), ("number", "output: raw numbers")])
def test_what_is_neither_says_what_it_is_and_is_given_as_tensors(ask, row, name, said):
    for route in ("classify", "embed"):
        error = ask(f"/v1/{route}/{name}", status=501)["error"]
        assert said in error
        assert f"/v2/models/{name}/infer" in error
    body = {"inputs": [{"name": name_of_input(ask, name), "datatype": "FP32", "shape": [1, 3, 16, 16]}]}
    body["inputs"][0]["data"] = row().flatten().tolist()
    (output,) = httpx.post(f"{ask.url}/v2/models/{name}/infer", json=body).raise_for_status().json()["outputs"]
    assert output["shape"] == {"map": [1, 5, 14, 14], "number": [1, 1]}[name]


def name_of_input(ask, name):
    return httpx.get(f"{ask.url}/v2/models/{name}").json()["inputs"][0]["name"]


def test_the_console_hears_what_each_model_answers(ask):
    about = {model["name"]: model for model in httpx.get(f"{ask.url}/v1/figures").json()["models"]}
    assert {name: about[name]["answers"] for name in MODELS} == {
        "tags": ["classify"], "own_sigmoid": ["classify"], "own_softmax": ["classify"], "heads": ["classify", "embed"],
        "vector": ["embed"], "map": [], "number": [],
    }  # fmt: skip
    assert about["heads_classify"]["outputs"] == {
        "features": "embedding", "color": "class scores", "shape": "multi-label scores, labels above 0.6",
    }  # fmt: skip


def test_a_manifest_of_before_there_were_tasks_is_read(models, tmp_path):
    artifact = headrace.load(models / "own_softmax").artifact
    content, _ = read_manifest(artifact.path)
    del content["task"]
    write_manifest(artifact.path, {**content, "probabilities": True})
    try:
        old = headrace.load(models / "own_softmax").artifact
        assert old.task == artifact.task
        assert old.labels.names == COLORS
        write_manifest(artifact.path, {**content, "probabilities": False})
        assert not headrace.load(models / "own_softmax").artifact.task.heads[0].probabilities
    finally:
        write_manifest(artifact.path, {**content, "task": artifact.task.to_json()})


def test_labels_and_configs_belong_to_their_outputs(models):
    artifact = headrace.load(models / "heads").artifact
    files = {output.name: output.label_filename for output in artifact.config.outputs}
    assert files == {"features": "", "color": "labels.txt", "shape": "labels_2.txt"}
    for folder in ("heads", "heads_classify"):
        assert (models / folder / "labels_2.txt").read_text().split() == list(SHAPES)
    assert Task.from_json(json.loads(json.dumps(artifact.task.to_json())), artifact.signature).primary == 1


def test_triton_reads_them_as_they_are(models):
    assert lint(models, gpus=0) == []


def test_a_benchmark_asks_where_the_model_answers(models, tmp_path):
    from headrace.errors import BenchError
    from headrace.runtime.artifact.artifact import load_artifact
    from headrace.serving.bench.config import BenchConfig

    config = BenchConfig(models=models, out=tmp_path)
    paths = {name: image_path(config, load_artifact(models / name)) for name in ("tags", "heads", "vector")}
    assert paths == {"tags": "/v1/classify/tags?k=5", "heads": "/v1/classify/heads?k=5", "vector": "/v1/embed/vector"}
    with pytest.raises(BenchError, match="dense map"):
        image_path(config, load_artifact(models / "map"))
