"""NVIDIA's own client, the real binary, against our server: over HTTP and gRPC, with tensors and with images."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import BenchError
from tests.benchmarks.serving.perf_analyzer import PerfRun, find, read_report, run

SUPPORT = Path(__file__).with_name("perf_analyzer_binary.py")
HEADER = (
    "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,"
    "Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency\n"
)
QUICK = {"concurrency": (2,), "window_seconds": 0.15, "stability_percent": 999.0, "timeout_seconds": 60.0}


@pytest.fixture(scope="session")
def binary() -> Path:
    specification = importlib.util.spec_from_file_location("perf_analyzer_binary", SUPPORT)
    support = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(support)
    try:
        return support.provide()
    except support.Unavailable as why:
        pytest.skip(str(why))


@pytest.fixture
def photos(tmp_path, make_photo):
    paths = [tmp_path / f"{seed}.png" for seed in range(3)]
    for seed, path in enumerate(paths):
        path.write_bytes(make_photo(seed))
    return tuple(paths)


# Over HTTP, other clients of Triton ask for the same models: tests/serving/test_real_clients.py.
@pytest.mark.parametrize(
    ("protocol", "rows", "names"),
    [
        pytest.param("http", 1, ("tiny", "tiny_classify", "tiny_decode"), marks=pytest.mark.slow),
        ("grpc", 3, ("tiny", "tiny_classify")),
    ],
)
def test_it_measures_tensors_and_images_without_an_error(binary, server, photos, protocol, rows, names):
    address = getattr(server, protocol)
    for model in names:
        images = () if model == "tiny" else photos
        wanted = PerfRun(address=address, protocol=protocol, model=model, images=images, rows=rows, **QUICK)
        (row,) = run(binary, wanted)
        assert (row.protocol, row.model, row.concurrency) == (protocol, model, 2)
        assert row.inferences_per_second > 0
        assert 0 < row.latency_ms["p50"] <= row.latency_ms["p99"]
        assert row.server_us["infer"] > 0  # from our statistics


def test_what_it_cannot_measure_is_an_error_with_its_own_words(binary, server, photos):
    for model in ("nope", "damaged"):
        with pytest.raises(BenchError, match=model):
            run(binary, PerfRun(address=server.http, protocol="http", model=model, **QUICK))
    missing = PerfRun(
        address=server.http, protocol="http", model="tiny_classify", images=(photos[0].with_name("gone.png"),), **QUICK
    )
    with pytest.raises(BenchError, match=r"gone\.png"):
        run(binary, missing)


@pytest.mark.slow  # what it measures: above
def test_the_command_starts_a_server_and_writes_its_figures(binary, models, photos, tmp_path):
    out = tmp_path / "found.json"
    command = [sys.executable, "-m", "tests.benchmarks.serving.perf_analyzer", str(models), "tiny"]
    command += ["--perf-analyzer", str(binary), "--concurrency", "2", "--seconds", "0.4", "--stability", "999"]
    command += ["--images", str(photos[0].parent), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found = [(row["model"], row["protocol"]) for row in json.loads(out.read_text())]
    assert found == [("tiny", "http"), ("tiny_classify", "http"), ("tiny", "grpc"), ("tiny_classify", "grpc")]


def test_a_report_is_read_in_full():
    wanted = PerfRun(address="h:1", protocol="grpc", model="m")
    (row,) = read_report(HEADER + "4,1055.31,43,3034,533,25,126,17,0,2943,4144,6673,16143\n", wanted)
    assert row.inferences_per_second == 1055.31
    assert row.latency_ms == {"p50": 2.943, "p90": 4.144, "p95": 6.673, "p99": 16.143}
    assert row.server_us == {"queue": 533, "input": 25, "infer": 126, "output": 17}
    for text, says in ((HEADER, "measured nothing"), ("Concurrency\n1\n", "Inferences/Second")):
        with pytest.raises(BenchError, match=says):
            read_report(text, wanted)


def test_a_binary_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BenchError, match="not on PATH"):
        find()
    with pytest.raises(BenchError, match="is no program"):
        find(tmp_path / "gone")


@pytest.mark.parametrize("wrong", [{"protocol": "udp"}, {"concurrency": ()}, {"concurrency": (0,)}, {"rows": 0}])
def test_runs_are_validated(wrong):
    with pytest.raises(ValueError, match=r"must"):
        PerfRun(**{"address": "h:1", "protocol": "http", "model": "m", **wrong})
