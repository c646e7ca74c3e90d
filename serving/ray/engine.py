"""The deployment that computes: one data plane per replica, whose models Ray Serve's multiplexing brings and takes away."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from ...errors import ArtifactError, ClusterError, RequestError
from ..config import ServeConfig
from ..http.app import create_app
from ..images.decode_pool import DecodePool
from ..models.leases import Leases
from ..models.repository import ModelRepository
from ..plane.data_plane import DataPlane
from .message import Call, Reply, respond

log = logging.getLogger("headrace.serving")

# A model that cannot be loaded is not tried again for so long: each attempt costs seconds, and a place of one that serves.
_RETRY_SECONDS = 30.0


class Engine:
    """One replica, to be deployed by Ray Serve. `groups` are the tensor models, of which it holds `capacity` at a time.

    Raises ClusterError where its node cannot read the models folder.
    """

    def __init__(self, config: ServeConfig, groups: Mapping[str, str], capacity: int) -> None:
        import ray
        from ray import serve

        self._replica = str(serve.get_replica_context().replica_tag).encode()
        self._groups = tuple(dict.fromkeys(groups.values()))
        self._capacity = capacity
        self._drain_seconds = config.processes.drain_seconds
        try:
            self._repository = ModelRepository(config)
            self._repository.load()
        except (ArtifactError, OSError) as error:
            raise ClusterError(
                f"node {ray.util.get_node_ip_address()} of the cluster cannot serve: {error}. Every node needs the models "
                "folder under the same path, as on a file system that all of them mount"
            ) from error
        plane = DataPlane(self._repository, DecodePool(config.images.decoders, limit=config.batching.queue()), config)
        self._app = create_app(plane)

        async def load(group: str) -> MultiplexedModel:
            return await self._load(group)

        # Ray Serve keeps its state at this function, which a bound method would not let it.
        self._load_multiplexed: Callable[[str], Coroutine[Any, Any, MultiplexedModel]] = serve.multiplexed(
            load, max_num_models_per_replica=capacity
        )
        self._loading: dict[str, asyncio.Task[MultiplexedModel]] = {}
        self._failed: dict[str, float] = {}

    async def reconfigure(self, _: Any) -> None:
        """Load as many models as there is room for. Ray Serve calls this before it sends the replica any request.

        Raises ArtifactError, with the reasons, when none can be served.
        """
        held = 0
        for group in self._groups:
            if held == self._capacity:
                break
            held += await self._find(group) is not None
        if not held:
            reasons = "\n".join(f"  {row['name']}: {row['reason']}" for row in self._repository.index())
            raise ArtifactError(f"none of the models can be served:\n{reasons}")

    async def answer(self, call: Call) -> Reply:
        """Answer a request, after loading the model that it is routed by where that is not here."""
        from ray import serve

        group = serve.get_multiplexed_model_id()
        model = await self._find(group) if group else None
        while model is not None and not model.leases.acquire():  # it was dropped between the two
            model = await self._find(group)
        try:
            reply = await respond(self._app, call)
        finally:
            if model is not None:
                model.leases.release()
        return reply._replace(headers=[*reply.headers, (b"headrace-replica", self._replica)])

    async def index(self) -> list[dict[str, str]]:
        """The repository extension's list of this replica."""
        return self._repository.index()

    async def _find(self, group: str) -> MultiplexedModel | None:
        """The model, loaded now if it is not here; None when it cannot be, which the repository then says why.

        Several requests for one model wait for one loading, which goes on when they are given up.
        """
        if time.monotonic() < self._failed.get(group, 0.0):
            return None
        task = self._loading.get(group)
        if task is None:
            task = self._loading[group] = asyncio.create_task(self._load_multiplexed(group))
            task.add_done_callback(lambda done: self._on_loaded(group, done))
        try:
            return await asyncio.shield(task)
        except RequestError:
            return None

    def _on_loaded(self, group: str, done: asyncio.Task[MultiplexedModel]) -> None:
        del self._loading[group]
        if not done.cancelled() and (error := done.exception()) is not None:
            log.warning("%s cannot be loaded: %s", group, error)

    async def _load(self, group: str) -> MultiplexedModel:
        """Raises InputError with the reasons when the model cannot be served."""
        try:
            await self._repository.load_model(group)
        except RequestError:
            self._failed[group] = time.monotonic() + _RETRY_SECONDS
            raise
        self._failed.pop(group, None)
        return MultiplexedModel(group, self._repository, self._drain_seconds)


class MultiplexedModel:
    """A tensor model with its companions. A request uses it between `leases.acquire()` and `leases.release()`.

    Ray Serve awaits `__del__` of what it drops. Here that is an attribute, and no method of the class, so that Python does not
    call it another time when the object goes away.
    """

    def __init__(self, group: str, repository: ModelRepository, drain_seconds: float) -> None:
        self.group = group
        self.leases = Leases()
        self._repository = repository
        self._drain_seconds = drain_seconds
        self.__del__ = self.leave

    async def leave(self) -> None:
        """Wait for the requests that use the model, for `drain_seconds` at most, and unload it."""
        if not await asyncio.to_thread(self.leases.retire, self._drain_seconds):
            log.warning("%s is dropped while it is in use after %g s", self.group, self._drain_seconds)
        await self._repository.unload_model(self.group)
