"""The statistics extension: what ensembles and decode models count, which perf_analyzer reads unchecked."""

import json
import urllib.request

from headrace.serving.batching.statistics import ModelStatistics

PARTS = {"success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"}


def _statistics(server, model):
    with urllib.request.urlopen(f"{server.url}/v2/models/{model}/stats", timeout=30) as answer:
        (entry,) = json.load(answer)["model_stats"]
    assert set(entry["inference_stats"]) == PARTS
    return entry


def test_an_image_counts_once_for_the_ensemble_its_decoder_and_its_model(server, make_photo):
    names = ("tiny", "tiny_decode", "tiny_classify")
    before = {name: _statistics(server, name) for name in names}
    request = urllib.request.Request(f"{server.url}/v2/models/tiny_classify/infer", data=make_photo(3), method="POST")
    request.add_header("Inference-Header-Content-Length", "0")
    urllib.request.urlopen(request, timeout=30).close()
    for name in names:
        after = _statistics(server, name)
        assert after["inference_count"] == before[name]["inference_count"] + 1
        assert after["execution_count"] == before[name]["execution_count"] + 1
        for part in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
            assert after["inference_stats"][part]["count"] == before[name]["inference_stats"][part]["count"] + 1, (name, part)
    decoded = _statistics(server, "tiny_decode")["inference_stats"]
    assert decoded["compute_infer"]["ns"] == decoded["success"]["ns"] > 0


def test_what_was_composed_is_all_computing():
    statistics = ModelStatistics()
    statistics.composed(3, 500)
    found = statistics.snapshot()
    assert (found["inference_count"], found["execution_count"]) == (3, 1)
    assert found["inference_stats"]["compute_infer"] == found["inference_stats"]["success"] == {"count": 1, "ns": 500}
    assert found["inference_stats"]["queue"] == {"count": 1, "ns": 0}
