"""A tensor model with all its versions and companions: loaded beside what serves, switched in one step, then drained."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ...errors import ArtifactError
from ...runtime.artifact.artifact import versions
from ...runtime.artifact.model_config import FILE, ModelConfig, parse_config_json
from ..config import ServeConfig
from .foreign.files import declared_config, is_packaged
from .foreign.loading import load_foreign
from .loading import load_companion, load_tensor_model
from .memory_bound import MemoryBound
from .models import Model, QueuedModel, TensorModel
from .oversight.shadow import Agreement
from .response_cache import ResponseCache
from .snapshots import Key, Members, Snapshot, Standing, rows
from .versions import VersionPolicy, version_signature

log = logging.getLogger("headrace.serving")

# A folder that is being written while it is read is read again so often, at such intervals.
_ATTEMPTS, _PAUSE_SECONDS = 5, 0.2


@dataclass(frozen=True)
class _Loaded:
    model: Model
    signature: str


class ModelGroup:
    """Brings what serves in line with the folders and with what is asked for. `snapshot` may be read at any time.

    Changes take turns. A version is opened, warmed up and tried out while the old ones serve; then `snapshot` is replaced, so
    that new requests find it, and versions that are no longer there are closed in the background once their last request is
    answered. What cannot be loaded stays out with its reason, and what served before goes on.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        config: ServeConfig,
        report: Callable[[str], None],
        *,
        cache: ResponseCache | None = None,
        memory: MemoryBound | None = None,
        on_change: Callable[[], None] = lambda: None,
        note: Callable[[str, str], None] = lambda name, text: None,
    ) -> None:
        self.name = name
        self._note = note
        self.snapshot = Snapshot()
        self._root = root
        self._config = config
        self._report = report
        self._cache = cache
        self._memory = memory
        self._on_change = on_change
        self._turn = threading.Lock()
        self._guard = threading.Lock()  # of everything below, which is only ever changed inside a turn or by a drain
        self._stopping = threading.Event()
        self._members = Members(tensor=False)
        self._wanted: set[str] = set()
        self._override: ModelConfig | None = None
        self._overridden: tuple[int, ...] | None = None  # the file's own stamp when it was overridden
        self._ready: dict[int, _Loaded] = {}
        self._companions: dict[str, Model] = {}
        self._failed: dict[int, tuple[str, str]] = {}  # a version's signature, and what was wrong with it
        self._found: list[int] = []
        self._reasons: dict[Key, str] = {}
        self._loading: set[Key] = set()
        self._draining: dict[int, tuple[Model, threading.Thread]] = {}
        self._early: QueuedModel | None = None
        self._taken_back: dict[int, tuple[str, Agreement]] = {}  # a version's signature, and what was found of its plan

    def expect(self, members: Members, wanted: set[str]) -> None:
        """List the folders before anything of them is loaded; those that are wanted as being loaded."""
        with self._guard:
            self._members = members
            self._loading = {(name, "") for name in wanted}
        self._renew()

    @property
    def standing(self) -> Standing:
        """What calls have made of it, for `restore`; without waiting for one that is under way."""
        override = self._override
        return Standing(
            wanted=sorted(self._wanted), config=None if override is None else override.message, stamp=self._overridden
        )

    def restore(self, standing: Standing) -> None:
        """Have the configuration that another process served with; `load` then loads the names."""
        if standing.config is not None and standing.stamp is not None:
            with self._turn:
                self._override = parse_config_json(json.dumps(standing.config), where="the configuration given before")
                self._overridden = tuple(standing.stamp)

    def load(
        self,
        members: Members,
        names: set[str],
        *,
        configure: bool = True,
        override: ModelConfig | None = None,
        early: bool = False,
    ) -> dict[Key, str]:
        """Have these names serve as well, from their folders as they are now; reasons for what could not be loaded.

        What failed before is tried once more. With `configure` the tensor model's config is `override`, or else its folder's
        own, if that was written since it was overridden; without, it is taken from where it was taken last. With `early` its
        newest version answers before it is warm.
        """
        with self._turn:
            self._wanted |= names
            self._failed = {}
            stamp = self._config_stamp()
            if configure and (override is not None or stamp != self._overridden):
                self._override, self._overridden = override, stamp if override is not None else None
            return self._update(members, early=early)

    def unload(self, members: Members, names: set[str]) -> None:
        """Have these names serve no longer; what they have accepted is still answered."""
        with self._turn:
            self._wanted -= names
            if self.name in names:
                self._failed, self._override, self._overridden = {}, None, None
            self._update(members, look=False)

    def follow(self, members: Members) -> dict[Key, str]:
        """Have exactly these folders serve, as they are now; what failed before is left until it changes."""
        with self._turn:
            self._wanted = set(members.names(self.name))
            return self._update(members)

    def stop(self) -> None:
        """Begin nothing new from now on."""
        self._stopping.set()

    def close(self, *, drain: bool = True) -> None:
        """Answer what was admitted (or with drain=False reject it), and end every thread."""
        self.stop()
        with self._turn, self._guard:
            models = [loaded.model for loaded in self._ready.values()]
            drains = [thread for _, thread in self._draining.values()]
        for model in models:
            model.close(drain=drain)
        for thread in drains:
            thread.join()

    def _update(self, members: Members, *, look: bool = True, early: bool = False) -> dict[Key, str]:
        """Load what is wanted and not there, and switch. Without `look` folders are left as they are known."""
        with self._guard:
            self._members, self._reasons = members, {}
        ready: dict[int, _Loaded] = {}
        if self.name in self._wanted and members.tensor:
            ready = self._versions(early=early) if look else dict(self._ready)
        if self._stopping.is_set():
            self._retire_early()
            # what serves is closed with the server; what was loaded just now will not serve any more
            for number, loaded in ready.items():
                if self._ready.get(number) is not loaded:
                    loaded.model.close()
            return {(self.name, ""): "the server is shutting down"}
        self._switch(ready, self._over(members, ready))
        return dict(self._reasons)

    def _versions(self, *, early: bool) -> dict[int, _Loaded]:
        """The versions that are to serve, newest first: those that do and are as they were, and those that were loaded now."""
        folder = self._root / self.name
        try:
            declared = self._override or declared_config(folder)
            found = versions(folder)
            if not found and declared.backend == "ensemble":
                found = [1]  # whose empty folder Triton asks for, and git does not keep
            if not found:
                raise ArtifactError(f"{folder} holds no version of a model; expected a numbered folder such as {folder / '1'}")
        except Exception as error:  # whatever is wrong with a folder must not end what serves
            log.debug("reading %s failed", self.name, exc_info=error)
            self._reject("", error)
            return dict(self._ready)
        self._found = found
        policy = VersionPolicy.of(declared)
        ready: dict[int, _Loaded] = {}
        for number in policy.absent(found):
            self._reject(str(number), ArtifactError(f"the version policy names version {number}, which is not there"))
        for number in policy.candidates(found):
            if policy.satisfied(len(ready)) or self._stopping.is_set():
                break
            try:
                ready[number] = self._version(folder, number, declared, early=early and not ready)
            except Exception as error:  # whatever a backend raises keeps this version out, and nothing else
                log.debug("loading %s version %d failed", self.name, number, exc_info=error)
                self._reject(str(number), error)
                if number in self._ready:  # its folder is no good any more, but what was loaded from it still is
                    ready[number] = self._ready[number]
        return ready or dict(self._ready)

    def _version(self, folder: Path, number: int, declared: ModelConfig, *, early: bool) -> _Loaded:
        """The version as it serves, if it lies there unchanged, or else loaded now."""
        serving = self._ready.get(number)
        before = serving or next(iter(self._ready.values()), None)
        for _ in range(_ATTEMPTS):
            signature = version_signature(folder, number, declared)
            if serving is not None and serving.signature == signature:
                return serving
            if number in self._failed and self._failed[number][0] == signature:
                raise ArtifactError(self._failed[number][1])
            try:
                model = self._open(folder, number, before, signature, early=early)
            except Exception as error:  # it counts only if the folder did not change meanwhile
                if version_signature(folder, number, declared) == signature:
                    self._failed[number] = (signature, str(error))
                    raise
            else:
                if version_signature(folder, number, declared) == signature:
                    return _Loaded(model, signature)
                self._retire_early()
                model.close()
            if self._stopping.wait(_PAUSE_SECONDS):
                break
        raise ArtifactError(
            f"version {number} of '{self.name}' changes while it is read; "
            "write a version into another folder, and rename that folder when it is whole"
        )

    def _open(self, folder: Path, number: int, before: _Loaded | None, signature: str, *, early: bool) -> Model:
        key = (self.name, str(number))
        judged, found = self._taken_back.get(number, ("", None))
        with self._guard:
            self._loading.add(key)
        self._renew()
        former = before.model if before else None
        try:
            if not is_packaged(folder):
                return load_foreign(folder, self._config, self._report, version=number, override=self._override, before=former)
            return load_tensor_model(
                folder,
                self._config,
                self._report,
                version=number,
                override=self._override,
                before=former if isinstance(former, TensorModel) else None,
                cache=self._cache,
                memory=self._memory,
                early=self._answer_early if early else None,
                take_back=partial(self._take_back, number),
                taken_back=found if judged == signature else None,
                on_change=self._renew,
            )
        except BaseException:
            self._retire_early()
            with self._guard:
                self._loading.discard(key)
            raise  # what was opened counts as being loaded until it serves: whatever else asks meanwhile is to wait for it

    def _take_back(self, number: int, model: TensorModel, found: Agreement) -> None:
        """Have a version serve in fp32 whose plan answers otherwise more often than was accepted; its plan is not used again
        until the version changes. It serves until the other does."""
        with self._turn:
            serving = self._ready.get(number)
            if serving is None or serving.model is not model or self._stopping.is_set():
                return
            low, high = found.interval
            log.warning(
                "%s: the plan of version %d is taken back: of %d compared answers %s agree with fp32 (%s to %s of all, with "
                "95 %% confidence), less than the %s accepted",
                self.name, number, found.compared,
                *(f"{share:.2%}" for share in (found.agreed / found.compared, low, high, found.accepted)),
            )  # fmt: skip
            self._note(
                self.name,
                f"the plan of version {number} is taken back: {found.agreed} of {found.compared} compared answers agree with "
                f"fp32, less than the {found.accepted:.2%} that were accepted",
            )
            self._taken_back[number] = serving.signature, found
            self._ready[number] = _Loaded(model, "")  # which is no version's, so that it is opened anew
            self._update(self._members)
            if (still := self._ready.get(number)) is not None and still.model is model:  # it could not be
                self._ready[number] = serving

    def _answer_early(self, model: QueuedModel) -> None:
        with self._guard:
            self._early = model
        self._renew()

    def _retire_early(self) -> None:
        """Once another serves in its place, or none."""
        with self._guard:
            model, self._early = self._early, None
        if model is not None:
            self._renew()
            model.leases.retire(self._config.processes.drain_seconds)
            model.close()

    def _over(self, members: Members, ready: Mapping[int, _Loaded]) -> dict[str, Model]:
        """The companions that are to serve, over the newest version of their target."""
        newest = ready[max(ready)].model if ready else None
        target = newest if isinstance(newest, TensorModel) else None
        companions: dict[str, Model] = {}
        for name in members.companions:
            if name not in self._wanted:
                continue
            try:
                companion = load_companion(self._root / name, {self.name: target})
            except Exception as error:  # as above
                log.debug("loading %s failed", name, exc_info=error)
                self._reject("", error, name=name)
                continue
            if (old := self._companions.get(name)) is not None and old.version == companion.version:
                companion.statistics = old.statistics
            companions[name] = companion
        return companions

    def _switch(self, ready: dict[int, _Loaded], companions: dict[str, Model]) -> None:
        kept = {id(loaded.model) for loaded in ready.values()}
        retired = [loaded.model for loaded in self._ready.values() if id(loaded.model) not in kept]
        drains = [threading.Thread(target=self._drain, args=(model,), name=f"headrace-drain-{self.name}") for model in retired]
        with self._guard:
            self._ready = dict(sorted(ready.items(), reverse=True))
            self._companions = companions
            self._loading = set()
            for model, thread in zip(retired, drains, strict=True):
                self._draining[id(model)] = (model, thread)
        self._renew()  # from here on no request finds what is retired
        for thread in drains:
            thread.start()
        self._retire_early()

    def _drain(self, model: Model) -> None:
        if not model.leases.retire(self._config.processes.drain_seconds):
            log.warning(
                "%s version %s is still in use after %g s", model.name, model.version, self._config.processes.drain_seconds
            )
        model.close()
        with self._guard:
            del self._draining[id(model)]
        self._renew()
        self._report(f"{model.name}: the former version {model.version} has answered its last request and is closed")

    def _reject(self, version: str, error: Exception, *, name: str = "") -> None:
        name = name or self.name
        reason = self._reason(error)
        with self._guard:
            self._reasons[name, version] = reason
        self._report(f"{name}: {f'version {version} is ' if version else ''}not served: {reason}")

    def _config_stamp(self) -> tuple[int, ...]:
        """What changes when the folder's config is written anew; nothing where there is none."""
        try:
            found = (self._root / self.name / FILE).stat()
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _reason(self, error: Exception) -> str:
        """An error's message; callers see it, so it names files inside the repository only."""
        return str(error).replace(f"{self._root}/", "").replace(str(self._root), ".")

    def _renew(self) -> None:
        with self._guard:
            members = self._members
            loaded = [*self._companions.values(), *(loaded.model for loaded in self._ready.values())]
            troubles = {(model.name, model.version): why for model in loaded if (why := model.trouble)}
            models: dict[str, dict[str, Model]] = {}
            for model in loaded:
                if (model.name, model.version) not in troubles:
                    models.setdefault(model.name, {})[model.version] = model
            draining = [(model.name, model.version) for model, _ in self._draining.values()]
            early, entries = self._early, []
            for name in members.names(self.name):
                entries += rows(
                    name,
                    models.get(name, {}),
                    found=[str(number) for number in self._found] if name == self.name else (),
                    loading=self._loading,
                    draining=draining,
                    reasons=self._reasons | troubles,
                    troubled=troubles,
                    idle="the version policy leaves this version out" if name in self._wanted else "not loaded",
                )
            self.snapshot = Snapshot(models=models, entries=tuple(entries), early=early)
        self._on_change()
