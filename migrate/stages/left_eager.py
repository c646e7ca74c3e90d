"""Leave eager what no graph can hold: calls of a model that cannot be captured stay as they were, and a finding says why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..proving.verify import obstacle_in
from ..reading.facts import Loop, Script, Survey
from ..resolving.resolved import Resolved
from ..rewriting.rewrite import Change, Rewritten, rewritten_scripts
from .migration import Migration
from .package_model import ModelOutcome
from .scripts.migrated import ScriptOutcome, run_migrated
from .scripts.originals import Originals


@dataclass(frozen=True, kw_only=True)
class Migrated:
    """The changes that stay, the rules that changed each script by them, and how the migrated scripts fared."""

    changes: Sequence[Change]
    rewritten: Mapping[str, Sequence[str]]
    outcomes: Mapping[str, ScriptOutcome]


def run_or_leave_eager(
    migration: Migration,
    changes: Sequence[Change],
    originals: Originals,
    asked: Sequence[Resolved],
    models: Sequence[ModelOutcome],
    rewrite: Callable[[Mapping[Loop, str]], Rewritten],
) -> Migrated:
    """Run the migrated scripts; those whose model cannot be captured are rewritten anew, without a graph of it, and run again.

    `rewrite` applies the rules, leaving the given calls eager.
    """
    outcomes = run_migrated(migration, changes, originals)
    eager = calls_of_no_graph(migration.surveyed, asked, models, outcomes)
    if not eager:
        return Migrated(changes=changes, rewritten=migration.rewritten, outcomes=outcomes)
    changes = rewrite(eager).changes
    rewritten = rewritten_scripts(migration.surveyed, changes)
    again: list[str] = []
    for script in migration.surveyed.scripts:
        if script.path not in outcomes or not (why := [eager[loop] for loop in script.loops if loop in eager]):
            continue
        if script.path in rewritten:
            again.append(script.path)
        else:
            outcomes[script.path] = ScriptOutcome(status="not-run", why=f"left as it was, because {why[0]}")
    runs = Originals(runs={path: run for path, run in originals.runs.items() if path in again})
    outcomes |= run_migrated(replace(migration, rewritten=rewritten), changes, runs, last=True)
    return Migrated(changes=changes, rewritten=rewritten, outcomes=outcomes)


def calls_of_no_graph(
    surveyed: Survey,
    asked: Sequence[Resolved],
    models: Sequence[ModelOutcome],
    outcomes: Mapping[str, ScriptOutcome],
) -> dict[Loop, str]:
    """The calls that are to stay eager, and why: of scripts that were run and stopped where their model was captured, of the
    script whose model could not be packaged for that, and then also of those that could not be run to see."""
    found: dict[Loop, str] = {}
    obstacle = _obstacle(models)
    own = asked[0].script.path if asked and asked[0].script is not None else None
    for script in surveyed.scripts:
        outcome = outcomes.get(script.path)
        if outcome is not None and outcome.uncaptured is not None:
            why = f"the model cannot be captured: {outcome.uncaptured}"
        elif obstacle is not None and script.path == own:
            why = f"the model cannot be captured: {obstacle}"
        elif obstacle is not None and outcome is None:
            name = models[0].model.name
            why = f"this script was not run, and {name}, the repository's model, cannot be captured: {obstacle}"
        else:
            continue
        for loop in _graph_calls(script):
            found.setdefault(loop, why)
    return found


def _obstacle(models: Sequence[ModelOutcome]) -> str | None:
    """Why the script's own model cannot be captured; None where it, or another one, was."""
    if not models or any(item.model.captured for item in models) or not models[0].model.built:
        return None
    return obstacle_in(models[0].model.parity.why)


def _graph_calls(script: Script) -> list[Loop]:
    """The calls that become a graph's; a training step is captured in training mode, and stays eager by itself."""
    return [loop for loop in script.loops if loop.kind != "train"]
