"""The folder as Triton takes it; tests/serving/triton runs such folders by Triton itself where it is installed."""

import numpy as np
import onnxruntime

from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.formats.triton import FORMAT
from headrace.serving.triton.lint import lint
from headrace.specs import FP32


def test_it_answers_and_lint_finds_nothing_that_triton_would_refuse(opened_net, answers, tmp_path):
    models = tmp_path / "models"
    models.mkdir()
    FORMAT.write(opened_net, FP32, models)
    assert sorted(path.name for path in models.iterdir()) == ["net", "net_classify", "net_decode"]
    rows, wanted = answers
    session = onnxruntime.InferenceSession(str(models / "net" / "1" / "model.onnx"))
    (given,) = session.run(None, {session.get_inputs()[0].name: rows})
    np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-5)
    assert (models / "net" / "labels.txt").read_text().split() == ["ant", "bee", "cat", "dog", "elk"]
    assert [finding for finding in lint(models) if finding.severity == "error"] == []
    written = load_artifact(models / "net")
    assert (written.task, written.preprocessing) == (opened_net.artifact.task, opened_net.artifact.preprocessing)
