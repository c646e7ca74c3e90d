"""Command lines that Click and Typer make of functions: which of several commands is called, and what it must be told."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..making import Maker
from ..stage import Stage

_UNFIT = "unfit_commands"
"""Learned: commands of groups that were guessed, and led to no model."""
_WANTED = "wants_command"
"""Learned: a group that does without a command of its own showed no model."""
_MOST = 3
_FILE = "image.jpg"
_BY_KIND = {"integer": "1", "int": "1", "float": "0.1"}


def stand_in(stage: Stage, guess: Callable[[str, str], str], uses: Sequence[re.Pattern[str]]) -> None:
    """Have what a command must be told guessed; of several commands the first is called whose name fits one of `uses`, where
    the command line names none. `guess` gives the value of an argument by its name and its help."""

    def ready(library: Any, group: str, parameter: str) -> None:
        kind = getattr(library, parameter, None)
        if kind is not None:
            stage.wrap(kind, "process_value", lambda *given: _told(stage, guess, *given))
        if (groups := getattr(library, group, None)) is not None:
            stage.wrap(groups, "parse_args", lambda *given: _chosen(stage, uses, *given))

    stage.when_imported("click.core", lambda library: ready(library, "Group", "Parameter"))
    stage.when_imported("click.types", lambda library: stage.wrap(library.Path, "convert", lambda *given: _made(stage, *given)))
    # Typer, which was built on Click, has its own of both by now; before, its groups were Click's.
    stage.when_imported("typer.core", lambda library: ready(library, "TyperGroup", "_TyperParameter"))


def take_another(stage: Stage) -> bool:
    """The command that was guessed led to no model, or a group was asked without one."""
    unfit = stage.learned.get(_UNFIT, [])
    if stage.command is None:
        return False
    if not stage.command:
        return stage.learn(_WANTED, True)
    return len(unfit) < _MOST and stage.add(_UNFIT, stage.command)


def _chosen(stage: Stage, uses: Sequence[re.Pattern[str]], original: Any, self: Any, ctx: Any, args: list[str]) -> Any:
    """Read a group's command line, with a command where it names none."""
    offered = self.list_commands(ctx)
    if ctx.resilient_parsing or not set(offered).isdisjoint(args) or "--help" in args:
        return original(self, ctx, args)
    paths = list(_paths(self, ctx))
    unfit = stage.learned.get(_UNFIT, [])
    fitting = [path for use in uses for path in paths if use.fullmatch(path[-1])]
    fitting.sort(key=lambda path: " ".join(path) in unfit)  # where none is left, it ends as the first did
    if not fitting:
        return original(self, ctx, args)
    if self.invoke_without_command and not stage.learned.get(_WANTED):
        stage.command = ""
        return original(self, ctx, args)
    stage.command = " ".join(fitting[0])
    stage.note("arguments", f"the command {stage.command} was guessed")
    return original(self, ctx, [*args, *fitting[0]])


def _paths(group: Any, ctx: Any) -> Iterator[list[str]]:
    """The commands of a group, and of the groups within it."""
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if hasattr(command, "list_commands"):
            yield from ([name, *path] for path in _paths(command, ctx))
        elif command is not None and not command.hidden:
            yield [name]


def _made(stage: Stage, original: Any, self: Any, value: Any, *others: Any) -> Any:
    """Take a path that has to be there, and is made where it is not."""
    try:
        return original(self, value, *others)
    except Exception as error:
        if type(error).__name__ != "BadParameter" or not isinstance(value, str) or os.path.exists(value):
            raise
        maker = Maker(stage)
        if not self.dir_okay or (self.file_okay and os.path.splitext(value)[1]):
            if not maker.file(value):
                raise
        else:
            maker.folder(value)
        stage.note("data", value)
        return original(self, value, *others)


def _told(stage: Stage, guess: Callable[[str, str], str], original: Any, self: Any, ctx: Any, value: Any) -> Any:
    try:
        return original(self, ctx, value)
    except Exception as error:
        if type(error).__name__ != "MissingParameter":
            raise
        typed = getattr(self, "type_descriptor", None)  # Typer's
        choices = getattr(typed or self.type, "choices", None)
        named = typed.annotation.__name__ if typed is not None else self.type.name
        made = next(iter(choices)) if choices else _BY_KIND.get(named) or guess(self.name, getattr(self, "help", "") or "")
        if not getattr(getattr(self, "type", None), "dir_okay", True) and not os.path.splitext(made)[1]:
            made = _FILE
        stage.note("arguments", f"{self.name} {made} was guessed")
        return original(self, ctx, (made,) if self.multiple or self.nargs != 1 else made)
