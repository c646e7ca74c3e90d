"""Measuring, from end to end, on a model that costs nothing: the shares and order of things, not their values."""

import json
import math

import psutil
import pytest

from headrace.errors import BenchError
from headrace.serving.config import ServeConfig
from headrace.serving.models.loading import load_tensor_model
from headrace.serving.models.models import TensorModel
from tests.benchmarks.scale.__main__ import main
from tests.benchmarks.scale.hollow import emptied
from tests.benchmarks.scale.stages import read
from tests.benchmarks.scale.summary import server_profile

pytestmark = pytest.mark.slow


@pytest.fixture
def images(tmp_path, make_photo):
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(5):
        (folder / f"{seed}.jpg").write_bytes(make_photo(seed, (60, 50), "JPEG"))
    return folder


def test_stages_and_server_are_measured_and_simulated(models, images, tmp_path, capsys):
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    out = tmp_path / "stages.json"
    arguments = ["measure", str(models), "--model", "tiny", "--images", str(images), "--out", str(out)]
    arguments += ["--rounds", "2", "--seconds", "0.5", "--stage-seconds", "0.8", "--connections", "1", "4"]
    assert main(arguments) == 0, capsys.readouterr().err
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    data = json.loads(out.read_text())
    assert data["command"] == " ".join(["python -m tests.benchmarks.scale", *arguments])
    stages, served = data["stages"], data["served"]
    assert set(stages["batch"]) == set(stages["profile_ms"])
    assert all(one["samples"] >= 2 for one in stages["batch"].values())
    assert stages["decode"]["mean_ms"] > 0
    assert stages["handling_us"] > 20
    assert stages["together"][0] == 1.0
    assert len(stages["beside"]) == len(stages["together"])
    assert all(0 < speed < math.inf for pair in stages["beside"] for speed in pair)
    assert [run["connections"] for run in served["closed"]] == [1, 4]
    most = max(run["requests_per_second"]["median"] for run in served["closed"])
    easy, overload = served["open"]
    assert easy["rate"] < most < overload["rate"]
    assert overload["requests_per_second"]["median"] > 0
    recorded = read(out)
    assert recorded.spec.batch.keys() == recorded.spec.table.keys()
    main(["validate", "--stages", str(out), "--seconds", "1"])
    assert "at a time" in capsys.readouterr().out


def test_a_model_that_takes_no_images_has_no_stages(models, images, tmp_path, capsys):
    assert main(["measure", str(models), "--model", "nobody", "--images", str(images), "--out", str(tmp_path / "x.json")]) == 2
    assert not (tmp_path / "x.json").exists()
    assert "nobody" in capsys.readouterr().err


def test_a_hollow_model_answers_without_its_model(models):
    model = load_tensor_model(models / "tiny", ServeConfig.of(models=models, instances=1, threads=1), print, version=1)
    hollow = emptied(model)
    assert isinstance(hollow, TensorModel)
    try:
        ticket = hollow.batcher.admit(1, timeout=60.0)
        with hollow.batcher.slot(ticket) as slot:
            assert hollow.preprocessor(b"no image at all", slot[0][0]) is not None
            hollow.batcher.submit(ticket, [slot[0]])
        (scores,) = ticket.future.result(timeout=60.0)
        assert scores.shape == (1, 7)
        assert not scores.any()
    finally:
        hollow.close()
        model.close()


def test_the_profile_is_what_the_server_says():
    log = "x: loading\ntiny: version 1 is ready, 2 instances, batch 1 0.52 ms, batch 8 1.2e+01 ms\n"
    assert server_profile(log, "tiny") == (2, {"1": 0.52, "8": 12.0})
    with pytest.raises(BenchError, match="did not say"):
        server_profile(log, "other")
