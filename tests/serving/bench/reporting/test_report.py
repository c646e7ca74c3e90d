"""A benchmark's result: medians and ratios, the table, the plot."""

import io
import json
from dataclasses import replace

import pytest
from PIL import Image
from rich.console import Console

from headrace.runtime.artifact.plan import Choice, Plan
from headrace.serving.bench.load.loadgen import LoadResult
from headrace.serving.bench.reporting.caveats import answer_caveats, count_errors, speed_caveats
from headrace.serving.bench.reporting.plots import bench_plot
from headrace.serving.bench.reporting.report import bench_report
from headrace.serving.bench.reporting.result import Agreement, BenchResult, Measurement, Spread
from headrace.specs import FP32


def load(rate=100.0, *, p50=10.0, p99=20.0, errors=None, answers=(0, 1, 2), samples=500, cpu=20.0):
    return LoadResult(
        seconds=5.0,
        sent=600,
        completed=int(rate * 5),
        samples=samples,
        requests_per_second=rate,
        latency_ms={"p50": p50, "p90": p99, "p99": p99, "max": p99} if samples else {},
        histogram={"upper_ms": [10.0], "counts": [samples]},
        errors=errors or {},
        error_examples=dict.fromkeys(errors or {}, "queue full"),
        answers=answers,
        client_cpu_us_per_request=cpu,
    )


def measured(service, concurrency, number, *, others=0.0, **kwargs):
    return Measurement(
        service=service,
        concurrency=concurrency,
        round=number,
        load=load(**kwargs),
        server_cpu_ms=8.0,
        other_cores=others,
        memory_bytes=1 << 28,
    )


RATES = {
    "baseline": ((20.0, 22.0, 10.0), (25.0, 24.0, 12.0)),
    "peer": ((30.0, 33.0, 20.0), (50.0, 50.0, 24.0)),
    "headrace": ((40.0, 66.0, 20.0), (100.0, 120.0, 36.0)),
}


def result(*, services=("baseline", "headrace"), errors=None, warnings=(), model="photos"):
    measurements = [
        measured(name, concurrency, number, rate=rate, p50=1000 / rate, p99=2000 / rate)
        for name in services
        for concurrency, rates in zip((1, 16), RATES[name], strict=True)
        for number, rate in enumerate(rates)
    ]
    return BenchResult(
        model=model,
        services=services,
        concurrency=(1, 16),
        rounds=3,
        measurements=tuple(measurements),
        answers={"baseline": (0, 1, 2, None), "headrace": (0, 1, 0, 1)},
        images={"source": "4 images given", "synthetic": False, "files": []},
        answered="top-1 answer",
        accuracy={"baseline": 0.75, "headrace": 0.5},
        errors=errors or {name: {} for name in services},
        plan={"winners": {"1": {"backend": "openvino", "precision": "bf16"}}, "portable": False, "reason": "", "device": "cpu"},
        environment={},
        servers={},
        settings={},
        warnings=tuple(warnings),
    )


def shown(renderable, width=80):
    console = Console(width=width, file=io.StringIO(), soft_wrap=True)
    console.print(renderable)
    return console.file.getvalue()


def test_ratios_are_taken_within_each_round_and_then_the_median():
    # Round 2 was slow for both; a ratio of medians would be 40 / 20 at one at a time, hiding the 3x round.
    assert result().ratio(1) == Spread(median=2.0, low=2.0, high=3.0)
    assert result().ratio(16) == Spread(median=4.0, low=3.0, high=5.0)
    assert result().requests_per_second("headrace", 16) == Spread(median=100.0, low=36.0, high=120.0)
    assert result(services=("headrace",)).ratio(16) is None


def test_agreement_counts_what_both_answered():
    agreement = result().agreement
    assert agreement == Agreement(images=4, compared=3, agreed=2, distinct=3)
    assert agreement.share == pytest.approx(2 / 3)
    assert Agreement.of((None,), (1,)).share is None
    assert result(services=("headrace",)).agreement is None


