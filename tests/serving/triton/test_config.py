"""Wrong settings are refused by name before anything is read."""

import pytest

from headrace.serving.triton.config import RunSettings, Settings


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"device": "tpu"}, "device"),
        ({"instances": 0}, "--instances"),
        ({"timeout_seconds": 0}, "--timeout"),
        ({"max_queue": 0}, "--max-queue"),
        ({"engine_cache": "/x"}, "--engine-cache"),
    ],
)
def test_settings_are_checked(wrong, named):
    with pytest.raises(ValueError, match=named):
        Settings(**wrong)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"http_port": -1}, "--http-port"), ({"grpc_port": 70_000}, "--grpc-port"), ({"start_timeout": 0}, "--start")],
)
def test_how_it_is_run_is_checked(wrong, named):
    with pytest.raises(ValueError, match=named):
        RunSettings(**wrong)
