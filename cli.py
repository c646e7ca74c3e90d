"""The `headrace` command: gathers the commands, which stand beside what they run and import nothing heavy before they run."""

from __future__ import annotations

from typing import Annotated

import typer

from ._version import __version__
from .console import print_error
from .errors import HeadraceError
from .migrate.cli import compile_, migrate, rules, run, undo
from .runtime.cli import doctor, export, tune
from .serving.bench.cli import bench
from .serving.cli import serve
from .serving.command_line import GroupedCommand
from .serving.offline.cli import classify
from .serving.predict.cli import predict
from .serving.triton.cli import app as triton
from .serving.verify.cli import verify

app = typer.Typer(
    name="headrace",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="A PyTorch image-classification repository, migrated to graph mode, compiled, served, and proved.",
)


def main() -> None:
    """Run the command line; errors Headrace raises on purpose become one message and exit status 2."""
    try:
        app()
    except HeadraceError as error:
        print_error(error)
        raise SystemExit(2) from None


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """A PyTorch image-classification repository, migrated to graph mode, compiled, served, and proved."""


app.command()(migrate)
app.command()(undo)
app.command()(rules)
# What follows the script belongs to the script.
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False})(run)
app.command("compile")(compile_)
app.command()(tune)
app.command(cls=GroupedCommand)(serve)
app.command()(bench)
app.command()(predict)
app.command()(export)
app.command()(classify)
app.command()(verify)
app.add_typer(triton)
app.command()(doctor)
