"""`headrace tune` and `doctor`: their options."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..console import check_format, make_console
from ..extras import require

if TYPE_CHECKING:
    from rich.console import Console


def tune(
    model: Annotated[Path, typer.Argument(help="A model's folder in a model repository, e.g. models/resnet50.")],
    calibration: Annotated[
        Path | None, typer.Option(help="A folder of real images: they judge lossy precisions and set the ranges of int8.")
    ] = None,
    precision: Annotated[
        str, typer.Option(help="auto, or one or several of fp32,bf16,fp16,fp8,int8; auto: lossy only if images prove it.")
    ] = "auto",
    backend: Annotated[str | None, typer.Option(help="Pin one backend, e.g. onnxruntime.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda: what the plan is made for.")] = "cpu",
    buckets: Annotated[str | None, typer.Option(help="Batch sizes to plan for, comma-separated; 1 to 16 by default.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of a session; by default the physical cores.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="Largest relative difference of lossless candidates.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="Points of accuracy that a lossy precision may lose, shown with 95 % confidence.")
    ] = None,
    max_tuning_seconds: Annotated[float, typer.Option(help="When used up, the remaining candidates are skipped.")] = 120.0,
    format: Annotated[str, typer.Option(help="text or json.")] = "text",  # noqa: A002
) -> None:
    """Measure a packaged model on this machine, print every candidate, and keep the plan in the model's folder."""
    import json

    require("headrace tune", "migrate")
    from .base.config import GraphConfig
    from .base.session import check_device
    from .inspect.plan_table import plan_table
    from .tuning.retune import retune

    check_format(format)
    if budget is not None and calibration is None:
        raise typer.BadParameter("is held to on real images: give --calibration DIR, too", param_hint="--budget")
    try:
        config = GraphConfig(
            precision=precision,  # type: ignore[arg-type]
            backend=backend,
            device=device,  # type: ignore[arg-type]
            buckets=tuple(int(part) for part in buckets.split(",")) if buckets else None,
            threads=threads,
            tolerance=tolerance,
            budget=budget,
            max_tuning_seconds=max_tuning_seconds,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    check_device(device)
    console = make_console(stderr=format == "json")
    with _progress(console) as tell:
        artifact, plan = retune(model, config, images=calibration, progress=tell)
    if format == "json":
        typer.echo(json.dumps(plan.to_json(), indent=2))
        return
    console.print(plan_table(plan.to_json()))
    if calibration is None and precision == "auto":
        console.print("only fp32 was tried: give real images with --calibration DIR to allow bf16, fp16, fp8 and int8")
    console.print(f"the plan is in {artifact.path / 'headrace.json'}", highlight=False)


def doctor(
    models: Annotated[Path | None, typer.Argument(help="A model repository: which of its plans can be used here.")] = None,
) -> None:
    """Say what this machine has: devices, backends with versions, and the pip line for what is missing."""

    from rich.markup import escape
    from rich.table import Table

    from .inspect.doctor import examine

    console = make_console()
    for section in examine(models):
        table = Table(title=section.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for column in ("", "what", "version", "remark"):
            table.add_column(column, overflow="fold")
        for row in section.rows:
            table.add_row("[green]yes[/]" if row.present else "[yellow]no[/]", row.name, row.version, escape(row.remark))
        console.print(table, "")


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[Callable[[float, str], None]]:
    """A progress bar, and the function that moves it to a share of the whole with a line of text."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda fraction, text: progress.update(task, completed=fraction, description=text)
