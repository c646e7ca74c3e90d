"""From the path of a request to the model that must be there to answer it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ...errors import ArtifactError, UnsupportedError
from ..models.scan import scan

__all__ = ["check_control", "families_of", "family_of"]

# The name stands where the routes of serving/http/app.py have it. Statistics of all models look like a model of that name.
_NAMED = re.compile(r"/v2/models/(?P<model>[^/]+)(?:/.*)?|/v1/classify/(?P<classify>[^/]+)", re.DOTALL)
_OF_ALL = "/v2/models/stats"
_CONTROL = re.compile(r"/v2/repository/models/(?P<model>[^/]+)/(?:load|unload)")


def families_of(models: Path) -> dict[str, str]:
    """Each model of a folder and the tensor model that it is loaded with: itself, or what it is a companion of.

    In order of the tensor models' names. Raises ArtifactError when there is none.
    """
    if not models.is_dir():
        raise ArtifactError(f"{models} is not a folder; give the models folder that headrace migrate or compile wrote")
    found = {name: family for family, members in scan(models).items() if members.tensor for name in members.names(family)}
    if not found:
        raise ArtifactError(f"{models} holds no models; write one with headrace migrate or headrace compile")
    return found


def family_of(path: str, families: Mapping[str, str]) -> str:
    """The tensor model that a request for this path needs; "" for none, also when its model is not known.

    `path` is percent-decoded, as the router sees it.
    """
    match = None if path == _OF_ALL else _NAMED.fullmatch(path)
    return families.get(match["model"] or match["classify"], "") if match else ""


def check_control(method: str, path: str) -> None:
    """Refuse loading and unloading, which would reach one replica of many. Raises UnsupportedError."""
    if method == "POST" and (match := _CONTROL.fullmatch(path)):
        raise UnsupportedError(
            f"cannot load or unload '{match['model'][:100]}': model control is not offered on a cluster; replicas load a model "
            "when it is asked for"
        )
