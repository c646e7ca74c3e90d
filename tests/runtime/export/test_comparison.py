import functools
import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from headrace.cli import app
from headrace.errors import ArtifactError, BackendError
from headrace.runtime.export import comparison
from headrace.runtime.export.comparison import compare_forms

LABELS = ["ant", "bee", "cat", "dog", "elk"]


@pytest.fixture
def photos(tmp_path):
    random = np.random.default_rng(0)
    for index in range(100):
        path = tmp_path / "photos" / LABELS[index % 5] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.clip(random.integers(0, 255, 3) + random.normal(0, 20, (20, 24, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(path)
    return tmp_path / "photos"


def test_forms_beside_each_other(packaged_net, photos):
    only = ("onnxruntime", "openvino", "eager", "torchscript")
    found = compare_forms(packaged_net, images=photos, only=only, batches=(1, 4), seconds=0.1)
    forms = {form.name: form for form in found.forms}
    for name in ("onnxruntime fp32", "onnxruntime int8", "openvino fp32", "eager fp32", "torchscript fp32"):
        form = forms[name]
        assert form.why == "", form
        assert set(form.times_ms) <= {1, 4}
        assert form.latency_ms > 0
        assert form.throughput == pytest.approx(1000 * form.best_batch / form.times_ms[form.best_batch])
        assert form.bytes > 1000
        assert form.load_seconds > 0
        assert form.memory_mb >= 0
        assert 0.0 <= form.accuracy <= 1.0
    assert forms["eager fp32"].agreement == forms["openvino fp32"].agreement == 1.0
    assert 0.8 < forms["onnxruntime int8"].agreement <= 1.0
    assert forms["onnxruntime fp32"].planned  # it was packaged so
    assert forms["eager fp32"].planned == ()
    assert found.metric == "accuracy"
    assert found.counted_on.endswith("images, with eager fp32")
    ranks = [form.throughput for form in found.forms if not form.why]
    assert ranks == sorted(ranks, reverse=True)
    assert any("the plan takes onnxruntime fp32" in line for line in found.plan)
    assert json.loads(json.dumps(found.to_json()))["forms"][0]["name"] == found.forms[0].name


def test_without_images_int8_says_what_it_needs_and_agreement_is_on_noise(packaged_net):
    found = compare_forms(packaged_net, only=("onnxruntime",), batches=(1,), seconds=0.2)
    forms = {form.name: form for form in found.forms}
    assert "images" in forms["onnxruntime int8"].why
    assert forms["onnxruntime int8"].times_ms == {}
    assert forms["onnxruntime fp32"].accuracy is None
    assert "rows of noise" in found.counted_on
    assert "since eager fp32 does not run here" in found.counted_on


def test_where_nothing_runs_it_says_why(packaged_net):
    with pytest.raises(BackendError, match="nothing here runs net"):
        compare_forms(packaged_net, only=("tensorrt",), batches=(1,))


def test_the_command_prints_the_table_and_keeps_the_figures(packaged_net, tmp_path, monkeypatch):
    quick = functools.partial(compare_forms, only=("onnxruntime",), batches=(1,), seconds=0.2)
    monkeypatch.setattr(comparison, "compare_forms", quick)
    out = tmp_path / "figures"
    done = CliRunner().invoke(app, ["bench", str(packaged_net.parent), "--formats", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "onnxruntime fp32" in done.output
    assert "agreement is counted on" in done.output
    found = json.loads((out / "formats.json").read_text())
    assert {form["name"] for form in found["forms"]} == {"onnxruntime fp32", "onnxruntime int8"}
    assert found["machine"]["cores"] >= 1
    done = CliRunner().invoke(app, ["bench", str(tmp_path / "none"), "--formats"])
    assert isinstance(done.exception, ArtifactError)
