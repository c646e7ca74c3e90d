"""Recorded stages without a measurement: a server whose figures are round."""

import json

import pytest

from tests.benchmarks.scale.model import Distribution, ServerSpec, Speeds, constant
from tests.benchmarks.scale.stages import FORMAT
from tests.serving.conftest import make_photo, models

__all__ = ["make_photo", "models"]

BATCH = {1: 0.005, 2: 0.008, 4: 0.014, 8: 0.026}


@pytest.fixture
def spec() -> ServerSpec:
    return ServerSpec(
        speeds=Speeds.ideal(2),
        batch={size: constant(seconds) for size, seconds in BATCH.items()},
        decode=constant(0.002),
        handling=0.0004,
        handing_over=0.0003,
    )


def spread(value):
    return {"median": value, "low": 0.9 * value, "high": 1.1 * value}


@pytest.fixture
def stages_file(tmp_path):
    """docs/stages.json of a server that nobody measured."""

    def taking(seconds):
        return Distribution.of([seconds * (0.9 + 0.002 * step) for step in range(100)]).to_json()

    closed = [(1, 110.0, 9.0, 10.0), (8, 200.0, 40.0, 50.0)]
    data = {
        "format": FORMAT,
        "command": "nothing was measured",
        "date": "2026-01-01",
        "machine": {"cpu": "A processor", "cores": 2, "gpus": []},
        "model": "round",
        "images": "2 images given",
        "image_bytes": 60_000,
        "stages": {
            "decode": taking(0.002),
            "batch": {str(size): taking(seconds) for size, seconds in BATCH.items()},
            "profile_ms": {str(size): 1e3 * seconds for size, seconds in BATCH.items()},
            "together": [1.0, 0.9],
            "beside": [[0.6, 0.6], [0.5, 0.5]],
            "handling_us": 400.0,
            "handing_over_us": 300.0,
            "client_us": 100.0,
            "decoders": 2,
            "max_delay_ms": 1.0,
            "max_queue": 256,
            "instances": 1,
        },
        "served": {
            "closed": [
                {"connections": count, "requests_per_second": spread(rate), "p50_ms": spread(p50), "p99_ms": p99}
                for count, rate, p50, p99 in closed
            ],
            "open": [
                {
                    "rate": 400.0,
                    "deadline_ms": 500.0,
                    "timeout_ms": 400.0,
                    "requests_per_second": spread(190.0),
                    "goodput": spread(190.0),
                    "p50_ms": spread(380.0),
                    "p99_ms": 410.0,
                }
            ],
        },
    }
    path = tmp_path / "stages.json"
    path.write_text(json.dumps(data))
    return path
