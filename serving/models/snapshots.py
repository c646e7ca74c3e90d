"""What requests see of a tensor model and its companions: values that are replaced as a whole, never changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .models import Model, QueuedModel

Key = tuple[str, str]  # a model's name and version, the latter "" where none is known


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One version of one model in the index. `state` is Triton's: "LOADING", "READY", "UNLOADING" or "UNAVAILABLE".

    `reason` says why it does not serve or, of one that does, why it is not what lies in its folder now. `version` is "" where
    none is known.
    """

    name: str
    version: str = ""
    state: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Members:
    """The folders of a group: whether the tensor model's own is there, and its companions' names."""

    tensor: bool
    companions: tuple[str, ...] = ()

    def names(self, name: str) -> tuple[str, ...]:
        """All of them, the tensor model called `name` first."""
        return (name, *self.companions) if self.tensor else self.companions


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What control calls have made of a group, as JSON can hold it: its names that are to serve, and the configuration that
    stands for its `config.pbtxt`, with the stamp of that file then."""

    wanted: Sequence[str] = ()
    config: Mapping[str, Any] | None = None
    stamp: Sequence[int] | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """`models` has each name's versions that serve, newest first; `entries` are the rows of the index. `early` answers requests
    for a tensor model that is still being measured, and is not ready."""

    models: Mapping[str, Mapping[str, Model]] = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    early: QueuedModel | None = None


def rows(
    name: str,
    serving: Collection[str],
    *,
    found: Collection[str] = (),
    loading: Collection[Key] = (),
    draining: Collection[Key] = (),
    troubled: Collection[Key] = (),
    reasons: Mapping[Key, str],
    idle: str,
) -> list[Entry]:
    """The rows of one name, newest version first. `found` are the versions in its folder; `idle` is why those do not serve
    that nothing else is known of, and those `troubled` are to serve again soon."""
    about = {version for named, version in (*loading, *draining, *reasons) if named == name and version}
    known = sorted({*serving, *found, *about}, key=int, reverse=True)
    general = reasons.get((name, ""), "")

    def row(version: str) -> Entry:
        reason = reasons.get((name, version), "")
        if version in serving:
            return Entry(name=name, version=version, state="READY", reason=reason or general)
        if (name, version) in troubled:
            return Entry(name=name, version=version, state="LOADING", reason=reason)
        if (name, version) in loading or ((name, "") in loading and not (reason or general)):
            return Entry(name=name, version=version, state="LOADING")
        if (name, version) in draining:
            return Entry(name=name, version=version, state="UNLOADING", reason="its last requests are being answered")
        return Entry(name=name, version=version, state="UNAVAILABLE", reason=reason or general or idle)

    if known:
        return [row(version) for version in known]
    if (name, "") in loading:
        return [Entry(name=name, state="LOADING")]
    return [Entry(name=name, state="UNAVAILABLE", reason=general or idle)]
