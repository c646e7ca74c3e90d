"""What the data plane and the front ends need of a repository, which may hold models or stand for an engine that does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ...errors import NotFoundError, OverloadedError, RequestError
from .models import Model
from .notifications import Notifications


class RepositoryProtocol(Protocol):
    """Models by name: `ModelRepository`, or in a front end the engine's models as it last described them.

    `notifications` notify, in any thread, whenever something begins or ceases to serve, or `ready` or the index changes.
    """

    @property
    def notifications(self) -> Notifications: ...
    @property
    def ready(self) -> bool: ...
    def use(self, name: str, version: str = "") -> AbstractContextManager[Model]: ...
    def ready_models(self) -> list[Model]: ...
    def get(self, name: str, version: str = "", *, early: bool = False) -> Model: ...
    def versions(self, name: str) -> list[str]: ...
    def index(self, *, ready_only: bool = False) -> list[dict[str, str]]: ...
    async def load_model(self, name: str, config: str | None = None) -> None: ...
    async def unload_model(self, name: str, *, dependents: bool = False) -> None: ...
    async def statistics(self, models: Sequence[Model]) -> list[dict[str, Any]]: ...
    async def live_stats(self, models: Sequence[Model]) -> list[dict[str, Any]]: ...
    async def history(self) -> dict[str, Any]: ...


def lacking(name: str, version: str, serving: Mapping[str, Model], rows: Sequence[Mapping[str, str]]) -> RequestError:
    """Why a name (in that version) is not found, by its versions that serve and its rows of the index; in Triton's
    words, since its clients look for them."""
    loading = [row for row in rows if row["state"] == "LOADING" and (not version or row["version"] in ("", version))]
    if loading:
        why = next((f"cannot answer now: {row['reason']}" for row in loading if row["reason"]), "is still loading")
        return OverloadedError(f"model '{name}' {why}; try again soon", retry_after=5)
    if serving:
        word = "version" if len(serving) == 1 else "versions"
        listed = f"{word} {', '.join(serving)} is served"
        return NotFoundError(f"Request for unknown model: '{name}' version {version[:20]} is not found; {listed}")
    if not rows:
        return NotFoundError(
            f"Request for unknown model: '{name[:100]}' is not found; POST /v2/repository/index lists what is served"
        )
    reasons = "; ".join(row["reason"] for row in rows if row["reason"])
    return NotFoundError(
        f"Request for unknown model: '{name}' has no available versions and is not served: {reasons or 'its folder is gone'}"
    )
