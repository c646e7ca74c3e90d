"""The connection to a Ray cluster, and what is known of Ray Serve on it."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from ...errors import ClusterError
from ...extras import require
from .config import RayConfig

__all__ = ["Cluster", "reason_of"]

_CONTROLLER, _NAMESPACE = "SERVE_CONTROLLER_ACTOR", "serve"
# An error of ours as Python's traceback ends with it, with the lines that belong to its message.
_OURS = re.compile(r".*headrace\.errors\.\w+: (.*)", re.DOTALL)


class Cluster:
    """A connection for a `with` block, ended with it unless it was there before. `ray` and `serve` are the modules.

    Raises MissingExtraError when Ray Serve is not installed, and ClusterError when no cluster can be reached.
    """

    def __init__(self, config: RayConfig) -> None:
        require("headrace serve --ray", "ray")
        import ray
        from ray import serve

        self.ray: Any = ray
        self.serve: Any = serve
        self._ours = not ray.is_initialized()
        if self._ours:
            try:
                ray.init(address=config.address or "auto", log_to_driver=False, logging_level=logging.WARNING)
            except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
                raise ClusterError(
                    f"no Ray cluster can be reached ({error}); start one with `ray start --head`, or name it with "
                    "--ray-address or in RAY_ADDRESS"
                ) from error
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        # What was there before us stays when we go.
        self.had_serve = self._has_serve()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours:
            self.ray.shutdown()

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
