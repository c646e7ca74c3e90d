"""What is asked of a rehearsal and what it answers: plain values, written as JSON between two processes.

A rehearsal runs a user's script as its user would, with stand-ins at the edges of its world: data that is not here, a GPU,
other processes, the network, and time. See `worker/rehearsal`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self

from .worker_protocol import read_as

WANTING = "is not here, and the script takes"
"""Part of what a rehearsal says that was stopped for the want of what only a real checkpoint holds."""
GUESSED = "classes, as many as nothing states"
"""Part of what a rehearsal says that made a folder for each class and had to guess how many there are."""
OF_MIGRATED = "the migrated script:"
"""After these words stands what the migrated script ended with, at its own lines."""
Ended = Literal["finished", "taken", "enough", "stopped"]
"""Ran to its end; ended by a watcher that had what it wanted; ended after enough of it; stopped by an error."""


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """One script, and how far it is to be run.

    `script` is relative to `root`, or with `module` the name of a module as `python -m` takes it. `directory` is the folder to
    run in, `root` unless given. `made` is the folder for whatever is made for the script: a second rehearsal with it finds the
    same files. `standins` are the names of the edges that may be stood in for; None means all.
    """

    root: str
    script: str
    made: str
    argv: tuple[str, ...] = ()
    directory: str | None = None
    module: bool = False
    seed: int = 0
    batches: int = 2
    """Batches that each pass over a loader yields."""
    batch_size: int = 4
    """The largest batch that a loader makes."""
    epochs: int = 1
    classes: int | None = None
    """How many classes made data has, where the caller knows and no run has shown another number."""
    checkpoint: str | None = None
    """The file of weights that the user gave: what a checkpoint that the script looks for, and that is not here, holds."""
    image: tuple[int, int] | None = None
    """Height and width of made images, where the caller knows."""
    report: str | None = None
    """A file that holds the report from the first stand-in on, also when the process dies."""
    learned: str | None = None
    """What an earlier rehearsal had learned when it ended, as its report has it; else what the last one in `made` had."""
    caches: tuple[str, ...] = ()
    """Folders of the user's where downloaded weights may lie: torch hub's, Hugging Face's."""
    standins: tuple[str, ...] | None = None
    probes: tuple[str, ...] = ()
    """Images, as files, that an application's routes are called with, beside the made one."""
    answers: str | None = None
    """The file that holds what the routes answered to those."""
    ranks: int = 1
    """Processes of which this is one, all with the same script,"""
    rank: int = 0
    """its number among them, from 0,"""
    group: str | None = None
    """and the beginning of the files by which they find each other."""
    replicas: int = 1
    """GPUs that nn.DataParallel is to find."""
    beside: float | None = None
    """When a process began that builds beside this one what reading the sources led to, in seconds since 1970; None: none."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        return read_as(cls, text)


def kept_in(cache: Path, script: str, argv: Sequence[str]) -> Path:
    """The folder for whatever is made for a script that is called so: what one run of it learned, the next one finds there."""
    return cache / "rehearsals" / hashlib.sha256(json.dumps([script, *argv]).encode()).hexdigest()[:12]


def saved_by_training(made: str | Path) -> list[Path]:
    """The checkpoints that scripts of the same migration saved when they were rehearsed: what its other scripts look for."""
    return sorted(Path(made).parent.glob("*.saved.pth"))


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """Something that stood in for a part of the script's world: at which edge, what, and the user's line that met it."""

    edge: str
    what: str
    where: str | None = None


@dataclass(frozen=True, kw_only=True)
class RehearsalReport:
    """How a rehearsal ended. `why`, `where` and `remedy` say of a script that was stopped what stopped it; `remedy`
    also what would help one that came to its end without what was looked for."""

    ended: Ended
    standins: tuple[StandIn, ...] = ()
    why: str | None = None
    where: str | None = None
    remedy: str | None = None
    attempts: int = 1
    stubs: tuple[str, ...] = ()
    """Libraries that are not installed and that the script uses: what it takes from them does nothing, and is zero."""
    user_weights: bool = True
    """False when weights that are not the user's stood in for some that could not be had."""

    saved_over: tuple[str, ...] = ()
    """Files of the repository, relative to its root, in which the script saved weights where there were others."""
    learned: str | None = None
    """What was learned by the time it ended: a rehearsal that is asked for with it makes the same."""

    @property
    def ok(self) -> bool:
        return self.ended != "stopped"

    @property
    def user_data(self) -> bool:
        """Whether all data that the script read, or was sent, was the user's own."""
        return not any(item.edge in ("data", "functions", "servers") for item in self.standins)

    def to_json(self) -> str:
        # Written again and again with a thousand stand-ins: `asdict` takes ten times as long.
        return json.dumps(vars(self), default=vars)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises ValueError where the text is no such report: whoever writes it may be hostile."""
        return read_as(cls, text)
