"""The connection to a Ray cluster, and what is known of Ray Serve on it."""

from __future__ import annotations

import ipaddress
import logging
import re
import time
import urllib.request
from collections.abc import Mapping
from typing import Any, Self

from ...errors import ClusterError, HeadraceError
from ...extras import require
from ..config import ServeConfig
from .config import RayConfig

_CONTROLLER, _NAMESPACE = "SERVE_CONTROLLER_ACTOR", "serve"
_PATIENCE_SECONDS = 30.0
_BETWEEN_SECONDS = 0.25
# An error of ours as Python's traceback ends with it, with the lines that belong to its message.
_OURS = re.compile(r".*headrace\.errors\.\w+: (.*)", re.DOTALL)


class Connection:
    """A connection to a Ray cluster for a `with` block, ended with it unless it was there before. `ray` is the module.

    Raises `failure` when no cluster can be reached; `name_it` says how one is named.
    """

    def __init__(self, address: str | None, failure: type[HeadraceError], name_it: str) -> None:
        import ray

        self.ray: Any = ray
        self._ours = not ray.is_initialized()
        if self._ours:
            try:
                ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.WARNING)
            except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
                raise failure(
                    f"no Ray cluster can be reached ({error}); start one with `ray start --head`, or name it {name_it}"
                ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours:
            self.ray.shutdown()


class Cluster(Connection):
    """The cluster that `headrace serve --ray` deploys on; `serve` is the module of Ray Serve.

    Raises MissingExtraError when Ray Serve is not installed, and ClusterError when no cluster can be reached.
    """

    def __init__(self, config: RayConfig) -> None:
        require("headrace serve --ray", "ray")
        from ray import serve

        super().__init__(config.address, ClusterError, "with --ray-address or in RAY_ADDRESS")
        self.serve: Any = serve
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        # What was there before us stays when we go.
        self.had_serve = self._has_serve()

    def _has_serve(self) -> bool:
        try:
            self.ray.get_actor(_CONTROLLER, namespace=_NAMESPACE)
        except ValueError:
            return False
        return True

    def check_capacity(self, config: RayConfig) -> None:
        """Raise ClusterError when no node could ever run a replica; a node that is busy now may be free later."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        wanted = {"CPU": config.cpus_per_replica, "GPU": config.gpus_per_replica}
        if not any(all(node.get(name, 0) >= count for name, count in wanted.items()) for node in nodes):
            has = "; ".join(f"{node.get('CPU', 0):g} cores and {node.get('GPU', 0):g} GPUs" for node in nodes)
            raise ClusterError(
                f"no node has {wanted['CPU']:g} cores and {wanted['GPU']:g} GPUs for a replica; the nodes have: {has}. Choose "
                "less with --cpus-per-replica and --gpus-per-replica"
            )

    def status(self, name: str) -> Any:
        """Ray Serve's status of an application, None when there is none of that name."""
        return self.serve.status().applications.get(name)

    def replicas(self, name: str, deployment: str) -> int:
        """How many replicas of a deployment take requests now."""
        application = self.status(name)
        states: Mapping[str, int] = application.deployments[deployment].replica_states if application else {}
        return int(states.get("RUNNING", 0))

    def trouble(self, name: str) -> str:
        """What Ray Serve reports of an application that is not well, "" for nothing."""
        application = self.status(name)
        if application is None:
            return ""
        messages = [deployment.message for deployment in application.deployments.values()]
        return "\n".join(text for text in (application.message, *messages) if text)


def reason_of(text: str) -> str:
    """The message of our own error at the end of a traceback that Ray Serve passes on; else the whole text."""
    found = _OURS.match(text)
    return (found[1].partition("\n\n")[0] if found else text).strip()


def wait_until_reachable(cluster: Cluster, config: ServeConfig) -> None:
    """Return once a proxy of ours answers at the address, or at that of any node where it is every address of each.

    Raises ClusterError when none does.
    """
    hosts = [config.addresses.host]
    if _is_every(config.addresses.host):
        hosts = ["127.0.0.1", *(node["NodeManagerAddress"] for node in cluster.ray.nodes() if node["Alive"])]
    urls = [f"http://{f'[{host}]' if ':' in host else host}:{config.addresses.http_port}" for host in dict.fromkeys(hosts)]
    end = time.monotonic() + _PATIENCE_SECONDS
    while not any(_answers(url) for url in urls):
        if time.monotonic() > end:
            raise ClusterError(
                f"the replicas are ready, but no proxy of theirs answers at {' or '.join(urls)}. Another program may have the "
                "port; Ray Serve may have been started before with another address, until `serve shutdown`; or this is not the "
                "head node, and --host 0.0.0.0 opens the proxies to other machines"
            )
        time.sleep(_BETWEEN_SECONDS)


def _answers(url: str) -> bool:
    """Whether a replica of an engine answers there that it is ready; a server that is none of ours has no such header."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/v2/health/ready", timeout=5) as answer:
            return "headrace-replica" in answer.headers
    except OSError:  # also what urllib raises for statuses above 399
        return False


def _is_every(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:  # a name
        return False
