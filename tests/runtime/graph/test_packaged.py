"""A packaged model is used where it has the module's very weights and computes what the module computes, and only there."""

import json
import logging
import os
import shutil
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.runtime.artifact.artifact import Artifact
from headrace.runtime.artifact.manifest import MANIFEST
from headrace.runtime.graph.loaded import LoadedGraph
from headrace.runtime.graph.packaged import find_packaged, packages_of, weights_digest
from headrace.runtime.inspect.journal import Journal

CONFIG = GraphConfig(backend="onnxruntime", buckets=(1, 4), threads=1, max_tuning_seconds=1)


class Net(nn.Module):
    def __init__(self, sign=1.0):
        super().__init__()
        self.sign = sign
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.sign * self.head(self.body(x).mean((2, 3)))


class Named(Net):
    def forward(self, x):
        return types.SimpleNamespace(logits=super().forward(x))


@pytest.fixture(scope="module")
def packaged(tmp_path_factory):
    torch.manual_seed(0)
    model = Net().eval()
    models = tmp_path_factory.mktemp("near") / "models"
    headrace.compile(model, torch.randn(2, 3, 9, 9), config=CONFIG).save(models / "net")
    return model, models


@pytest.fixture
def near(packaged, monkeypatch):
    monkeypatch.setenv("HEADRACE_MODELS", str(packaged[1]))
    return packaged[0]


def look(model, rows=3):
    images = torch.randn(rows, 3, 9, 9)
    with torch.no_grad():
        found = find_packaged(packages_of(model), [images], model, model, Journal("test"))
        if found is not None:
            torch.testing.assert_close(found[1], model(images), msg="what the model itself answers")
        return images, found and found[0]


def same_weights(model, **options):
    other = Net(**options).eval()
    other.load_state_dict(model.state_dict())
    return other


@pytest.mark.parametrize("rows", [1, 3, 9])
def test_the_same_weights_are_found(near, rows):
    images, found = look(same_weights(near), rows)
    with torch.no_grad():
        torch.testing.assert_close(found(images), near(images), rtol=1e-4, atol=1e-5)


def test_a_wrapper_has_the_same_weights(near):
    assert weights_digest([nn.Sequential(same_weights(near))]) == weights_digest([near])
    _, found = look(nn.Sequential(same_weights(near)).eval())
    assert found is not None


@pytest.mark.parametrize("change", ["head.bias", "body.1.running_var"])
def test_one_value_of_another_is_another_model(near, change):
    other = same_weights(near)
    other.state_dict()[change].view(-1)[0] += 1e-6
    assert look(other)[1] is None


def test_the_same_weights_in_another_program_are_told_and_not_used(near, caplog):
    with caplog.at_level(logging.WARNING):
        assert look(same_weights(near, sign=-1.0))[1] is None
    assert "is not used" in caplog.text


class Dark(Net):
    """Answers black images otherwise, which none of a script's first batch is."""

    def forward(self, x):
        return super().forward(x) + (x.amax((1, 2, 3)) < -1)[:, None].float()


class Checking(Net):
    def forward(self, x):
        if len(x) != 3:
            raise ValueError("three images, please")
        return super().forward(x)


def test_a_program_that_differs_on_rare_inputs_alone_is_not_used(near, caplog):
    other = Dark().eval()
    other.load_state_dict(near.state_dict())
    with caplog.at_level(logging.WARNING):
        assert look(other)[1] is None
    assert "is not used: on inputs that are rare output 0 differs by" in caplog.text


def test_a_package_that_differs_in_batches_of_another_size_is_not_used(near, caplog, monkeypatch):
    right = LoadedGraph.__call__
    monkeypatch.setattr(LoadedGraph, "__call__", lambda self, x: right(self, x) + float(len(x) == 1))
    with caplog.at_level(logging.WARNING):
        assert look(same_weights(near))[1] is None
    assert "for one row alone output 0 differs by" in caplog.text


def test_a_model_that_does_not_take_rare_inputs_is_compared_on_its_own(near):
    other = Checking().eval()
    other.load_state_dict(near.state_dict())
    assert look(other)[1] is not None


def test_outputs_that_are_put_together_otherwise_are_not_given(near, caplog):
    other = Named().eval()
    other.load_state_dict(near.state_dict())
    assert look(other)[1] is None
    assert "SimpleNamespace" in caplog.text


def test_a_damaged_package_is_told_and_not_used(packaged, tmp_path, monkeypatch, caplog):
    model, models = packaged
    copy = tmp_path / "models" / "net"
    for path in (models / "net").rglob("*"):
        if path.is_file():
            target = copy / path.relative_to(models / "net")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    graph = next(copy.rglob("model.onnx"))
    graph.write_bytes(graph.read_bytes()[:-1] + b"?")
    monkeypatch.setenv("HEADRACE_MODELS", str(tmp_path / "models"))
    assert look(model)[1] is None
    assert "model.onnx" in caplog.text


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"provenance": []}', b"[" * 100_000])
def test_what_is_no_record_is_passed_over(tmp_path, monkeypatch, content, near):
    (tmp_path / "models" / "net" / "1").mkdir(parents=True)
    (tmp_path / "models" / "net" / "1" / MANIFEST).write_bytes(content)
    (tmp_path / "models" / "file").write_bytes(b"")
    monkeypatch.setenv("HEADRACE_MODELS", str(tmp_path / "models"))
    assert look(near)[1] is None


