import json

import numpy as np
import pytest
import torch

from headrace.runtime.formats.pt2 import FORMAT
from headrace.specs import BF16, FP32


@pytest.mark.parametrize(("precision", "most"), [(FP32, 1e-5), (BF16, 0.05)])
def test_it_answers_and_says_what_it_is(opened_net, answers, tmp_path, precision, most):
    path = tmp_path / "net.pt2"
    FORMAT.write(opened_net, precision, path)
    extra = dict.fromkeys(("labels", "preprocessing", "precision"), "")
    program = torch.export.load(path, extra_files=extra)
    assert json.loads(extra["labels"]) == ["ant", "bee", "cat", "dog", "elk"]
    assert json.loads(extra["preprocessing"])["steps"][0]["op"] == "decode"
    assert extra["precision"] == str(precision)
    rows, wanted = answers
    with torch.no_grad():
        (given,) = program.module()(torch.from_numpy(rows))
    assert np.abs(given.numpy() - wanted).max() <= most * np.abs(wanted).max()
    assert str(tmp_path).encode() not in path.read_bytes()
