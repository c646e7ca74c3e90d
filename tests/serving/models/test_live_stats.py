"""The figures behind the console: what requests change in them, in one process and summed over several."""

import json
import time
import urllib.error
import urllib.request
from itertools import pairwise

import pytest

from headrace.serving.batching.statistics import LATENCY_BOUNDS, BatchTimes, ModelStatistics


def _get(server, path, data=None):
    with urllib.request.urlopen(urllib.request.Request(server.url + path, data=data), timeout=30) as answer:
        return json.load(answer)


def _figures(server) -> dict[str, dict]:
    return {model["name"]: model for model in _get(server, "/v1/figures")["models"]}


def test_bounds_grow_by_a_quarter_or_so():
    assert (LATENCY_BOUNDS[0], LATENCY_BOUNDS[-1]) == (0.0001, 100.0)
    for low, high in pairwise(LATENCY_BOUNDS):
        assert 1.2 < high / low < 1.3


def test_every_way_of_answering_has_its_latency():
    statistics = ModelStatistics()
    statistics.batch_done(BatchTimes(2, 1, 1, 1), [(5_000_000, 0, 1.0), (5_000_001, 0, 1.0)])
    statistics.composed(1, 200_000_000_000)
    statistics.cached(0)
    statistics.failed(7, "OTHER")
    counts, seconds = statistics.latency_histogram()
    assert len(counts) == len(LATENCY_BOUNDS) + 1
    assert {index: count for index, count in enumerate(counts) if count} == {
        0: 1,
        LATENCY_BOUNDS.index(0.005): 1,
        LATENCY_BOUNDS.index(0.0063): 1,
        len(LATENCY_BOUNDS): 1,
    }
    assert seconds == pytest.approx(200.010000001)


@pytest.mark.parametrize("frontends", [0, 2])
def test_figures_move_with_requests(models, launch, make_photo, frontends):
    with launch(models, frontends=frontends, response_cache_bytes=1 << 20) as server:
        whole = _get(server, "/v1/figures")
        assert (whole["ready"], whole["model_control_mode"], whole["front_ends"]) == (True, "none", frontends)
        assert whole["latency_bounds"] == list(LATENCY_BOUNDS)
        assert abs(whole["time"] - time.time()) < 60
        before = _figures(server)
        assert {name: model["kind"] for name, model in before.items()} == {
            "tiny": "tensor", "tiny_decode": "decode", "tiny_classify": "classify",
            "fragile": "tensor", "fragile_decode": "decode", "fragile_classify": "classify",
        }  # fmt: skip
        assert before["tiny"]["answers"] == ["classify"]
        assert before["tiny_classify"]["outputs"] == {"scores": "class scores"}
        assert (before["tiny"]["largest_batch"], before["tiny_classify"]["largest_batch"]) == (8, None)
        for seed in (1, 2, 3):
            _get(server, "/v1/classify/tiny_classify", make_photo(seed))
        with pytest.raises(urllib.error.HTTPError):
            _get(server, "/v1/classify/tiny", b"no image")
        after, end = _figures(server), time.monotonic() + 60
        while after["tiny"]["failed"] == before["tiny"]["failed"] and time.monotonic() < end:
            after = _figures(server)  # what front ends count reaches the engine a moment later
        for name in ("tiny", "tiny_classify", "tiny_decode"):
            assert after[name]["answered"] == before[name]["answered"] + 3
            assert sum(after[name]["latencies"]) == after[name]["answered"]
            assert after[name]["seconds"] > before[name]["seconds"]
        assert after["tiny"]["failed"] == before["tiny"]["failed"] + 1
        assert sum(after["tiny"]["batches"].values()) == after["tiny"]["executions"] == before["tiny"]["executions"] + 3
        assert after["tiny"]["queue"] == {"arriving": 0, "queued": 0, "running": 0}
        assert after["tiny_classify"]["queue"] is None
        end = time.monotonic() + 60
        while not after["tiny"]["cache_hits"]:  # each front end has a cache of its own
            assert time.monotonic() < end
            _get(server, "/v1/classify/tiny", make_photo(1))
            after = _figures(server)
        with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=30) as scraped:
            lines = dict(line.rsplit(" ", 1) for line in scraped.read().decode().splitlines() if not line.startswith("#"))
        labels = 'model="tiny",version="1"'
        assert float(lines[f"headrace_request_latency_seconds_count{{{labels}}}"]) == after["tiny"]["answered"]
        assert float(lines[f'headrace_request_latency_seconds_bucket{{le="100.0",{labels}}}']) == after["tiny"]["answered"]
        assert float(lines[f"headrace_request_latency_seconds_sum{{{labels}}}"]) == pytest.approx(after["tiny"]["seconds"])


def test_the_queue_while_requests_wait(slow_models, launch, make_photo):
    from concurrent.futures import ThreadPoolExecutor

    with launch(slow_models) as server, ThreadPoolExecutor(24) as pool:
        calls = [pool.submit(_get, server, "/v1/classify/slow", make_photo(seed)) for seed in range(24)]
        seen = []
        while not all(call.done() for call in calls):
            seen.append(_figures(server)["slow"]["queue"])
        assert max(queue["running"] for queue in seen) > 0
        assert max(queue["queued"] + queue["arriving"] for queue in seen) > 0
        assert all(call.result()["predictions"] for call in calls)
        assert _figures(server)["slow"]["queue"] == {"arriving": 0, "queued": 0, "running": 0}
