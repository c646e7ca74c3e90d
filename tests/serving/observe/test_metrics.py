"""What Prometheus reads, from servers in one process and in several."""

import asyncio
import json
import threading
import urllib.error
import urllib.request

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.serving.batching.statistics import FAILURES
from headrace.serving.config import ServeConfig
from headrace.serving.models.repository import ModelRepository
from headrace.serving.observe.metrics import metrics_app


@pytest.fixture(scope="module", params=[0, 1], ids=["one process", "front ends"])
def served(request, models, launch):
    with launch(models, frontends=request.param, instances=2) as server:
        yield server


def scrape(server):
    """{(series, its labels but the version): value}"""
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = [sample for family in families for sample in family.samples]
    return {(s.name, *(value for label, value in s.labels.items() if label != "version")): s.value for s in samples}


def ask(server, model, value, name="images", **parameters):
    """The status of the answer to one row of this value."""
    image = {"name": name, "datatype": "FP32", "shape": [1, 3, 16, 16], "data": [value] * 768}
    body = json.dumps({"inputs": [image], "parameters": parameters}).encode()
    try:
        with urllib.request.urlopen(f"{server.url}/v2/models/{model}/infer", body, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_failures_have_triton_s_reasons(served):
    before = scrape(served)
    assert ask(served, "fragile", 1e9) == 500
    assert ask(served, "fragile", 0.0, timeout=1) == 503
    assert ask(served, "fragile", 0.0, name="nobody") == 400
    assert ask(served, "fragile", 0.0) == 200
    after = scrape(served)
    name = "nv_inference_request_failure"
    keys = {reason: (name, "fragile", reason) for reason in FAILURES}
    assert {reason: after[key] - before[key] for reason, key in keys.items()} == {
        "BACKEND": 1, "REJECTED": 1, "OTHER": 1, "CANCELED": 0
    }  # fmt: skip
    assert all((name, model, reason) in after for model in ("tiny", "tiny_classify", "tiny_decode") for reason in FAILURES)


def test_how_busy_the_instances_are(served):
    before = scrape(served)
    for _ in range(5):
        assert ask(served, "tiny", 0.5) == 200
    after = scrape(served)
    assert after["headrace_instances", "tiny"] == 2
    busy = after["headrace_busy_seconds_total", "tiny"] - before["headrace_busy_seconds_total", "tiny"]
    # One request after the other, each was a batch, so that the parts of requests are those of batches.
    parts = [f"nv_inference_compute_{part}_duration_us" for part in ("input", "infer", "output")]
    of_requests = sum(after[part, "tiny"] - before[part, "tiny"] for part in parts) / 1e6
    assert 0 < busy == pytest.approx(of_requests, rel=1e-6)


def test_the_process_that_runs_the_models(served):
    samples = scrape(served)
    processes = [psutil.Process(served.process.pid), *psutil.Process(served.process.pid).children(recursive=True)]
    resident = [process.memory_info().rss for process in processes]
    assert any(samples[("process_resident_memory_bytes",)] == pytest.approx(one, rel=0.1) for one in resident)
    assert samples[("process_cpu_seconds_total",)] > 0
    assert samples[("process_open_fds",)] > 3


def test_no_request_waits_while_metrics_are_written(tmp_path):
    """With 300 models they are 3 MB, and all else waited two seconds for each scrape."""

    class Unhurried(ModelRepository):
        """Lists its models when the event loop has done something else meanwhile."""

        def ready_models(self):
            assert elsewhere.wait(30)
            return super().ready_models()

    elsewhere, sent = threading.Event(), []

    async def send(message):
        sent.append(message)

    async def scenario():
        app = metrics_app(Unhurried(ServeConfig.of(models=tmp_path, model_control_mode="explicit")))
        scope = {"type": "http", "path": "/metrics", "method": "GET", "headers": []}
        scrapes = [asyncio.ensure_future(app(scope, None, send)) for _ in range(3)]
        for _ in range(3):
            await asyncio.sleep(0.01)
        assert not sent
        elsewhere.set()
        await asyncio.gather(*scrapes)

    asyncio.run(scenario())
    assert [message["status"] for message in sent if message["type"] == "http.response.start"] == [200] * 3
