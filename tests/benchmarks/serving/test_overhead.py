"""The cost of serving, measured from end to end on a model that costs nothing."""

import io
import json

import psutil
import pytest
from rich.console import Console

from headrace.errors import AmbiguousError, BenchError
from headrace.runtime.artifact.artifact import load_artifact
from tests.benchmarks.serving import bare_loop, overhead
from tests.benchmarks.serving.overhead import OverheadConfig, measure


@pytest.fixture
def images(tmp_path, make_photo):
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(5):
        (folder / f"{seed}.jpg").write_bytes(make_photo(seed, (60, 50), "JPEG"))
    return folder


def processes():
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.mark.slow  # that services are started, loaded and compared: the next test, and tests/serving/bench
def test_both_pairs_are_measured_in_turn(models, images, tmp_path, monkeypatch):
    before = processes()
    out = tmp_path / "out.json"
    arguments = [
        str(models),
        "--model",
        "tiny",
        "--images",
        str(images),
        "--folder",
        str(tmp_path / "scratch"),
        "--out",
        str(out),
    ]
    said = io.StringIO()
    monkeypatch.setattr(overhead, "Console", lambda **_: Console(file=said, width=140))
    arguments += ["--rounds", "2", "--seconds", "0.3", "--warm-up", "0.1", "--connections", "3", "--trial-seconds", "0.05"]
    assert overhead.main(arguments) == 0, said.getvalue()
    assert processes() <= before
    result = json.loads(out.read_text())
    assert result["command"] == "make bench-serving"
    assert set(result["pairs"]) == {"decode and session", "echo of 60 kB"}
    for found in result["pairs"].values():
        assert [len(rates) for rates in found["rounds"].values()] == [2, 2]
        ratios = [served / bare for served, bare in zip(found["rounds"]["served"], found["rounds"]["bare"], strict=True)]
        assert found["ratio_least"] == pytest.approx(min(ratios), abs=0.002)
        assert found["ratio_least"] <= found["ratio"] <= found["ratio_most"]
        assert all(rate > 0 for rates in found["rounds"].values() for rate in rates)
    assert "decode and session" in said.getvalue()


def test_an_error_is_no_answer(models, images, tmp_path):
    """A service that answers errors quickly must not look fast."""
    (images / "bad.jpg").write_bytes(b"no image")
    config = OverheadConfig(
        models=models, folder=tmp_path / "scratch", model="tiny", images=(images,), rounds=1, seconds=0.2, warm_up_seconds=0.1
    )
    with pytest.raises(BenchError, match="not an image"):
        measure(config, Console(file=io.StringIO()))


def test_the_loop_computes_every_image(models, make_photo):
    artifact = load_artifact(models / "tiny", trusted=True)
    photos = [make_photo(seed, (60, 50), "JPEG") for seed in range(3)]
    seen = []
    with bare_loop.ThreadPoolExecutor(2) as pool:
        loop = bare_loop.Loop(artifact, photos, rows=4, sessions=1, pool=pool)
        run = loop.sessions[0].run
        loop.sessions[0].run = lambda inputs: seen.append(inputs[0]) or run(inputs)
        assert loop.run(0.2) > 0
        loop.close()
    rows = [bare_loop.decode_rows(loop._preprocessor, [photo], (3, 16, 16))[0] for photo in photos]
    for number, row in enumerate(row for batch in seen for row in batch):
        assert (row == rows[number % 3]).all()


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"seconds": 0}, {"connections": 0}, {"warm_up_seconds": -1}])
def test_settings_that_make_no_sense(wrong, tmp_path):
    with pytest.raises(ValueError, match="must be at least 1"):
        OverheadConfig(models=tmp_path, folder=tmp_path, **wrong)


def test_a_model_has_to_be_named_where_there_are_several(models, tmp_path):
    with pytest.raises(AmbiguousError, match="--model"):
        measure(OverheadConfig(models=models, folder=tmp_path), Console(file=io.StringIO()))
