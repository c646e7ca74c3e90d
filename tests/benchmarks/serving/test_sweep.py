"""Throughput and latency beside the machine's limits."""

import io
import json

import pytest
from rich.console import Console

from headrace.serving.bench.config import BenchConfig
from headrace.serving.bench.reporting.result import BenchResult, Measurement
from tests.benchmarks.serving.load_results import load
from tests.benchmarks.serving.sweep import Capacity, sweep


@pytest.mark.slow
def test_the_server_is_measured_beside_what_the_machine_can_do(colors, tmp_path):
    console = Console(file=io.StringIO(), width=140)
    config = BenchConfig(
        models=colors.models,
        out=tmp_path / "out",
        concurrency=(1, 3),
        rounds=1,
        seconds=0.2,
        warm_up_seconds=0.1,
        max_images=4,
    )
    found = sweep(config, console=console)
    assert found.bench.ok, found.bench.warnings
    assert found.knee in (1, 3)
    assert found.machine["peaks"]["fp32"]["operations_per_second"] > 1e9
    assert found.machine["operations_per_row"] == 2 * 3 * 3 * 24 * 24  # the 1x1 convolution
    assert [batch["batch"] for batch in found.machine["batches"]] == [1, 4]
    assert found.roof[0] == "fp32"
    assert found.shares["served"] > 0
    data = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert data["capacity"]["knee"] == found.knee
    assert "![colors: image bytes in, labels out](sweep.png)" in (tmp_path / "out" / "sweep.md").read_text()
    assert (tmp_path / "out" / "sweep.png").read_bytes().startswith(b"\x89PNG")
    text = console.file.getvalue()
    assert "The knee is at" in text
    assert "The roof in fp32 is" in text


def capacity(rates, *, roofs=None, precision="int8"):
    measurements = [
        Measurement(
            service="headrace", concurrency=level, round=0, load=load(rate), server_cpu_ms=1, other_cores=0, memory_bytes=1
        )
        for level, rate in rates.items()
    ]
    bench = BenchResult(
        model="net",
        services=("headrace",),
        concurrency=tuple(rates),
        rounds=1,
        measurements=tuple(measurements),
        answers={"headrace": ()},
        images={"source": "x"},
        answered="top-1 answer",
        accuracy={},
        errors={"headrace": {}},
        plan={"winners": {}, "device": "cpu"},
        environment={},
        servers={},
        settings={},
    )
    batches = [{"batch": 1, "precision": precision, "runs": "x", "rows_per_second": {"median": 50.0, "low": 50, "high": 50}}]
    return Capacity(bench=bench, machine={"batches": batches, "roofs": roofs or {}, "peaks": {}})


def test_the_knee_is_the_lowest_level_near_the_most():
    found = capacity({1: 40.0, 2: 70.0, 4: 96.0, 8: 100.0, 16: 90.0})
    assert (found.knee, found.best) == (4, 8)
    assert capacity({1: 0.0}).knee is None


def test_the_share_is_of_the_fastest_precision_in_use():
    roofs = {"fp32": {"1": 100.0}, "int8": {"1": 180.0, "8": 200.0}, "bf16": {"1": 150.0}}
    found = capacity({4: 100.0}, roofs=roofs, precision="int8+bf16")
    assert found.roof == ("int8", 200.0)
    assert found.shares == {"served": 0.5, "session": 0.25}
    assert capacity({4: 100.0}, roofs=roofs, precision="bf16").roof == ("bf16", 150.0)
    assert capacity({4: 100.0}).shares == {}
