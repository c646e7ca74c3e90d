"""How a deployment on a cluster is set up, and which options of `headrace serve` mean nothing there."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from ..config import ServeConfig

__all__ = ["RayConfig", "check_options", "replica_config"]

# Options of `headrace serve` that mean nothing on a cluster, and what there is instead.
_NOT_ON_A_CLUSTER = {
    "grpc_port": "gRPC is not offered there; clients speak HTTP, or to a server without --ray",
    "metrics_port": "every node of a Ray cluster exports its own metrics; see docs/ray.md",
    "devices": "a replica uses the GPUs that Ray gives it; see --gpus-per-replica",
    "frontends": "Ray Serve's proxies are the front ends, one per node",
    "ring_mib": "there are no front ends with a ring; Ray carries requests",
    "tls_cert": "Ray Serve's proxies take HTTP; end TLS at the load balancer before them",
    "tls_key": "Ray Serve's proxies take HTTP; end TLS at the load balancer before them",
    "tls_client_ca": "Ray Serve's proxies take HTTP; end TLS at the load balancer before them",
    "shared_memory": "clients and replicas are not on one machine",
    "allow_settings": "a change would reach one replica of many",
    "trace_otlp": "spans are not sent from replicas",
    "model_control_mode": "replicas load models as they are asked for; start the command again after the folder changed",
    "load_model": "replicas load models as they are asked for",
    "repository_poll_secs": "replicas load models as they are asked for; start the command again after the folder changed",
    "rate_limit": "replicas do not count together; limit clients at the load balancer",
}
_OF_A_CLUSTER = (
    "ray_address", "min_replicas", "max_replicas", "cpus_per_replica", "gpus_per_replica", "models_per_replica",
    "target_requests", "upscale_secs", "downscale_secs",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RayConfig:
    """One deployment on the Ray cluster at `address`; None is the one at RAY_ADDRESS, or the one this machine belongs to.

    Between `min_replicas` and `max_replicas` data planes run, each with `cpus_per_replica` and `gpus_per_replica` of a node.
    Ray Serve adds one when more than `target_requests` requests per replica have been under way for `upscale_seconds`, and
    takes one away when fewer have been for `downscale_seconds`. A replica holds `models_per_replica` models with their
    companions; None is all of them. Raises ValueError naming the field.
    """

    address: str | None = None
    min_replicas: int = 1
    max_replicas: int = 4
    cpus_per_replica: float = 1.0
    gpus_per_replica: float = 0.0
    models_per_replica: int | None = None
    target_requests: int = 16
    upscale_seconds: float = 10.0
    downscale_seconds: float = 300.0

    def __post_init__(self) -> None:
        for name in ("min_replicas", "max_replicas", "models_per_replica", "target_requests"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        if self.max_replicas < self.min_replicas:
            raise ValueError(f"max_replicas must be at least min_replicas, got {self.max_replicas} and {self.min_replicas}")
        if not (math.isfinite(self.cpus_per_replica) and self.cpus_per_replica > 0):
            raise ValueError(f"cpus_per_replica must be a positive number, got {self.cpus_per_replica!r}")
        if not (math.isfinite(self.gpus_per_replica) and self.gpus_per_replica >= 0):
            raise ValueError(f"gpus_per_replica must be a number >= 0, got {self.gpus_per_replica!r}")
        for name in ("upscale_seconds", "downscale_seconds"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"{name} must be a positive number of seconds, got {getattr(self, name)!r}")

    @property
    def max_ongoing_requests(self) -> int:
        """What Ray Serve gives one replica at a time: enough above the target that a batch is full before others wait."""
        return 2 * self.target_requests


def check_options(given: Collection[str], *, ray: bool) -> None:
    """Refuse options of `headrace serve`, by their parameters' names, that the way it runs would ignore. Raises ValueError."""
    if ray:
        for name, instead in _NOT_ON_A_CLUSTER.items():
            if name in given:
                raise ValueError(f"{_flag(name)} does not go with --ray: {instead}")
    elif alone := next((name for name in _OF_A_CLUSTER if name in given), None):
        raise ValueError(f"{_flag(alone)} needs --ray")


def replica_config(config: ServeConfig, ray: RayConfig) -> ServeConfig:
    """What the data plane of one replica is set up with: no ports, and no more threads than Ray counts it cores.

    Models are loaded and dropped one by one there, which is the explicit mode of the repository.
    """
    cores = max(1, int(ray.cpus_per_replica))
    return config.changed(
        models=config.models.resolve(),
        grpc_port=None,
        metrics_port=None,
        ready_file=None,
        token_file=None,
        frontends=0,
        model_control_mode="explicit",
        load_models=(),
        threads=config.processes.threads or cores,
        decode_threads=config.images.decode_threads or max(2, cores),
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
