"""`headrace bench`: what is measured, found from one path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...console import make_console
from ...extras import require
from ...runtime.cli import bench_formats
from ..command_line import takes
from ..options import values_of
from .config import BenchConfig

if TYPE_CHECKING:
    from rich.console import Console


@takes(BenchConfig)
def bench(
    path: Annotated[Path, typer.Argument(help="A model repository, what migrate wrote, or a PyTorch repository as it is.")],
    model: Annotated[str | None, typer.Option(help="The model to measure, where there are several.")] = None,
    formats: Annotated[
        bool, typer.Option("--formats", help="Compare every format and precision of one model that this machine can run.")
    ] = False,
    baseline: Annotated[Path | None, typer.Option(help="The original repository, served by plain PyTorch beside it.")] = None,
    entry: Annotated[str | None, typer.Option(help="The repository's script to take the model from.")] = None,
    images: Annotated[list[Path] | None, typer.Option(help="Image files or folders to send; may be repeated.")] = None,
    concurrency: Annotated[str, typer.Option(help="Requests at a time, comma-separated.")] = "1,4,16",
    *,
    compare: Annotated[
        Path | None, typer.Option(metavar="OLD.json", help="Say what changed beyond the spread since that run.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the figures (JSON, Markdown, PNG) and the servers' logs go.")] = Path(
        "headrace-bench"
    ),
    **options: Any,
) -> None:
    """Measure a served model beside the original repository behind a plain PyTorch service.

    A PyTorch repository is migrated first, into the cache. The exit status is 1 when a request failed. With --formats nothing
    is served: all forms of the model at PATH are timed in turns, judged on the folder of --images.
    """
    if formats:
        bench_formats(str(path), images=images[0] if images else None, out=out, trusted=options["trust_repository"])
        return
    require("headrace bench", "serve", "bench")
    if baseline is not None:
        require("headrace bench --baseline", "migrate")
    from .reporting.compare import changes_report, read_result
    from .run import bench as run

    console = make_console()
    old = read_result(compare) if compare is not None else None
    models, name, recipe = _subject(path, baseline, entry, model, out, console, trusted=options["trust_repository"])
    try:
        config = BenchConfig(
            models=models,
            out=out,
            model=name,
            images=tuple(images or ()),
            baseline=recipe if options["protocol"] == "http" or baseline is not None else None,
            concurrency=tuple(int(part) for part in concurrency.split(",")),
            **values_of(BenchConfig, options),
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    result = run(config, console=console)
    if old is not None:
        console.print(changes_report(old, result.to_json()).terminal())
    raise typer.Exit(0 if result.ok else 1)


def _subject(
    path: Path, baseline: Path | None, entry: str | None, model: str | None, out: Path, console: Console, *, trusted: bool
) -> tuple[Path, str | None, Mapping[str, Any] | None]:
    """What the path stands for: a model repository, the model asked for, and the recipe of its original if known."""
    from ...errors import BenchError, NothingToMigrateError
    from ...runtime.artifact.artifact import model_names
    from .services import check_trust, only_model

    if baseline is not None:
        check_trust(trusted)
    if model_names(path):
        return path, model, _recipe(baseline, entry) if baseline is not None else None
    require(f"headrace bench {path}, which is no model repository,", "migrate")
    from ...migrate.prepared import migrated_from, place_in, prepared
    from ...migrate.survey.survey import survey
    from ...runtime.base.cache_folder import cache_folder

    if (found := migrated_from(path)) is not None:
        models, origin = found
        source = baseline or origin
        if source is not None:
            check_trust(trusted)
        name = model if model in model_names(models) else None
        return models, name, _recipe(source, entry) if source is not None else None
    try:
        survey(path)
    except NothingToMigrateError as error:
        raise BenchError(f"{path} holds no packaged model and is no PyTorch repository: {error}") from error
    check_trust(trusted)  # before anything takes long
    cache = cache_folder()
    folder = out / ".prepared" if cache is None else place_in(cache, path)
    models = prepared(path, folder, leave_out=(out,), entry=entry, model=model, trust_repository=trusted, console=console)
    console.print(f"Measuring {models}", highlight=False)
    return models, only_model(models), _recipe(baseline or path, entry, model)


def _recipe(repository: Path, entry: str | None, model: str | None = None) -> Mapping[str, Any]:
    """How the repository builds the model."""
    from ...migrate.resolving.resolve import resolve
    from ...migrate.survey.survey import survey

    return resolve(survey(repository), entry=entry, model=model).recipe.to_json()