@pytest.mark.parametrize("place", ["models", "model_repository", ".headrace/models"])
@pytest.mark.parametrize("script", ["evaluate.py", "tools/deep/evaluate.py"])
def test_it_is_looked_for_beside_the_script_and_above(packaged, tmp_path, monkeypatch, place, script):
    model, models = packaged
    monkeypatch.delenv("HEADRACE_MODELS", raising=False)
    monkeypatch.chdir(tmp_path.parent)
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).symlink_to(models)
    main = types.ModuleType("__main__")
    main.__file__ = str(tmp_path / script)
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert look(model)[1] is not None


def test_what_has_no_values_has_no_digest():
    assert weights_digest([nn.LazyLinear(3)]) is None
    with torch.device("meta"):
        assert weights_digest([nn.Linear(2, 2)]) is None
    half = nn.Linear(2, 2).bfloat16()
    assert weights_digest([half]) != weights_digest([nn.Linear(2, 2)])


def test_conjugate_values_have_a_digest():
    def model(value):
        made = nn.Module()
        made.register_buffer("phases", value)
        return made

    phases = torch.tensor([1 + 2j, 3j])
    assert weights_digest([model(phases.conj())]) == weights_digest([model(phases.conj().resolve_conj())])
    assert weights_digest([model(phases.conj())]) != weights_digest([model(phases)])
    assert weights_digest([model(phases.conj().imag)]) == weights_digest([model(torch.tensor([-2.0, -3.0]))])


def test_saving_records_it(packaged):
    model, models = packaged
    record = json.loads((models / "net" / "1" / MANIFEST).read_text())
    assert record["provenance"]["weights"] == weights_digest([model])
    assert np.isfinite(record["answers"]["values"]).all()


class Mapping(Net):
    def forward(self, x):
        return {"scores": super().forward(x)}


def test_outputs_are_put_together_as_the_models_are(tmp_path, monkeypatch):
    model = Mapping().eval()
    headrace.compile(model, torch.randn(2, 3, 9, 9), config=CONFIG).save(tmp_path / "models" / "net")
    monkeypatch.setenv("HEADRACE_MODELS", str(tmp_path / "models"))
    images, found = look(model)
    with torch.no_grad():
        torch.testing.assert_close(found(images)["scores"], model(images)["scores"], rtol=1e-4, atol=1e-5)


def test_the_plan_is_the_lossless_one(near, monkeypatch):
    """A package that was compiled for speed answers a script in fp32 all the same."""
    plans, made = [], LoadedGraph.__init__

    def noted(self, *given, **more):
        plans.append(more["plan"])
        made(self, *given, **more)

    monkeypatch.setattr(LoadedGraph, "__init__", noted)
    assert look(same_weights(near))[1] is not None
    (plan,) = plans
    assert not any(choice.precision.lossy for choice in plan.choices.values())


def test_a_package_for_another_device_is_passed_over_and_the_next_one_taken(packaged, tmp_path, monkeypatch):
    model, models = packaged
    places = [tmp_path / "first", tmp_path / "second"]
    for place in places:
        shutil.copytree(models, place)
    monkeypatch.setenv("HEADRACE_MODELS", os.pathsep.join(map(str, places)))
    right = Artifact.lossless_plan

    def elsewhere(self):
        plan = right(self)
        return replace(plan, device="cuda") if places[0] in self.path.parents else plan

    monkeypatch.setattr(Artifact, "lossless_plan", elsewhere)
    _, found = look(same_weights(model))
    assert found is not None
    assert places[1] in found.artifact.path.parents


def test_several_folders_may_be_named(near, packaged, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_MODELS", os.pathsep.join([str(tmp_path / "none"), "", str(packaged[1])]))
    assert look(same_weights(near))[1] is not None


def test_a_process_without_a_script_looks_beside_where_it_is(near, packaged, tmp_path, monkeypatch):
    monkeypatch.delenv("HEADRACE_MODELS")
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    monkeypatch.chdir(packaged[1].parent)
    assert look(same_weights(near))[1] is not None
    (tmp_path / "a" / "b" / "c" / "d").mkdir(parents=True)
    (tmp_path / "models").symlink_to(packaged[1])
    for place, found in (("a/b/c", True), ("a/b/c/d", False)):  # three folders above, and no more
        monkeypatch.chdir(tmp_path / place)
        assert (look(same_weights(near))[1] is not None) == found
