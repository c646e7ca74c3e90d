"""The models folder: which models it holds, which of them serve, and why the others do not."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..errors import ArtifactError, NotFoundError, OverloadedError
from .config import ServeConfig
from .loading import load_companion, load_tensor_model
from .models import Model, TensorModel

__all__ = ["Entry", "ModelRepository"]

log = logging.getLogger("penstock.serving")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


@dataclass(kw_only=True)
class Entry:
    """One folder of the repository. `state` is Triton's: "LOADING", "READY" or "UNAVAILABLE", the last with a reason."""

    name: str
    state: str = "LOADING"
    reason: str = ""
    model: Model | None = None

    @property
    def version(self) -> str:
        return self.model.version if self.model else ""


class ModelRepository:
    """Models by name, from one folder that is scanned once.

    `load` may run in a thread of its own while requests are answered. Names in requests are only ever compared with the names
    that were found, so none can lead out of the folder.
    """

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        self._root = config.models.resolve()
        self._loaded = threading.Event()
        self._draining = False
        if not self._root.is_dir():
            raise ArtifactError(
                f"{config.models} is not a folder; give the models folder that penstock migrate or compile wrote"
            )
        self._entries = {name: Entry(name=name) for name in self._scan()}
        if not self._entries:
            raise ArtifactError(f"{config.models} holds no models; write one with penstock migrate or penstock compile")

    def _scan(self) -> Iterator[str]:
        for folder in sorted(self._root.iterdir()):
            if folder.is_dir() and (folder / "config.pbtxt").is_file():
                if _NAME.fullmatch(folder.name):
                    yield folder.name
                else:
                    log.warning("skipping %r: a model's name is made of letters, digits, '.', '_' and '-'", folder.name)

    def load(self, progress: Callable[[str], None] = lambda _: None) -> None:
        """Load every model, those that others are built on first; one that fails stays out with its reason."""
        for entry in self._entries.values():
            if self._draining:
                return
            self._try(entry, partial(load_tensor_model, self._root / entry.name, self._config, progress), progress)
        found = {entry.name: entry.model for entry in self._entries.values() if isinstance(entry.model, TensorModel)}
        for entry in self._entries.values():
            if entry.state == "LOADING":
                self._try(entry, partial(load_companion, self._root / entry.name, found), progress)
        self._loaded.set()

    def _try(self, entry: Entry, load: Callable[[], Model | None], progress: Callable[[str], None]) -> None:
        try:
            entry.model = load()
        except Exception as error:  # a model that cannot be loaded, for whatever reason, must not end the others
            log.debug("loading %s failed", entry.name, exc_info=error)
            # Callers see the reason, so it names files inside the repository only.
            entry.reason = str(error).replace(f"{self._root}/", "").replace(str(self._root), ".")
            entry.state = "UNAVAILABLE"
            progress(f"{entry.name}: not served: {entry.reason}")
            return
        if entry.model is not None:
            entry.state = "READY"

    @property
    def ready(self) -> bool:
        """Every model was tried, at least one serves, and the server is not shutting down."""
        return self._loaded.is_set() and not self._draining and any(entry.state == "READY" for entry in self._entries.values())

    @property
    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def ready_models(self) -> list[Model]:
        """The models that serve."""
        return [entry.model for entry in self._entries.values() if entry.model is not None]

    def get(self, name: str, version: str = "") -> Model:
        """The model of that name. Raises NotFoundError, or OverloadedError while it is still loading."""
        entry = self._entries.get(name)
        if entry is None:
            raise NotFoundError(f"unknown model '{name[:100]}'; POST /v2/repository/index lists what is served")
        if entry.state == "LOADING":
            raise OverloadedError(f"model '{name}' is still loading; try again soon", retry_after=5)
        if entry.model is None:
            raise NotFoundError(f"model '{name}' is not served: {entry.reason}")
        if version and version != entry.model.version:
            raise NotFoundError(f"model '{name}' has no version '{version[:20]}'; version {entry.model.version} is served")
        return entry.model

    def versions(self, name: str) -> list[str]:
        """The versions of a model that serve."""
        return [self.get(name).version]

    def index(self, *, ready_only: bool = False) -> list[dict[str, str]]:
        """The repository extension's list."""
        rows = [
            {"name": entry.name, "version": entry.version, "state": entry.state, "reason": entry.reason}
            for entry in self._entries.values()
        ]
        return [row for row in rows if row["state"] == "READY"] if ready_only else rows

    async def statistics(self, models: Sequence[Model]) -> list[dict[str, Any]]:
        """What each of the models has counted, in the form of the statistics extension."""
        return [model.statistics.snapshot() for model in models]

    def drain(self) -> None:
        """Say "not ready" from now on, so that nobody sends more; what arrives is still answered."""
        self._draining = True

    def close(self, *, drain: bool = True) -> None:
        """Answer what was admitted, then end every model's threads."""
        for model in self.ready_models():
            if isinstance(model, TensorModel):
                model.batcher.close(drain=drain)
