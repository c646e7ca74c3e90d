"""Command lines that Fire makes of functions: which of several is called, and what it requires and was not given."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..places import frames, is_users
from ..stage import Stage

_BY_KIND = {"int": "1", "float": "0.1", "bool": "True"}


def stand_in(stage: Stage, library: Any, guess: Callable[[str], str], uses: Sequence[re.Pattern[str]]) -> None:
    """Have `fire.Fire` call what it offers with what that requires. Of several commands the first is taken whose name fits one
    of `uses`, where the command line names none; `guess` gives the value of an argument by its name."""

    def run(original: Any, component: Any = None, command: Any = None, *args: Any, **named: Any) -> Any:
        given = sys.argv[1:] if command is None else shlex.split(command) if isinstance(command, str) else list(command)
        component = _defined_by(stage) if component is None else component
        more = _completed(component, given, guess, uses)
        if more != given:
            stage.note("arguments", f"{shlex.join(word for word in more if word not in given)} was guessed")
        return original(component, more, *args, **named)

    stage.wrap(library, "Fire", run)


def _defined_by(stage: Stage) -> dict[str, Any]:
    """What a file offers that names nothing itself: its own functions and classes."""
    names = next((frame.f_globals for frame in frames() if is_users(frame.f_code.co_filename, stage.root)), {})
    own = names.get("__name__")
    return {
        name: item
        for name, item in names.items()
        if (inspect.isfunction(item) or inspect.isclass(item)) and item.__module__ == own and name[0] != "_"
    }


def _completed(component: Any, given: list[str], guess: Callable[[str], str], uses: Sequence[re.Pattern[str]]) -> list[str]:
    """The words of a command line with those that are missing."""
    if inspect.isfunction(component) or inspect.ismethod(component):
        return [*given, *_required(component, given, guess)]
    offered = _commands(component)
    at = next((index for index, word in enumerate(given) if word in offered), None)
    before, after = (given, []) if at is None else (given[:at], given[at + 1 :])
    name = given[at] if at is not None else next((item for use in uses for item in offered if use.fullmatch(item)), None)
    if name is None:
        return given
    if inspect.isclass(component):  # what makes the object stands before its method, and the method has its object
        before = [*before, *_required(component, before, guess)]
        return [*before, name, *after, *_required(offered[name], after, guess, skipped=1)]
    return [*before, name, *_completed(offered[name], after, guess, uses)]


def _commands(component: Any) -> Mapping[str, Any]:
    if isinstance(component, Mapping):
        return {str(name): item for name, item in component.items()}
    members = inspect.getmembers(component, lambda item: inspect.isfunction(item) or inspect.ismethod(item))
    return {name: item for name, item in members if name[0] != "_"}


def _required(function: Any, given: Sequence[str], guess: Callable[[str], str], skipped: int = 0) -> list[str]:
    """`--name=value` of the parameters that have no default and are not given, by place or by name."""
    named = {word.lstrip("-").partition("=")[0].replace("-", "_") for word in given if word.startswith("-")}
    values = [
        word for last, word in zip(["", *given], given, strict=False) if not word.startswith("-") and not _takes_next(last)
    ]
    wanted = [
        item
        for item in list(inspect.signature(function, eval_str=False).parameters.values())[skipped:]
        if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY) and item.name not in named
    ]
    by_place = sum(item.kind is item.POSITIONAL_OR_KEYWORD for item in wanted)
    missing = [item for item in wanted[min(len(values), by_place) :] if item.default is item.empty]
    kinds = [getattr(item.annotation, "__name__", str(item.annotation)) for item in missing]
    return [f"--{item.name}={_BY_KIND.get(kind) or guess(item.name)}" for item, kind in zip(missing, kinds, strict=True)]


def _takes_next(word: str) -> bool:
    return word.startswith("--") and "=" not in word
