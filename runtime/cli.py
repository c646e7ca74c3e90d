"""`headrace tune`, `split`, `export` and `doctor`: their options."""

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


def packaged(what: str, *, command: str, trusted: bool = False) -> Path:
    """The folder of the packaged model that a command's WHAT stands for: in a models folder, or made of a name or a repository
    and kept in the cache. Raises ArtifactError, MigrateError, AmbiguousError for several."""
    from .artifact.model_config import FILE
    from .artifact.model_folder import holds_models, model_folder

    path = Path(what)
    if not path.is_dir() or not ((path / FILE).is_file() or holds_models(path)):
        path = _made_of(what, command, trusted=trusted)
    return model_folder(path, flag=command)


def _made_of(what: str, command: str, *, trusted: bool) -> Path:
    """The models folder that is made of what is none."""
    from .artifact.model_folder import check_place

    check_place(what)
    require(f"{command} {what}, which is no models folder,", "migrate")
    from ..migrate.named import packaged, source
    from .base.cache_folder import cache_folder

    if (cache := cache_folder()) is None:
        raise typer.BadParameter(
            "the cache is off, and a model that is packaged is kept there; name a folder in HEADRACE_CACHE"
        )
    return packaged.packaged(
        what, cache=cache, options=source.Options(trust_repository=trusted), console=make_console(stderr=True)
    )


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


def bench_formats(what: str, *, images: Path | None, out: Path, trusted: bool) -> None:
    """`headrace bench WHAT --formats`: the table, and OUT/formats.json."""
    import json

    require("headrace bench --formats", "migrate")
    from rich.console import Console

    from .base.atomic import write_aside
    from .export.comparison import compare_forms
    from .export.comparison_table import comparison_table

    folder = packaged(what, command="headrace bench --formats", trusted=trusted)
    console = make_console()
    with _progress(make_console(stderr=True)) as tell:
        found = compare_forms(folder, images=images, trusted=trusted, report=tell)
    out.mkdir(parents=True, exist_ok=True)
    write_aside(out / "formats.json", json.dumps(found.to_json(), indent=2).encode())
    (console if console.is_terminal else Console(width=200)).print(comparison_table(found))
    console.print(f"the figures are in {out / 'formats.json'}", highlight=False)


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


def split(
    model: Annotated[Path, typer.Argument(help="A model's folder, or a models folder that holds one.")],
    out: Annotated[Path, typer.Option(help="The models folder to write to.")],
    ranks: Annotated[int | None, typer.Option(help="Deal the classes of the last layer out to so many processes.")] = None,
    stages: Annotated[int | None, typer.Option(help="Cut the model into a pipeline of so many processes.")] = None,
) -> None:
    """Split a packaged model over several processes, which headrace serve runs as one model: the last layer by class, or the
    whole model into consecutive stages."""
    require("headrace split", "migrate")
    if (ranks is None) == (stages is None):
        raise typer.BadParameter("give one of the two: --ranks for very many classes, --stages for a deep network")
    from .artifact.model_folder import model_folder

    folder = model_folder(model, flag="headrace split")
    if ranks is not None:
        from .artifact.split.splitting import split_model

        written, difference = split_model(folder, out, ranks)
        what = f"{ranks} ranks, whose scores differ from the whole model's by up to {difference:.1e} of a row's largest"
    else:
        from .artifact.pipeline.splitting import cut_model

        assert stages is not None, "one of the two was given"
        done = cut_model(folder, out, stages)
        written, taken = done.path, ", ".join(f"{one:.3g}" for one in done.milliseconds)
        what = (
            f"{stages} stages, which take {taken} ms for a batch of {done.rows}, and whose outputs differ from the whole "
            f"model's by up to {done.difference:.1e} of a row's largest value"
        )
    make_console().print(f"{written}: {what}", highlight=False, soft_wrap=True)


def export(
    what: Annotated[str, typer.Argument(help="A model's folder, a models folder that holds one, or a name as serve takes it.")],
    to: Annotated[str, typer.Option(help="onnx, openvino, pt2, torchscript or triton.")],
    out: Annotated[Path, typer.Option(help="The file (onnx, pt2, torchscript) or the folder to write.")],
    precision: Annotated[
        str, typer.Option(help="fp32; int8 for onnx, openvino, triton; fp16 for openvino; bf16 for pt2.")
    ] = "fp32",
    images: Annotated[Path | None, typer.Option(help="A folder of real images: they set int8's ranges and judge it.")] = None,
    *,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier export wrote to --out.")] = False,
    trust_repository: Annotated[
        bool, typer.Option("--trust-repository", help="Let the package's own program of torch run where it holds one.")
    ] = False,
    format: Annotated[str, typer.Option(help="text or json.")] = "text",  # noqa: A002
) -> None:
    """Write a packaged model for another runtime; its answers are compared with the package's before it is in its place."""
    import json

    check_format(format)
    require("headrace export", "migrate")
    from ..specs import Precision
    from .export.export import export as write

    try:
        wanted = Precision(precision)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--precision") from None
    folder = packaged(what, command="headrace export", trusted=trust_repository)
    done = write(folder, to, out, precision=wanted, images=images, overwrite=overwrite, trusted=trust_repository)
    if format == "json":
        typer.echo(json.dumps(done.to_json(), indent=2))
        return
    console = make_console()
    console.print(f"{done.path}: {done.model} as {done.format} {done.precision}, {done.bytes / 1e6:,.1f} MB", highlight=False)
    allowed = f" (allowed: {done.tolerance:.1e})" if done.tolerance is not None else ""
    console.print(
        f"its answers differ from the package's by up to {done.max_abs:.1e}{allowed} on {done.compared}", highlight=False
    )
    for remark in done.remarks:
        console.print(f"note: {remark}", markup=False, highlight=False)
