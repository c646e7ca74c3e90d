"""A script whose calls of a model no reading reaches, since settings name the code that makes them: a run has shown where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..reading.facts import LoopKind
from ..resolving.resolved import Resolved
from ..rewriting.rewrite import Change, rewritten_scripts
from .migration import Migration

_KINDS: tuple[LoopKind, ...] = ("train", "evaluate", "predict")


def with_reached(migration: Migration, resolved: Resolved, changes: Sequence[Change]) -> tuple[Migration, Resolved]:
    """The same with the script that showed the model among those that call one, where it was not: what stands beside the call
    that it was seen to make is what it reaches, and so what is rewritten there is compared by running it."""
    surveyed, script, loop = migration.surveyed, resolved.script, resolved.loop
    if script is None or loop is None or any(item.path == script.path for item in surveyed.scripts):
        return migration, resolved
    loops = tuple(item for item in surveyed.loops if item.path == loop.path)
    found = replace(script, loops=loops, roles=tuple(kind for kind in _KINDS if any(item.kind == kind for item in loops)))
    surveyed = replace(surveyed, scripts=(*surveyed.scripts, found))
    rewritten = rewritten_scripts(surveyed, changes)
    return replace(migration, surveyed=surveyed, rewritten=rewritten), replace(resolved, script=found)
