import json

import numpy as np
import openvino
import pytest

from headrace.runtime.formats.openvino import FORMAT
from headrace.specs import FP16, FP32


@pytest.mark.parametrize(("precision", "most"), [(FP32, 1e-5), (FP16, 0.02)])
def test_it_answers_and_says_what_it_is(opened_net, answers, tmp_path, precision, most):
    folder = tmp_path / "out"
    folder.mkdir()
    FORMAT.write(opened_net, precision, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["net.bin", "net.xml"]
    rows, wanted = answers
    model = openvino.Core().read_model(str(folder / "net.xml"))
    assert json.loads(model.get_rt_info(["headrace", "labels"]).astype(str)) == ["ant", "bee", "cat", "dog", "elk"]
    assert json.loads(model.get_rt_info(["headrace", "preprocessing"]).astype(str))["steps"][0]["op"] == "decode"
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    (given,) = compiled([rows]).values()
    assert np.abs(given - wanted).max() <= most * np.abs(wanted).max()
    assert ("stored in fp16" in " ".join(FORMAT.remarks(opened_net, precision))) == (precision == FP16)


def test_fp16_is_smaller(opened_net, tmp_path):
    sizes = []
    for precision in (FP32, FP16):
        folder = tmp_path / str(precision)
        folder.mkdir()
        FORMAT.write(opened_net, precision, folder)
        sizes.append((folder / "net.bin").stat().st_size)
    assert sizes[1] < 0.6 * sizes[0]
