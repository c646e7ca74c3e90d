"""What `headrace serve --ray` takes, and what it refuses by name. No Ray is needed."""

import os

import pytest

from headrace.serving.config import GROUPS, ServeConfig
from headrace.serving.options import options_of
from headrace.serving.ray.cluster import reason_of
from headrace.serving.ray.config import RayConfig, check_options, replica_config


@pytest.fixture
def headrace(warm_command):
    def run(*arguments, **environment):
        kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        return warm_command(*arguments, env=kept | environment)

    return run


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_replicas": 0}, "--min-replicas must be a whole number of at least 1"),
        ({"min_replicas": 3, "max_replicas": 2}, "--max-replicas must be at least --min-replicas, got 2 and 3"),
        ({"models_per_replica": 0}, "--models-per-replica"),
        ({"target_requests": 0}, "--target-requests"),
        ({"cpus_per_replica": 0.0}, "--cpus-per-replica must be a number above 0"),
        ({"cpus_per_replica": float("nan")}, "--cpus-per-replica"),
        ({"gpus_per_replica": -1.0}, "--gpus-per-replica"),
        ({"upscale_seconds": 0.0}, "--upscale-secs must be a number above 0"),
        ({"downscale_seconds": float("inf")}, "--downscale-secs"),
    ],
)
def test_wrong_values_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        RayConfig(**options)


@pytest.mark.parametrize(
    ("option", "value"),
    [("--grpc-port", 9), ("--metrics-port", 9), ("--tls-cert", "a.pem"), ("--frontends", 2), ("--model-control-mode", "poll")],
)
def test_what_would_be_ignored_is_refused(headrace, models, option, value):
    done = headrace("serve", models, "--ray", option, value)
    assert done.returncode == 2
    assert f"{option} does not go with --ray" in " ".join(done.stderr.split())


def test_options_of_a_cluster_need_one(headrace, models):
    done = headrace("serve", models, "--min-replicas", 2)
    assert done.returncode == 2
    assert "--min-replicas needs --ray" in done.stderr


def test_what_is_not_given_is_not_refused():
    check_options(["models", "http_port", "max_queue", "token_file", "decoding", "min_replicas"], ray=True)
    check_options(["models", "grpc_port"], ray=False)


def test_every_option_of_serve_is_known_to_one_side():
    """An option that is new must be thought of: it works on a cluster, or is rejected there."""
    works = {
        "host", "http_port", "ready_file", "instances", "threads", "max_queue", "timeout", "token_file", "log_format",
        "access_log", "response_cache_bytes", "decoding", "allowed_host", "max_queue_delay_secs", "max_body_bytes",
        "max_decompressed_bytes", "max_json_depth",
        "trust_repository", "id", "memory",
        "max_json_values", "max_inflight_bytes", "max_pixels", "body_timeout_secs", "decode_threads", "drain_secs",
    }  # fmt: skip
    assert {one.parameter for group in GROUPS.values() for one in options_of(group) if not one.not_with_ray} == works


def test_a_replica_takes_no_more_threads_than_its_cores(tmp_path):
    served = ServeConfig.of(models=tmp_path, token_file=tmp_path / "tokens.toml", frontends=2)
    one = replica_config(served, RayConfig(cpus_per_replica=0.5))
    assert (one.processes.threads, one.images.decode_threads, one.front_ends) == (1, 2, 0)
    assert (one.addresses.grpc_port, one.addresses.metrics_port) == (None, None)
    assert replica_config(served, RayConfig(cpus_per_replica=6)).processes.threads == 6
    assert (one.control.model_control_mode, one.security.token_file) == ("explicit", None)


def test_without_a_cluster_the_command_says_what_to_do(headrace, models, tmp_path):
    done = headrace("serve", models, "--ray", RAY_TMPDIR=str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert "pip install 'headrace[ray]'" in done.stderr or "ray start --head" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_to_serve_and_no_port_are_said_before_a_cluster_is_looked_for(headrace, models, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "holds no models" in headrace("serve", tmp_path / "empty", "--ray").stderr
    assert "is no folder or file" in headrace("serve", tmp_path / "none", "--ray").stderr
    assert "--http-port 0 does not go with --ray" in headrace("serve", models, "--ray", "--http-port", 0).stderr


def test_the_reason_is_taken_out_of_a_traceback():
    text = (
        "The deployment failed to start 3 times in a row. Error:\nTraceback (most recent call last):\n"
        "headrace.errors.ArtifactError: /models is not a folder\n\n"
        "The above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n"
        "headrace.errors.ClusterError: node 10.0.0.7 cannot serve:\n  tiny: its digest is wrong\n\nmore of Ray's"
    )
    assert reason_of(text) == "node 10.0.0.7 cannot serve:\n  tiny: its digest is wrong"
    assert reason_of(" out of memory ") == "out of memory"
