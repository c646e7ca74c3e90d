"""The routes of migrated applications that the models of a folder keep: which path leads to which of them."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from ...errors import ArtifactError, HeadraceError
from ...runtime.artifact.artifact import model_names, read_routes
from ...runtime.artifact.routes.kept_route import KeptRoute
from ..config import ServeConfig
from ..protocol.routes import find_route

PREFIX = "/v1/kept"
_ANY_CLASSES = 1 << 31


@dataclass(frozen=True)
class KeptRoutes:
    """By model, in the order of its package. They are read when the server starts: a path does not come or go while it
    serves."""

    models: Mapping[str, tuple[KeptRoute, ...]]

    @property
    def paths(self) -> dict[str, str]:
        """The path of the server's own that each kept one stands for."""
        return {
            route.path: f"{PREFIX}/{model}/{number}"
            for model, routes in self.models.items()
            for number, route in enumerate(routes)
        }

    @property
    def served(self) -> list[tuple[str, str]]:
        """Each kept path and its model."""
        return [(route.path, model) for model, routes in self.models.items() for route in routes]

    def get(self, model: str, number: str) -> KeptRoute | None:
        routes = self.models.get(model, ())
        return routes[int(number)] if number.isascii() and number.isdecimal() and int(number[:9]) < len(routes) else None

    def to_file(self) -> IO[bytes]:
        """A file without a name that holds them, for processes that are started later: packages may change meanwhile."""
        file = tempfile.TemporaryFile(prefix="headrace-")  # noqa: SIM115  whoever starts processes has it open
        file.write(json.dumps({model: [route.to_json() for route in routes] for model, routes in self.models.items()}).encode())
        file.flush()
        return file

    @classmethod
    def from_file(cls, descriptor: int) -> Self:
        """What `to_file` wrote, from another process's descriptor, where it stays open; it is closed here."""
        with os.fdopen(descriptor, "rb", closefd=True) as file:
            data = os.pread(descriptor, os.fstat(file.fileno()).st_size, 0)  # the place in it is shared with all who have it
        return cls({model: tuple(map(_written, routes)) for model, routes in json.loads(data).items()})


def kept_routes(config: ServeConfig) -> KeptRoutes | None:
    """The routes that are to be kept; None where nobody asked for that. Raises HeadraceError where there are none, or two
    models would answer at one path."""
    if not config.addresses.keep_routes:
        return None
    found = {name: routes for name in model_names(config.models) if (routes := _read(config.models / name))}
    if not found:
        raise HeadraceError(
            f"--keep-routes: no model in {config.models} has a route that was proved; headrace migrate of a Flask or FastAPI "
            "application says which of its routes can be kept (PS521), and why others cannot (PS522)"
        )
    owners: dict[str, str] = {}
    for name, routes in found.items():
        for route in routes:
            if (other := owners.setdefault(route.path, name)) != name:
                raise HeadraceError(f"--keep-routes: {other} and {name} would both answer {route.path}; serve one of them")
            if find_route(route.path) is not None:
                raise HeadraceError(f"--keep-routes: {name} would answer {route.path}, which is a path of the server's own")
    return KeptRoutes(found)


def _read(folder: Path) -> tuple[KeptRoute, ...]:
    try:
        return read_routes(folder)
    except ArtifactError:  # loading the model says why
        return ()


def _written(data: Mapping[str, Any]) -> KeptRoute:
    """A route that was read before, for a model of as many classes as it then had."""
    classes = len(data["tables"][0]) if data["tables"] else _ANY_CLASSES
    return KeptRoute.from_json(data, classes=classes, labeled=True)
