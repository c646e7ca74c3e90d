"""What the data plane and the front ends need of a repository, which may hold models or stand for an engine that does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .models import Model

__all__ = ["Repository"]


class Repository(Protocol):
    """Models by name: `ModelRepository`, or in a front end the engine's models as it last described them."""

    @property
    def ready(self) -> bool:
        """Every model was tried, at least one serves, and the server is not shutting down."""
        ...

    def ready_models(self) -> list[Model]:
        """The models that serve."""
        ...

    def get(self, name: str, version: str = "") -> Model:
        """The model of that name. Raises NotFoundError, or OverloadedError while it cannot serve yet."""
        ...

    def versions(self, name: str) -> list[str]:
        """The versions of a model that serve."""
        ...

    def index(self, *, ready_only: bool = False) -> list[dict[str, str]]:
        """The repository extension's list."""
        ...

    async def statistics(self, models: Sequence[Model]) -> list[dict[str, Any]]:
        """What each of the models has counted, in the form of the statistics extension."""
        ...
