import json
import warnings

import numpy as np
import torch

from headrace.runtime.formats.torchscript import FORMAT
from headrace.specs import FP32


def test_it_answers_at_any_batch_and_says_what_it_is(opened_net, answers, tmp_path):
    path = tmp_path / "net.pt"
    FORMAT.write(opened_net, FP32, path)
    extra = dict.fromkeys(("labels", "preprocessing"), "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.load(str(path), _extra_files=extra)
    assert json.loads(extra["labels"]) == ["ant", "bee", "cat", "dog", "elk"]
    assert json.loads(extra["preprocessing"])["steps"][0]["op"] == "decode"
    rows, wanted = answers
    with torch.no_grad():
        for count in (1, 3):  # it was traced with two
            (given,) = module(torch.from_numpy(rows[:count]))
            np.testing.assert_allclose(given, wanted[:count], rtol=1e-5, atol=1e-5)
    assert "no longer develops" in " ".join(FORMAT.remarks(opened_net, FP32))
