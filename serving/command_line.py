"""Commands whose options are fields of classes, for typer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from .options import Option, OptionGroup, options_of

F = TypeVar("F", bound=Callable[..., None])


def takes(*groups: type[OptionGroup], variables: str | None = None) -> Callable[[F], F]:
    """Have a command take the options of these groups as well, by their parameters' names, where it has `**options`.

    They come before its keyword-only parameters. With `variables` each may also be set in the environment, by a variable that
    begins so.
    """

    def extended(command: F) -> F:
        own = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.kind != one.VAR_KEYWORD]
        first = [one for one in own if one.kind != one.KEYWORD_ONLY]
        made = [_parameter(one, group.title, variables) for group in groups for one in options_of(group)]
        command.__signature__ = inspect.Signature([*first, *made, *own[len(first) :]])  # type: ignore[attr-defined]
        return command

    return extended


def _parameter(one: Option, group: str, variables: str | None) -> inspect.Parameter:
    variable = f"{variables}{one.parameter.upper()}" if variables else None
    about = typer.Option(
        help=one.description, rich_help_panel=group, envvar=variable, metavar=one.metavar, show_default=one.kind is not bool
    )
    kind = Annotated[one.taken | None if one.shown is None else one.taken, about]  # type: ignore[valid-type]
    return inspect.Parameter(one.parameter, inspect.Parameter.KEYWORD_ONLY, default=one.shown, annotation=kind)


class GroupedCommand(TyperCommand):
    """A command whose help lists its options by their groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """By typer's own name for a group, which typer heeds itself only where rich prints the help."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            parameter.show_envvar = False  # type: ignore[attr-defined] # messages name the variable; here one line is for all
            if (record := parameter.get_help_record(ctx)) is not None:
                group = "Arguments" if parameter.param_type_name == "argument" else "Options"
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or group, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)
