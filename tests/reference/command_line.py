"""docs/reference/cli.md: every command with its arguments and options, from the command line itself."""

from __future__ import annotations

import inspect
from typing import Any

import typer

from headrace.cli import app

INTRODUCTION = """# The command line

Every command and option, as each command's `--help` says it. `make reference` writes this page.

Exit statuses: 0 is success, 2 a mistake in what was asked for, with one line that names the remedy. What 1 and others mean
stands with the command. Options of `headrace serve` also stand
[in groups, with their names in the environment and in a file](../serve-options.md).
"""


def commands() -> str:
    """The page, in the order of `headrace --help`."""
    group: Any = typer.main.get_command(app)
    lines = [INTRODUCTION]
    with group.context_class(group, info_name="headrace") as context:
        for name in group.list_commands(context):
            lines += _command(group.get_command(context, name), context, name)
    return "\n".join(lines).rstrip() + "\n"


def _command(command: Any, parent: Any, name: str) -> list[str]:
    with command.context_class(command, info_name=name, parent=parent) as context:
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        lines = [f"## {context.command_path}", "", inspect.cleandoc(command.help or "").strip(), "", f"`{usage}`", ""]
        if hasattr(command, "list_commands"):
            for inner in command.list_commands(context):
                lines += _command(command.get_command(context, inner), context, inner)
            return lines
        rows = [_row(one, context) for one in command.get_params(context) if not getattr(one, "hidden", False)]
        if rows := [row for row in rows if row is not None]:
            lines += ["| | meaning |", "|---|---|", *rows, ""]
        return lines


def _row(parameter: Any, context: Any) -> str | None:
    record = parameter.get_help_record(context)
    if record is None or "--help" in getattr(parameter, "opts", ()):
        return None
    shown, meaning = (" ".join(text.split()).replace("|", "\\|") for text in record)
    return f"| `{shown}` | {meaning} |"
