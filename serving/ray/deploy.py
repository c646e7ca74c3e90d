"""`headrace serve --ray`: deploy on a cluster, report when it serves, watch it, and remove it again."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from ...errors import ClusterError
from ..config import ServeConfig
from ..guard.access import Access, load_access
from ..guard.hosts import is_loopback
from ..ready_file import report, serving_line, write_ready
from .cluster import Cluster, reason_of, wait_until_reachable
from .config import RayConfig, replica_config
from .engine import Engine
from .ingress import Ingress
from .routing import model_groups

# Applications of their own: an application ends all of its deployments at once, and the ingress must be empty first.
_INGRESS, _ENGINES = "headrace", "headrace-engines"
_DEPLOYMENT = "Engine"
# Requests that one replica of the ingress passes on at a time; it waits for nearly all of them.
_INGRESS_REQUESTS = 1024
_WATCH_SECONDS = 2.0
_WAITING_REPORT_SECONDS = 20.0
_INDEX_SECONDS = 30.0
_LOST_SECONDS = 60.0
# How long a replica that is to go lets requests arrive that were sent before its callers knew.
_REPLICA_DRAIN_SECONDS = 1.0


def serve_on_ray(config: ServeConfig, ray: RayConfig) -> None:
    """Serve a models folder on a Ray cluster until SIGTERM or SIGINT, then answer what was accepted and return.

    Raises ArtifactError when there is nothing to serve, and ClusterError when the cluster cannot serve it or ceases to.
    """
    groups = model_groups(config.models)
    access = load_access(config.security.token_file) if config.security.token_file else None
    if not config.addresses.http_port:
        raise ClusterError("--http-port 0 does not go with --ray: the proxies of all nodes listen on one port; name it")
    with Cluster(ray) as cluster, Signals() as signals:
        deployed = _Deployment(cluster, config, ray, groups, access)
        try:
            deployed.start()
            deployed.report_ready()
            deployed.watch()
        except StoppedError:
            report("draining: no new requests are taken, accepted ones are answered; a second signal ends at once")
        finally:
            signals.hold()
            deployed.remove()


class _Deployment:
    """The two applications of one run."""

    def __init__(
        self, cluster: Cluster, config: ServeConfig, ray: RayConfig, groups: Mapping[str, str], access: Access | None
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._ray = ray
        self._groups = groups
        self._access = access
        self._logging = {"encoding": config.observe.log_format.upper(), "enable_access_log": config.observe.access_log}
        self._engines: Any = None

    def start(self) -> None:
        """Return once a replica of both has started; raises ClusterError when one cannot."""
        self._cluster.check_capacity(self._ray)
        serve, config = self._cluster.serve, self._config
        # On a node whose address only it can reach, a proxy is of use to nobody else.
        everywhere = not is_loopback(config.addresses.host)
        serve.start(
            proxy_location="EveryNode" if everywhere else "HeadOnly",
            http_options={"host": config.addresses.host, "port": config.addresses.http_port, "keep_alive_timeout_s": 75},
            logging_config=self._logging,
        )
        own = replica_config(config, self._ray)
        tensor_models = len(set(self._groups.values()))
        capacity = min(self._ray.models_per_replica or tensor_models, tensor_models)
        report(
            f"starting {self._ray.min_replicas} to {self._ray.max_replicas} replicas of {self._ray.cpus_per_replica:g} cores"
        )
        self._engines = self._run(_ENGINES, self._engine().bind(own, self._groups, capacity), None)
        self._run(_INGRESS, self._ingress().bind(own, self._access, self._groups, _ENGINES), "/")

    def _engine(self) -> Any:
        return self._cluster.serve.deployment(
            Engine,
            name=_DEPLOYMENT,
            ray_actor_options={"num_cpus": self._ray.cpus_per_replica, "num_gpus": self._ray.gpus_per_replica},
            autoscaling_config=self._scaling(self._ray.target_requests),
            max_ongoing_requests=self._ray.max_ongoing_requests,
            max_queued_requests=self._config.batching.queue(),
            user_config={"load": "all there is room for"},
            **self._common(),
        )

    def _ingress(self) -> Any:
        return self._cluster.serve.deployment(
            Ingress,
            name="Ingress",
            ray_actor_options={"num_cpus": 0},
            autoscaling_config=self._scaling(_INGRESS_REQUESTS // 4),
            max_ongoing_requests=_INGRESS_REQUESTS,
            **self._common(),
        )

    def _scaling(self, target: int) -> dict[str, Any]:
        return {
            "min_replicas": self._ray.min_replicas,
            "max_replicas": self._ray.max_replicas,
            "target_ongoing_requests": target,
            "upscale_delay_s": self._ray.upscale_seconds,
            "downscale_delay_s": self._ray.downscale_seconds,
            "look_back_period_s": min(30.0, self._ray.upscale_seconds),
            "metrics_interval_s": min(10.0, self._ray.upscale_seconds / 2),
        }

    def _common(self) -> dict[str, Any]:
        return {
            "graceful_shutdown_timeout_s": self._config.processes.drain_seconds,
            "graceful_shutdown_wait_loop_s": _REPLICA_DRAIN_SECONDS,
            "logging_config": self._logging,
        }

    def _run(self, name: str, application: Any, route: str | None) -> Any:
        try:
            with self._waiting(name):
                return self._cluster.serve.run(application, name=name, route_prefix=route)
        except (RuntimeError, self._cluster.ray.exceptions.RayError) as error:
            trouble = self._cluster.trouble(name) or str(error)
            raise ClusterError(f"the replicas cannot start: {reason_of(trouble)}") from error

    @contextmanager
    def _waiting(self, name: str) -> Iterator[None]:
        """Report now and then why nothing has started, such as that every node is busy."""
        done = threading.Event()

        def report_waiting() -> None:
            # Where nothing can be asked any more, what is waited for raises that.
            with suppress(self._cluster.ray.exceptions.RayError):
                while not done.wait(_WAITING_REPORT_SECONDS):
                    if text := self._cluster.trouble(name):
                        report(f"still waiting: {reason_of(text).splitlines()[0]}")

        thread = threading.Thread(target=report_waiting, name="headrace-waiting", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def report_ready(self) -> None:
        """Report what is served where, once that address answers. Raises ClusterError when it does not."""
        wait_until_reachable(self._cluster, self._config)
        asked = self._engines.options(method_name="index")
        try:
            rows = asked.remote().result(timeout_s=_INDEX_SECONDS)
        finally:
            asked.shutdown()  # a handle that was used goes on listening, and would connect anew once we have left the cluster
        # A model that waits to be asked for is served; one that was tried in vain is not.
        out = [row for row in rows if row["state"] == "UNAVAILABLE" and row["reason"] != "not loaded"]
        for row in out:
            report(f"{row['name']}: not served: {row['reason']}")
        served = sorted(set(self._groups) - {row["name"] for row in out} | {r["name"] for r in rows if r["state"] == "READY"})
        ports = {"http": self._config.addresses.http_port}
        report(serving_line(served, self._config, ports))
        if self._config.addresses.ready_file is not None:
            write_ready(self._config.addresses.ready_file, {**ports, "pid": os.getpid()})

    def watch(self) -> None:
        """Report when the number of replicas changes. Raises ClusterError when the cluster or the applications are gone."""
        known, seen = self._ray.min_replicas, time.monotonic()
        while True:
            time.sleep(_WATCH_SECONDS)
            try:
                if self._cluster.status(_INGRESS) is None or self._cluster.status(_ENGINES) is None:
                    raise ClusterError("the deployment was removed from the cluster; start the command again to serve")
                running = self._cluster.replicas(_ENGINES, _DEPLOYMENT)
            except self._cluster.ray.exceptions.RayError as error:  # its controller may be starting again
                if time.monotonic() - seen > _LOST_SECONDS:
                    raise ClusterError(f"the cluster has not answered for {_LOST_SECONDS:g} s: {error}") from error
                continue
            seen = time.monotonic()
            if running != known:
                report(f"replicas: {running}")
                known = running

    def remove(self) -> None:
        """Empty and take away the ingress, then the engines; and Ray Serve, if it was started for them."""
        serve = self._cluster.serve
        try:
            for name in (_INGRESS, _ENGINES):
                if self._cluster.status(name) is not None:
                    serve.delete(name)
            if not self._cluster.had_serve and not serve.status().applications:
                serve.shutdown()
        except (self._cluster.ray.exceptions.RayError, TimeoutError) as error:
            raise ClusterError(f"the deployment could not be removed ({error}); `serve shutdown` removes it") from error


class StoppedError(BaseException):
    """SIGTERM or SIGINT came. Not an Exception, as what waits may catch those and go on waiting."""


class Signals:
    """For a `with` block of the main thread: the first signal raises StoppedError there, unless `hold` was called before it;
    the second ends the process."""

    def __init__(self) -> None:
        self._held = False
        self._received = False

    def __enter__(self) -> Signals:
        self._before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def hold(self) -> None:
        """From now on a first signal changes nothing: the program is about to end."""
        self._held = True

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._received:
            os._exit(128 + number)
        self._received = True
        if not self._held:
            raise StoppedError
