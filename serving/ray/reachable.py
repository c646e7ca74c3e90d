"""Whether what was deployed answers at its address: by a request, as a client would send it."""

from __future__ import annotations

import ipaddress
import time
import urllib.request

from ...errors import ClusterError
from ..config import ServeConfig
from .cluster import Cluster

__all__ = ["wait_until_reachable"]

_PATIENCE_SECONDS = 30.0
_BETWEEN_SECONDS = 0.25


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
