"""From the path of a request to the model that must be there to answer it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...errors import ArtifactError, UnsupportedError
from ..models.scan import scan
from ..protocol.routes import find_route

_CONTROL = ("load", "unload")


def model_groups(models: Path) -> dict[str, str]:
    """Each model of a folder and the tensor model that it is loaded with: itself, or what it is a companion of.

    In order of the tensor models' names. Raises ArtifactError when there is none.
    """
    if not models.is_dir():
        raise ArtifactError(f"{models} is not a folder; give the models folder that headrace migrate or compile wrote")
    found = {name: group for group, members in scan(models).items() if members.tensor for name in members.names(group)}
    if not found:
        raise ArtifactError(f"{models} holds no models; write one with headrace migrate or headrace compile")
    return found


def group_of(path: str, groups: Mapping[str, str]) -> str:
    """The tensor model that a request for this path needs; "" for none, also when its model is not known.

    `path` is percent-decoded, as the router sees it.
    """
    route = find_route(path)
    if route is None or route.handler in _CONTROL:
        return ""
    return groups.get(route.parameters(path).get("model", ""), "")


def check_control(method: str, path: str) -> None:
    """Reject loading and unloading, which would reach one replica of many. Raises UnsupportedError."""
    route = find_route(path)
    if method == "POST" and route is not None and route.handler in _CONTROL:
        name = route.parameters(path)["model"][:100]
        raise UnsupportedError(
            f"cannot load or unload '{name}': model control is not offered on a cluster; replicas load a model when a request "
            "needs it"
        )
