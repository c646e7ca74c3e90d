"""What the data plane and the front ends need of a repository, which may hold models or stand for an engine that does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from .models import Model
from .notifications import Notifications


class RepositoryProtocol(Protocol):
    """Models by name: `ModelRepository`, or in a front end the engine's models as it last described them."""

    @property
    def notifications(self) -> Notifications:
        """Notified, in any thread, whenever something begins or ceases to serve, or `ready` or the index changes."""
        ...

    @property
    def ready(self) -> bool:
        """Every model was tried, at least one serves, and the server is not shutting down."""
        ...

    def use(self, name: str, version: str = "") -> AbstractContextManager[Model]:
        """The model that `get` gives, which is not closed before the block ends, whatever is loaded or unloaded meanwhile."""
        ...

    async def load_model(self, name: str, config: str | None = None) -> None:
        """Load or renew a model. Raises UnsupportedError unless control is explicit, InputError when it cannot be loaded."""
        ...

    async def unload_model(self, name: str, *, dependents: bool = False) -> None:
        """Have a model serve no longer; raises as `load_model` does."""
        ...

    def ready_models(self) -> list[Model]:
        """The models that serve."""
        ...

    def get(self, name: str, version: str = "", *, early: bool = False) -> Model:
        """The model of that name, with `early` also one that answers though it is not ready yet.

        Raises NotFoundError, or OverloadedError while it cannot serve yet.
        """
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

    async def live_stats(self, models: Sequence[Model]) -> list[dict[str, Any]]:
        """What each of the models does right now; see `model_live_stats`."""
        ...
