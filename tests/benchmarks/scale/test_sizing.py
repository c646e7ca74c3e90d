"""The arithmetic, by hand."""

import pytest

from tests.benchmarks.scale.gpu import OFFLINE, ONLINE, P99, figures, fixed_seconds, from_bench, published
from tests.benchmarks.scale.sizing import Demand, Node, machines

NODE = Node(gpus=8, cores=100, gpu_rate=10_000.0, decode=0.002, handling=0.0005, network=10e9)


def test_a_hundred_million_a_day():
    demand = Demand(images_per_day=100e6, peak=3.0, image_bytes=65_000)
    assert demand.mean_rate == pytest.approx(1157.4, abs=0.1)
    assert demand.peak_rate == pytest.approx(3472.2, abs=0.1)
    assert demand.bytes_per_second(1000.0) == 65e6


def test_the_least_stage_limits():
    limits = NODE.limits(100_000)
    assert limits == {"GPUs": 80_000, "JPEG decoding and HTTP on the cores": pytest.approx(40_000), "network": 100_000}
    assert NODE.rate(100_000) == pytest.approx(40_000)
    assert NODE.bottleneck(100_000) == "JPEG decoding and HTTP on the cores"
    assert NODE.bottleneck(1_000_000) == "network"
    assert NODE.utilization(20_000, 100_000) == {
        "GPUs": 0.25,
        "JPEG decoding and HTTP on the cores": pytest.approx(0.5),
        "network": 0.2,
    }
    assert NODE.cores_per_gpu() == pytest.approx(25)


@pytest.mark.parametrize(("by_gpu", "rate"), [(0, 40_000), (5000, 72_000), (25_000, 200_000), (100_000, 200_000)])
def test_gpus_that_decode_relieve_the_cores(by_gpu, rate):
    node = Node(gpus=8, cores=100, gpu_rate=1e6, decode=0.002, handling=0.0005, network=10e9, gpu_decoding=by_gpu)
    assert node.host_rate() == pytest.approx(rate)
    # What the cores do at that rate: they are full, and never more than full.
    used = rate * 0.0005 + max(0, rate - 8 * by_gpu) * 0.002
    assert used == pytest.approx(100)


def test_machines_with_some_to_spare():
    assert machines(3472, 200, utilization=1.0, spare=0) == 18
    assert machines(3472, 200) == 26  # 24.8 at 70 %, rounded up, and one
    assert machines(1000, 100, utilization=1.0, spare=0) == 10
    assert machines(0, 100, spare=2) == 3
    with pytest.raises(ValueError, match="positive"):
        machines(1.0, 0.0)


@pytest.mark.parametrize("wrong", [{"peak": 0.5}, {"images_per_day": 0}, {"image_bytes": 0}])
def test_impossible_demands_are_refused(wrong):
    with pytest.raises(ValueError, match="a demand needs"):
        Demand(**wrong)


def test_the_published_gpu_reaches_both_published_rates():
    gpu = published()
    assert not gpu.ours
    assert "not measured by us" in gpu.source
    fixed = fixed_seconds(OFFLINE, ONLINE, P99)
    half = P99 / 2
    assert (half - fixed) * OFFLINE / half == pytest.approx(ONLINE)  # a batch of half the p99 holds the online rate
    assert gpu.seconds[512] == pytest.approx(fixed + 512 / OFFLINE)
    assert gpu.online == ONLINE > 0.8 * gpu.offline
    assert gpu.offline < OFFLINE


def test_what_a_gpu_benchmark_measured_takes_its_place(tmp_path):
    bench = tmp_path / "bench-gpu.json"
    text = (
        '{"quick": %s, "device": "%s", "command": "python gpu.py", "date": "2026-01-01", "models": {"resnet50": {"batches": '
        '{"1": {"plan": {"ms": 1.0}, "eager fp32": {"ms": 3.0}}, "256": {"plan": {"ms": 5.0}}, '
        '"512": {"torch.compile bf16": {"ms": 9.0}, "eager fp32": {"ms": 20.0}}}}}}'
    )
    bench.write_text(text % ("true", "NVIDIA H200"))
    assert from_bench(bench) is None
    bench.write_text(text % ("false", "cpu"))
    assert figures(tmp_path) == published()
    bench.write_text(text % ("false", "NVIDIA H200"))
    gpu = figures(tmp_path)
    assert gpu.ours
    assert gpu.seconds == {1: 0.001, 256: 0.005, 512: 0.009}
    assert gpu.online == pytest.approx(51_200)  # 512 take longer than half of 13 ms
    assert gpu.offline == pytest.approx(512 / 0.009)
