"""`headrace classify`: the options, what is seen while it runs, and signals."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...console import check_format, make_console
from ...extras import require
from ..command_line import takes
from ..options import values_of
from .config import ClassifyConfig

if TYPE_CHECKING:
    from rich.console import Console

    from .progress import Progress
    from .run import Summary

# How often progress is reported where it cannot be drawn, and the stages where they are watched: elsewhere, and on a terminal.
_REPORT_SECONDS, _WATCH_SECONDS, _DRAW_SECONDS = 30.0, 5.0, 1.0


@takes(ClassifyConfig)
def classify(
    source: Annotated[
        str,
        typer.Argument(help="A folder, .tar or .parquet file, a .txt list of paths, or an address such as s3://bucket/photos."),
    ],
    model: Annotated[Path, typer.Option(help="A model's folder, or a model repository that holds one model.")],
    out: Annotated[Path, typer.Option(help="A new folder for the Parquet files, or that of the job to go on with.")],
    *,
    ray: Annotated[
        bool, typer.Option("--ray", help="On the Ray cluster at RAY_ADDRESS, or the one this machine belongs to.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show for each stage how busy, starved and blocked it is, while the job runs.")
    ] = False,
    format: Annotated[str, typer.Option(help="text or json: how the summary is printed.")] = "text",  # noqa: A002
    **options: Any,
) -> None:
    """Classify every image of SOURCE into Parquet files, each image exactly once.

    A job that was stopped or killed goes on with the same command. A broken image becomes a row with an error. The exit
    status is 130 when the job was interrupted, 143 when it was terminated.
    """
    import json

    check_format(format)
    require("headrace classify", "serve", "classify")
    if ray:
        from .cluster import classify_on_ray as run
    else:
        from .run import classify as run

    try:
        config = ClassifyConfig(source=source, model=model, out=out, **values_of(ClassifyConfig, options))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    console = make_console(stderr=True)
    with _signals() as received, _shown(console, received, watch=watch) as listen:
        summary = run(config, stopped=lambda: bool(received), listen=listen)
    if format == "json":
        typer.echo(json.dumps(summary.to_json(), indent=2))
    else:
        for line in _described(summary):
            typer.echo(line)
    if not summary.complete:
        if format == "json":
            console.print("interrupted; run the same command again to go on", markup=False)
        raise typer.Exit(128 + received[0])


def _described(summary: Summary) -> list[str]:
    if summary.complete:
        lines = [f"{_so_many(summary.images, 'image')}, {_so_many(summary.shards, 'file')} in {summary.out}"]
    else:
        lines = [
            f"interrupted: {summary.images:,} images are done, {summary.shards_done} of {summary.shards} files; "
            "run the same command again to go on"
        ]
    if summary.errors:
        lines.append(f"{summary.errors:,} of them could not be classified; the column error says why")
    if summary.left_out:
        lines.append(f"{_so_many(summary.left_out, 'file')} of the source left out: no image by name")
    if summary.busy:
        stages = ", ".join(f"{name} {share:.0%}" for name, share in summary.busy.items())
        lines.append(
            f"{summary.images_per_second:,.1f} images/s by {summary.model}, {summary.rows} at once; busy: {stages}; "
            f"bottleneck: {summary.bottleneck}"
        )
    return lines


def _so_many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """The signals that asked to stop. After the first one, the next ends the program as if nobody listened."""
    received: list[int] = []

    def note(number: int, _: object) -> None:
        received.append(number)
        for each in before:
            signal.signal(each, signal.SIG_DFL)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _shown(console: Console, received: Sequence[int], *, watch: bool) -> Iterator[Callable[[str, Progress | None], None]]:
    """How a job is reported; on a terminal what moves, elsewhere a line now and then. With `watch` the stages too."""
    from rich.live import Live
    from rich.text import Text

    from .watch import line, table

    end = threading.Event()
    current: list[Progress] = []
    # What was watched stays to be read.
    live = Live(console=console, refresh_per_second=4, transient=not watch) if console.is_terminal else None
    pause = (0.0 if not watch else _DRAW_SECONDS) if live is not None else (_WATCH_SECONDS if watch else _REPORT_SECONDS)

    def report(text: str, progress: Progress | None) -> None:
        if progress is not None:
            current[:] = [progress]
        elif live is None:
            console.print(text, markup=False, highlight=False)
        else:
            live.update(Text(text))

    def show(progress: Progress) -> None:
        stages = progress.clock.report() if watch and progress.clock is not None else []
        if live is None:
            console.print(line(progress, stages), markup=False, highlight=False)
        else:
            live.update(table(progress, stages, console.width) if watch else Text(str(progress)))

    def follow() -> None:
        last, warned = time.monotonic(), False
        while not end.wait(0.25):
            if received and not warned:  # a signal's handler may have interrupted any other print, so it prints nothing itself
                warned = True
                console.print("finishing the batch; a second signal ends it at once", markup=False)
            if current and time.monotonic() - last >= pause:
                last = time.monotonic()
                show(current[0])

    thread = threading.Thread(target=follow, name="headrace-progress", daemon=True)
    with live or contextlib.nullcontext():
        thread.start()
        try:
            yield report
        finally:
            end.set()
            thread.join()
            if watch and current:
                show(current[0])
