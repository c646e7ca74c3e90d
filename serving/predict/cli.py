"""`headrace predict`: its options, and what is seen while it runs."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...console import check_format, make_console
from ...extras import require
from ...runtime.cli import packaged
from ..command_line import takes
from ..options import values_of
from .config import PredictConfig

if TYPE_CHECKING:
    from .predict import Row

# How often progress is reported where it cannot be drawn.
_REPORT_SECONDS = 10.0
_WIDE = 10_000  # what is no terminal takes lines of any length


@takes(PredictConfig)
def predict(
    what: Annotated[str, typer.Argument(help="A model's folder, a models folder that holds one, or a name as serve takes it.")],
    images: Annotated[list[str], typer.Argument(help="Files, folders, patterns, http(s) addresses, or - for standard input.")],
    *,
    format: Annotated[str, typer.Option(help="text, or json: a line for each image.")] = "text",  # noqa: A002
    **options: Any,
) -> None:
    """Say what is on images: the answers that `headrace serve` would give.

    An image that cannot be read is a row that says why; the exit status is then 1.
    """
    check_format(format)
    require("headrace predict", "serve")
    try:
        config = PredictConfig(**values_of(PredictConfig, options))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    from rich.console import Console

    from .images import named_images
    from .predict import predict as answer
    from .table import described, table

    folder = packaged(what, command="headrace predict", trusted=config.trust_repository)
    named = list(named_images(images))
    rows: list[Row] = []
    console, lines = Console(width=None if sys.stdout.isatty() else _WIDE), format == "json"

    failed: int | None = None
    try:
        with _progress(len(named), drawn=not (lines and console.is_terminal)) as advance:

            def show(row: Row) -> None:
                rows.append(row)
                if lines:
                    typer.echo(json.dumps(row.to_json()))
                advance()

            failed = answer(folder, named, config, show)
    except KeyboardInterrupt:  # what is known is shown
        pass
    if not lines and rows:
        console.print(table(rows))
        if len(rows) > 1 or failed:
            make_console(stderr=True).print(described(rows), markup=False, highlight=False)
    raise typer.Exit(130 if failed is None else int(failed > 0))


@contextlib.contextmanager
def _progress(total: int, *, drawn: bool) -> Iterator[Callable[[], None]]:
    """Counts images on the standard error: a bar on a terminal, elsewhere a line now and then."""
    from rich.progress import Progress

    console = make_console(stderr=True)
    if console.is_terminal and drawn:
        with Progress(console=console, transient=True) as bar:
            task = bar.add_task("images", total=total)
            yield lambda: bar.advance(task)
        return
    done, last = 0, time.monotonic()

    def advance() -> None:
        nonlocal done, last
        done += 1
        if time.monotonic() - last >= _REPORT_SECONDS:
            last = time.monotonic()
            console.print(f"{done:,} of {total:,} images", markup=False, highlight=False)

    yield advance
