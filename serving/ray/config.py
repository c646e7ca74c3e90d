"""How a deployment on a cluster is set up, and which options of `headrace serve` do not go with the way it runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..config import GROUPS, ServeConfig
from ..options import OptionGroup, option, options_of


@dataclass(frozen=True, kw_only=True)
class RayConfig(OptionGroup):
    """One deployment on a Ray cluster: so many data planes run by load, each of which holds models with their companions."""

    title = "Ray cluster"

    address: str | None = option(
        None, "The cluster's address.", name="ray-address", unset="that of RAY_ADDRESS, or the one this machine belongs to"
    )
    min_replicas: int = option(1, "Data planes that always run.", least=1)
    max_replicas: int = option(4, "Data planes that run under load.", least=1)
    cpus_per_replica: float = option(1.0, "Cores of a node that each takes.", above=0)
    gpus_per_replica: float = option(0.0, "GPUs of a node that each takes.", least=0)
    models_per_replica: int | None = option(
        None, "Models that each holds at a time; others wait to be asked for.", least=1, unset="all"
    )
    target_requests: int = option(16, "Requests under way per replica, above which one is added.", least=1)
    upscale_seconds: float = option(10.0, "Seconds of such load before a replica is added.", above=0)
    downscale_seconds: float = option(300.0, "Seconds without it before one is taken away.", above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_replicas < self.min_replicas:
            raise ValueError(f"--max-replicas must be at least --min-replicas, got {self.max_replicas} and {self.min_replicas}")

    @property
    def max_ongoing_requests(self) -> int:
        """What Ray Serve gives one replica at a time: enough above the target that a batch is full before others wait."""
        return 2 * self.target_requests


def check_options(given: Collection[str], *, ray: bool) -> None:
    """Reject options of `headrace serve`, by their parameters' names, that the way it runs would ignore. Raises ValueError."""
    for group in (*GROUPS.values(), RayConfig):
        for one in options_of(group):
            if one.parameter not in given:
                continue
            if ray and one.not_with_ray:
                raise ValueError(f"{one.flag} does not go with --ray: {one.not_with_ray}")
            if group is RayConfig and not ray:
                raise ValueError(f"{one.flag} needs --ray")


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
