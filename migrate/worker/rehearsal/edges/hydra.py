"""Hydra's configurations: the options that a script leaves to its users, and plugins that are not installed.

How a script's configuration is logged, launched or searched changes no result.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from ..stage import Stage
from .arguments import OVERRIDES

_SILENT = {"version": 1, "root": None, "disable_existing_loggers": False}
_INSTEAD: dict[str, dict[str, Any]] = {
    "hydra/job_logging": _SILENT,
    "hydra/hydra_logging": _SILENT,
    "hydra/launcher": {"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"},
    "hydra/sweeper": {
        "_target_": "hydra._internal.core_plugins.basic_sweeper.BasicSweeper",
        "max_batch_size": None,
        "params": None,
    },
}
"""What Hydra itself has in place of a plugin's option, by the group."""
_MISSING = re.compile(r"Could not find '(?P<group>hydra/\w+)/(?P<name>\w+)'")
_KEY = "hydra_options"
_UNCHOSEN = re.compile(r"You must specify '(?P<group>[\w/@.-]+)', e\.g,.*\nAvailable options:\n\s*(?P<first>\S+)")
"""What is said of a group of which the defaults choose nothing (`- model: ???`)."""


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    stage.when_imported("hydra.core.config_store", lambda library: _store(stage, library.ConfigStore.instance()))
    yield


def lesson(stage: Stage, error: BaseException) -> bool:
    """Of options that the user is to choose the first is taken; Hydra's own stands in for that of a plugin."""
    if (unchosen := _UNCHOSEN.search(str(error))) is not None:
        return stage.add(OVERRIDES, f"{unchosen['group']}={unchosen['first']}")
    found = _MISSING.search(str(error))
    return found is not None and found["group"] in _INSTEAD and stage.add(_KEY, [found["group"], found["name"]])


def _store(stage: Stage, store: Any) -> None:
    for group, name in stage.learned.get(_KEY, ()):
        stage.note("hydra", f"the plugin that has {group}/{name} is not installed; Hydra's own stood in")
        store.store(group=group, name=name, node=dict(_INSTEAD[group]))