def test_the_table_shows_both_services_the_ratio_the_agreement_and_the_plan():
    text = shown(bench_report(result()).terminal())
    for part in ("PyTorch", "Headrace", "(36-120)", "4.00x", "(3.00-5.00)", "66.67 % of 3 (1 unanswered)"):
        assert part in text
    assert "openvino bf16 on cpu" in text
    assert "PyTorch baseline 75.00%" in text
    assert "No request failed" in text


def test_failed_requests_and_notes_are_said():
    failed = result(errors={"baseline": {}, "headrace": {"503": 3}}, warnings=["headrace failed requests: 3 x 503 [queue]"])
    assert not failed.ok
    text = shown(bench_report(failed).terminal())
    assert "3 x 503 [queue]" in text
    assert "No request failed" not in text


def test_the_result_is_plain_json_and_keeps_every_measurement():
    data = json.loads(json.dumps(result().to_json(), allow_nan=False))
    assert len(data["measurements"]) == 12
    assert data["summary"][1]["ratio"]["median"] == 4.0
    assert data["agreement"]["agreed"] == 2
    assert data["measurements"][0]["load"]["histogram"]["counts"] == [500]


@pytest.mark.parametrize("services", [("baseline", "headrace"), ("headrace",)])
def test_the_plot_is_a_png_with_something_on_it(services):
    with Image.open(io.BytesIO(bench_plot(result(services=services, model="a$b_{c}")))) as image:
        assert image.format == "PNG"
        assert image.width > 1000
        assert len(image.convert("RGB").getcolors(1 << 24)) > 50


def test_the_plot_and_the_table_stand_a_service_that_answered_nothing():
    measurements = [replace(one, load=load(rate=0.0, samples=0)) for one in result().measurements]
    silent = replace(result(), measurements=tuple(measurements))
    assert silent.ratio(1) is None
    assert bench_plot(silent)
    assert "-" in shown(bench_report(silent).terminal())
    json.dumps(silent.to_json(), allow_nan=False)


def plan(*, portable=False):
    return Plan(
        fingerprint={},
        choices={1: Choice(backend="onnxruntime", precision=FP32)},
        portable=portable,
        reason="no plan was measured",
    )


def test_caveats_on_answers():
    measurements = [
        measured("headrace", 1, 0, errors={"503": 2}, answers=(0, 1, None)),
        measured("headrace", 1, 1, errors={"503": 1, "timeout": 1}, answers=(0, 2, None)),
    ]
    answers = {"headrace": load(answers=(0, 1, 1)), "baseline": load(answers=(1, 1, 1))}
    assert count_errors(answers, measurements) == {"headrace": {"503": 3, "timeout": 1}, "baseline": {}}
    notes = "\n".join(answer_caveats(answers, measurements, synthetic=True))
    assert "3 x 503, 1 x timeout" in notes
    assert "queue full" in notes
    assert "1 of 3 images another answer" in notes
    assert "baseline answered all images alike" in notes
    assert "synthetic" in notes
    assert answer_caveats({"headrace": load()}, [measured("headrace", 1, 0)], synthetic=False) == []


def test_caveats_on_speed(monkeypatch):
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert speed_caveats([measured("headrace", 1, 0)], plan(), baseline=True) == []
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    slow = [measured("headrace", 1, 0, samples=12, others=1.3), measured("headrace", 16, 0, rate=90_000.0, cpu=20.0)]
    notes = "\n".join(speed_caveats(slow, plan(portable=True), baseline=True))
    for part in (
        "as few as 12",
        "not measured on this machine",
        "OMP_NUM_THREADS=1",
        "up to 1.3 of",
        "1.80 of",
    ):
        assert part in notes


def test_each_service_has_its_ratio_and_its_bars():
    found = result(services=("baseline", "peer", "headrace"))
    assert found.ratio(16, reference="peer") == Spread(median=2.0, low=1.5, high=2.4)
    assert found.to_json()["summary"][1]["ratios"]["peer"] == {"median": 2.0, "low": 1.5, "high": 2.4}
    Image.open(io.BytesIO(bench_plot(found))).verify()
