"""The models folder: which models it holds, which of them serve, why the others do not, and how that changes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from ...errors import ArtifactError, InputError, NotFoundError, OverloadedError, UnsupportedError
from ...runtime.artifact.model_config import ModelConfig, parse_config_json
from ..config import ServeConfig
from .folder_watch import FolderWatch
from .foreign.ensemble import EnsembleModel, trouble
from .foreign.files import declared_config
from .leases import leased
from .live_stats import model_live_stats
from .memory_bound import MemoryBound
from .model_group import ModelGroup
from .models import Model
from .notifications import Notifications
from .oversight.service_history import STEP_SECONDS, ServiceHistory
from .repository_protocol import lacking
from .response_cache import ResponseCache
from .scan import scan, steps_below
from .snapshots import Entry, Members, Standing

log = logging.getLogger("headrace.serving")

# Control calls of different models that may run side by side; those of one model take turns.
_CONTROL_THREADS = 4
# Models that are opened side by side at the start; more would hold more of them in memory twice.
_LOADERS = 4
# A folder that changed is left alone until it has been the same for this long, or for half of the polling interval.
_SETTLE_SECONDS = 0.5


class ModelRepository:
    """Models by name and version, from one folder, under Triton's control modes.

    "none": what is there at the start. "explicit": `start_load` and `start_unload`. "poll": the folder is looked at again and
    again, and followed. Names in requests are only ever compared with the names that were found, so none can lead out of the
    folder. Any thread may call any method; only `load` and `close` take long. `on_change` is called, in any thread, whenever
    something begins or ceases to serve or the index changes; what is retired is not closed before its `leases` are released.
    With `restored`, what `standing` said in a process that this one follows, that is what serves from the start.
    """

    def __init__(
        self,
        config: ServeConfig,
        on_change: Callable[[], None] = lambda: None,
        *,
        restored: Mapping[str, Standing] | None = None,
    ) -> None:
        self._config = config
        self._restored = restored
        self.notifications = Notifications(on_change)
        self.past = ServiceHistory()
        self._root = config.models.resolve()
        self._mode = config.control.model_control_mode
        self._loaded = threading.Event()
        self._draining = threading.Event()
        self._scanning = threading.Lock()
        self._groups: dict[str, ModelGroup] = {}
        self._by_name: Mapping[str, ModelGroup] = {}
        self._progress: Callable[[str], None] = partial(log.info, "%s")
        self.cache = ResponseCache(config.batching.response_cache_bytes) if config.batching.response_cache_bytes else None
        self._memory = MemoryBound(config.processes.memory_bytes)
        self._control = ThreadPoolExecutor(_CONTROL_THREADS, thread_name_prefix="headrace-control")
        self._poller: threading.Thread | None = None
        if not self._root.is_dir():
            raise ArtifactError(
                f"{config.models} is not a folder; give the models folder that headrace migrate or compile wrote"
            )
        members = self._rescan()
        names = {name for group, found in members.items() for name in found.names(group)}
        if not names and self._mode == "none":
            raise ArtifactError(f"{config.models} holds no models; write one with headrace migrate or headrace compile")
        if restored is None and (unknown := sorted(set(config.control.load_models) - names - {"*"})):
            raise ArtifactError(
                f"{config.models} holds no model {unknown[0]!r} to load; it has {', '.join(sorted(names)) or 'none'}"
            )
        for name, group in self._groups.items():
            group.expect(members[name], self._wanted_at_start(name, members[name]))
            if restored is not None and name in restored:
                group.restore(restored[name])

    def load(self, progress: Callable[[str], None] = lambda _: None) -> None:
        """Load what is to serve from the start, some models side by side; one that fails stays out with its reason. In
        poll mode the folder is followed from then on. Raises ArtifactError when none of those to load can be served."""
        self._progress = progress
        threading.Thread(target=self._remember, name="headrace-history", daemon=True).start()
        watch = FolderWatch(self._root)
        members = self._rescan()
        wanted = {name: self._wanted_at_start(name, found) for name, found in members.items()}

        def load(name: str) -> None:
            if wanted[name] and not self._draining.is_set():
                self._groups[name].load(members[name], wanted[name], configure=self._restored is None, early=True)

        with ThreadPoolExecutor(min(_LOADERS, os.cpu_count() or 1), thread_name_prefix="headrace-load") as pool:
            for loading in [pool.submit(load, name) for name in wanted]:
                loading.result()
        if self._draining.is_set():
            return
        if self._mode == "poll":
            self._poller = threading.Thread(target=self._poll, args=(watch,), name="headrace-poll", daemon=True)
            self._poller.start()
        self._loaded.set()
        self.notifications.notify()
        if any(wanted.values()) and self._mode != "poll" and not self.ready_models() and not self._draining.is_set():
            reasons = "\n".join(f"  {entry.name}: {entry.reason}" for entry in self.entries)
            raise ArtifactError(f"none of the models in {self._config.models} can be served:\n{reasons}")

    def _wanted_at_start(self, group: str, members: Members) -> set[str]:
        names = set(members.names(group))
        if self._restored is not None:
            return names & set(self._restored.get(group, Standing()).wanted)
        if self._mode != "explicit" or "*" in self._config.control.load_models:
            return names
        given = set(self._config.control.load_models)
        asked = names & (given | steps_below(self._root, given))
        return _with_companions(group, asked, names)

    @property
    def ready(self) -> bool:
        """The first loading is done, the server is not shutting down, and something serves; under explicit control, whoever
        unloads the last model is not told that the server is broken."""
        serving = self._mode == "explicit" or any(group.snapshot.models for group in self._by_name.values())
        return self._loaded.is_set() and not self._draining.is_set() and serving

    def standing(self) -> dict[str, Standing]:
        """What control calls have made of every group, for `restored` in a process that follows this one."""
        return {name: group.standing for name, group in list(self._groups.items())}

    @property
    def entries(self) -> list[Entry]:
        """Every version of every model with its state, sorted by name."""
        groups = dict.fromkeys(self._by_name.values())
        entries = (self._judged(entry, group) for group in groups for entry in group.snapshot.entries)
        return sorted(entries, key=lambda entry: entry.name)

    def _judged(self, entry: Entry, group: ModelGroup) -> Entry:
        """An ensemble's entry says so where it cannot run with what else serves."""
        model = group.snapshot.models.get(entry.name, {}).get(entry.version)
        why = trouble(model, self._loaded_model) if isinstance(model, EnsembleModel) else ""
        return replace(entry, state="UNAVAILABLE", reason=why) if why else entry

    def ready_models(self) -> list[Model]:
        """The models that serve, every version of them."""
        named = {name: group.snapshot.models.get(name, {}) for name, group in sorted(self._by_name.items())}
        models = [model for versions in named.values() for model in versions.values()]
        return [model for model in models if not (isinstance(model, EnsembleModel) and trouble(model, self._loaded_model))]

    def get(self, name: str, version: str = "", *, early: bool = False) -> Model:
        """The model of that name, its newest version that serves unless one is named. With `early` also one that can answer,
        though it is still being measured. Raises NotFoundError, or OverloadedError while it is still loading."""
        model = self._loaded_model(name, version, early=early)
        if isinstance(model, EnsembleModel) and (why := trouble(model, self._loaded_model)):
            raise lacking(name, version, {}, [{"state": "UNAVAILABLE", "reason": why}])
        return model

    def _loaded_model(self, name: str, version: str, *, early: bool = False) -> Model:
        """The same, where an ensemble's steps may be missing."""
        group = self._by_name.get(name)
        if group is None:
            raise lacking(name, version, {}, ())
        snapshot = group.snapshot
        versions = snapshot.models.get(name, {})
        if model := versions.get(version) if version else next(iter(versions.values()), None):
            return model
        if early and (model := snapshot.early) is not None and name == model.name and version in ("", model.version):
            return model
        raise lacking(name, version, versions, [vars(entry) for entry in snapshot.entries if entry.name == name])

    def use(self, name: str, version: str = "") -> contextlib.AbstractContextManager[Model]:
        """What `get` gives, early too, which is not closed before the block ends, whatever is loaded or unloaded meanwhile."""
        return leased(lambda: self.get(name, version, early=True))

    def versions(self, name: str) -> list[str]:
        """The versions of a model that serve, newest first."""
        self.get(name)
        return list(self._by_name[name].snapshot.models.get(name, {}))

    def index(self, *, ready_only: bool = False) -> list[dict[str, str]]:
        """The repository extension's list."""
        return [dict(vars(entry)) for entry in self.entries if not ready_only or entry.state == "READY"]

    async def statistics(self, models: Sequence[Model]) -> list[dict[str, Any]]:
        """What each of the models has counted, in the form of the statistics extension."""
        return [model.statistics.snapshot() for model in models]

    async def live_stats(self, models: Sequence[Model]) -> list[dict[str, Any]]:
        """What each of the models does right now."""
        return [model_live_stats(model) for model in models]

    async def history(self) -> dict[str, Any]:
        """What every model did over the last hour and day."""
        return self.past.to_json()

    async def load_model(self, name: str, config: str | None = None) -> None:
        """`start_load`, to its end; when this is cancelled, loading goes on."""
        await asyncio.shield(asyncio.wrap_future(self.start_load(name, config)))

    async def unload_model(self, name: str, *, dependents: bool = False) -> None:
        """`start_unload`, to its end; when this is cancelled, unloading goes on."""
        await asyncio.shield(asyncio.wrap_future(self.start_unload(name, dependents=dependents)))

    def start_load(self, name: str, config: str | None = None) -> Future[None]:
        """Begin to load or renew a model, with its companions or, for a companion, its target. `config` is JSON to use instead
        of its `config.pbtxt`.

        Raises UnsupportedError unless control is explicit. The future has NotFoundError for a name that is not in the folder,
        and InputError with the reasons for one that cannot be loaded; what served before does so still.
        """
        return self._start(partial(self._load_model, name, config), name)

    def start_unload(self, name: str, *, dependents: bool = False) -> Future[None]:
        """Begin to unload a model with its companions; of a companion only itself, or with `dependents` its target as well. The
        future is done once no new request finds it; accepted ones are answered after that. Raises as `start_load` does."""
        return self._start(partial(self._unload_model, name, dependents), name)

    def _start(self, work: Callable[[], None], name: str) -> Future[None]:
        if self._mode != "explicit":
            raise UnsupportedError(
                f"cannot load or unload '{name[:100]}': explicit model load / unload is not allowed if polling is enabled, or "
                "model control is not enabled at all; start the server with --model-control-mode explicit"
            )
        if self._draining.is_set():
            raise OverloadedError("the server is shutting down")
        return self._control.submit(work)

    def _load_model(self, name: str, config: str | None) -> None:
        for step in sorted(steps_below(self._root, {name})):  # as Triton does for an ensemble
            if not any(step in group.snapshot.models for group in self._groups.values()):
                self._load_one(step, None)
        self._load_one(name, config)
        # what serves, and not `get`: another call may have unloaded it since, which is no failure of this one
        group = self._by_name.get(name)
        for model in group.snapshot.models.get(name, {}).values() if group else ():
            if isinstance(model, EnsembleModel) and (why := trouble(model, self._loaded_model)):
                error = lacking(name, "", {}, [{"state": "UNAVAILABLE", "reason": why}])
                raise InputError(f"failed to load '{name}', load failed for model '{name}': {error}")

    def _load_one(self, name: str, config: str | None) -> None:
        try:
            group, members = self._find(name)
        except NotFoundError as error:
            raise NotFoundError(f"failed to load '{name[:100]}', failed to poll from model repository: {error}") from None
        names = set(members.names(group.name))
        override = None
        if config is not None:
            if name != group.name:
                raise UnsupportedError(f"'{name}' has no configuration of its own; give one when loading '{group.name}'")
            try:
                override = _completed(parse_config_json(config, where="parameter 'config'"), declared_config(self._root / name))
            except ArtifactError as error:
                raise InputError(f"failed to load '{name}': {error}") from error
        reasons = group.load(
            members, _with_companions(group.name, {name}, names), configure=name == group.name, override=override
        )
        concerned = {key: reason for key, reason in reasons.items() if key[0] in (name, group.name)}
        if concerned:
            listed = "; ".join(
                f"{f'version {version}: ' if version else ''}{reason}" for (_, version), reason in concerned.items()
            )
            raise InputError(f"failed to load '{name}', load failed for model '{name}': {listed}")

    def _unload_model(self, name: str, dependents: bool) -> None:
        serving = {step for step in steps_below(self._root, {name}) if step in self._by_name} if dependents else set()
        for each in (name, *sorted(serving)):
            self._unload_one(each, dependents)

    def _unload_one(self, name: str, dependents: bool) -> None:
        group, members = self._find(name, gone=True)
        whole = dependents or name == group.name or not members.tensor
        group.unload(members, {name, group.name, *members.companions} if whole else {name})

    def _find(self, name: str, *, gone: bool = False) -> tuple[ModelGroup, Members]:
        """The group of a name in the folder or, with `gone`, of one that serves though its folder went away."""
        members = self._rescan()
        for group, found in members.items():
            if name in found.names(group):
                return self._groups[group], found
        if gone and name in self._by_name:
            return self._by_name[name], Members(tensor=False)
        raise NotFoundError(
            f"Request for unknown model: '{name[:100]}' is not found; POST /v2/repository/index lists the repository's models"
        )

    def _rescan(self) -> Mapping[str, Members]:
        """Look at the folder again. Groups that went from it stay as long as they serve."""
        with self._scanning:
            members = scan(self._root)
            for name in members:
                if name not in self._groups:
                    self._groups[name] = ModelGroup(
                        name,
                        self._root,
                        self._config,
                        self._report,
                        cache=self.cache,
                        memory=self._memory,
                        on_change=self.notifications.notify,
                        note=self.past.note,
                    )
                    self._groups[name].expect(members[name], set())
            by_name = {served: group for group in self._groups.values() for served in group.snapshot.models}
            by_name |= {name: self._groups[group] for group, found in members.items() for name in found.names(group)}
            self._by_name = by_name
            return members

    def _report(self, line: str) -> None:
        self._progress(line)
        name, colon, text = line.partition(": ")
        self.past.note(name if colon else "", text or line)

    def _remember(self) -> None:
        """Until the server stops."""
        while not self._draining.wait(STEP_SECONDS):
            self.past.look(self.ready_models())

    def _poll(self, watch: FolderWatch) -> None:
        trouble = ""
        while not self._draining.wait(self._config.control.repository_poll_seconds):
            try:
                self._follow(watch)
            except Exception as error:  # the folder may be away for a while; what serves goes on
                if repr(error) != trouble:  # said once, not at every look
                    trouble = repr(error)
                    known = isinstance(error, OSError)
                    log.error("the models folder cannot be followed: %s", error, exc_info=None if known else error)
            else:
                if trouble:
                    log.info("the models folder can be followed again")
                trouble = ""

    def _follow(self, watch: FolderWatch) -> None:
        """Bring the groups in line whose folders changed."""
        pause = min(_SETTLE_SECONDS, self._config.control.repository_poll_seconds / 2)
        changed, restless = watch.changes(lambda: self._draining.wait(pause))
        if not changed:
            return
        before = self._by_name
        members = self._rescan()
        for name, group in list(self._groups.items()):
            own = members.get(name, Members(tensor=False))
            names = {*own.names(name), *(known for known, of in before.items() if of is group)}
            if names & changed and not names & restless:
                group.follow(own)
        self._rescan()

    def drain(self) -> None:
        """Say "not ready" from now on, so that nobody sends more; what arrives is still answered."""
        first = not self._draining.is_set()
        self._draining.set()
        for group in list(self._groups.values()):
            group.stop()
        if first:
            self.notifications.notify()

    def close(self, *, drain: bool = True) -> None:
        """Answer what was admitted, then end every thread."""
        self.drain()
        self._control.shutdown(cancel_futures=True)
        if self._poller is not None:
            self._poller.join()
        for group in self._groups.values():
            group.close(drain=drain)


def _completed(given: ModelConfig, own: ModelConfig) -> ModelConfig:
    """A config that may leave out what the model's own says of its kind, batches and tensors, as Triton fills that in."""
    implied = ("backend", "platform", "max_batch_size", "input", "output")
    missing = {name: own.message[name] for name in implied if name in own.message and not given.message.get(name)}
    return parse_config_json(json.dumps({**given.message, **missing}), where="parameter 'config'")


def _with_companions(group: str, asked: set[str], names: set[str]) -> set[str]:
    """What loading these names means: a tensor model brings its companions, a companion its target."""
    if not asked:
        return set()
    return names if group in asked else asked | {group} & names
