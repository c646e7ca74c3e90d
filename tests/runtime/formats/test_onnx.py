import json
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from headrace.errors import BackendError
from headrace.runtime.base.calibration import Calibration
from headrace.runtime.formats.onnx import FORMAT
from headrace.specs import BF16, FP32, INT8, Preprocessing


def test_it_answers_and_says_what_it_is(opened_net, answers, tmp_path):
    path = tmp_path / "net.onnx"
    FORMAT.write(opened_net, FP32, path)
    rows, wanted = answers
    session = onnxruntime.InferenceSession(str(path))
    (given,) = session.run(None, {session.get_inputs()[0].name: rows})
    np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-5)
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["labels"]) == ["ant", "bee", "cat", "dog", "elk"]
    assert Preprocessing.from_json(json.loads(about["preprocessing"])) == opened_net.artifact.preprocessing
    assert (about["model"], about["version"], about["precision"]) == ("net", "1", "fp32")


def test_int8_takes_its_ranges_from_images(opened_net, answers, images, tmp_path):
    with pytest.raises(BackendError, match="give --images DIR"):
        FORMAT.write(opened_net, INT8, tmp_path / "net.onnx")
    FORMAT.write(replace(opened_net, calibration=Calibration([images])), INT8, tmp_path / "net.onnx")
    rows, wanted = answers
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
    (given,) = session.run(None, {session.get_inputs()[0].name: rows})
    assert 0 < np.abs(given - wanted).max() < 0.2 * np.abs(wanted).max()


def test_other_precisions_are_refused():
    with pytest.raises(BackendError, match="onnx is not written in bf16; there are fp32, int8"):
        FORMAT.check(BF16)
