"""The routes of migrated applications that the models of a folder keep: which path leads to which of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import ArtifactError, HeadraceError
from ...runtime.artifact.artifact import model_names, read_routes
from ...runtime.artifact.routes.kept_route import KeptRoute
from ..config import ServeConfig
from ..protocol.routes import find_route

PREFIX = "/v1/kept"


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
