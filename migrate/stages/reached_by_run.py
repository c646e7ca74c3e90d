"""Models and calls that no reading tells, but that a run has shown: settings name the code that makes a call, or a network is
put together of parts that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..reading.facts import LoopKind
from ..resolving.resolved import Resolved
from ..rewriting.rewrite import Change, rewritten_scripts
from ..survey.survey import Survey, project_index
from .migration import Migration

_KINDS: tuple[LoopKind, ...] = ("train", "evaluate", "predict")


def unread_classes(surveyed: Survey, resolved: Resolved) -> frozenset[str]:
    """The name of the model's class where it is the repository's, and its source does not tell that it is a classifier."""
    live, table = resolved.recipe.live, project_index(surveyed).table
    named = [model for model in table.classes.values() if live is not None and model.node.name == live.class_name]
    return frozenset(model.node.name for model in named[:1] if not any(map(table.classifier_shaped, named)))


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
