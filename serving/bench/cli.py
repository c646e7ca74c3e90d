"""`headrace bench`: what is measured, found from one path."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...console import make_console
from ...extras import require

if TYPE_CHECKING:
    from rich.console import Console

    from .config import BenchConfig
    from .servers import Service

_DEFAULT_LEVELS = "1,4,16"
_ONE_LEVEL = "16"
_SWEEP_LEVELS = "1,2,4,8,16,32,64"


def bench(
    path: Annotated[Path, typer.Argument(help="A model repository, what migrate wrote, or a PyTorch repository as it is.")],
    model: Annotated[str | None, typer.Option(help="The model to measure, where there are several.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="The original repository, served by plain PyTorch beside it.")] = None,
    entry: Annotated[str | None, typer.Option(help="The repository's script to take the model from.")] = None,
    images: Annotated[list[Path] | None, typer.Option(help="Image files or folders to send; may be repeated.")] = None,
    concurrency: Annotated[
        str | None,
        typer.Option(
            help="Requests at a time, comma-separated; by default 1,4,16, for --waterfall and --peers 16, for --sweep 1 to 64."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Interleaved repetitions.")] = 3,
    restart: Annotated[
        bool,
        typer.Option("--restart/--no-restart", help="Start the services anew for every round: the spread of other runs."),
    ] = True,
    seconds: Annotated[float, typer.Option(help="Length of one measurement.")] = 5.0,
    protocol: Annotated[str, typer.Option(help="http or grpc; the baseline speaks HTTP only.")] = "http",
    processes: Annotated[int, typer.Option(help="Processes of the load generator, sharing the connections.")] = 1,
    waterfall: Annotated[
        bool, typer.Option("--waterfall", help="From the PyTorch service to Headrace, one change at a time.")
    ] = False,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Throughput and latency by concurrency and batch, beside the machine's own limits.")
    ] = False,
    peers: Annotated[
        bool, typer.Option("--peers", help="Beside other frameworks by hand, and the services of --peers-from.")
    ] = False,
    peers_from: Annotated[Path, typer.Option(help="A folder with peers.json, as examples/peers of the sources.")] = Path(
        "examples/peers"
    ),
    frontends: Annotated[
        int | None, typer.Option(help="Front-end processes of the waterfall's last step; by default by the cores.")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(metavar="OLD.json", help="Say what changed beyond the spread since that run.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the figures (JSON, Markdown, PNG) and the servers' logs go.")] = Path(
        "headrace-bench"
    ),
) -> None:
    """Measure a served model beside the original repository behind a plain PyTorch service.

    A PyTorch repository is migrated first, into the cache. The exit status is 1 when a request failed.
    """
    require("headrace bench", "serve", "bench")
    from .config import BenchConfig

    if waterfall + sweep + peers > 1:
        raise typer.BadParameter("choose one of --waterfall, --sweep and --peers", param_hint="--waterfall")
    if sweep and baseline is not None:
        raise typer.BadParameter("is not measured in a sweep", param_hint="--baseline")
    if frontends is not None and not waterfall:
        raise typer.BadParameter("is the waterfall's; give --waterfall too", param_hint="--frontends")
    if sweep or baseline is not None:
        require(f"headrace bench {'--sweep' if sweep else '--baseline'}", "migrate")
    console = make_console()
    old = _read_old(compare) if compare is not None else None
    subject = _subject(path, baseline, entry, model, out, console)
    if peers and subject.recipe is None:
        raise typer.BadParameter("names the original repository, which --peers serve too", param_hint="--baseline")
    services, frameworks = _peers(subject, peers_from, console) if peers else ((), ())
    levels = concurrency or (_ONE_LEVEL if waterfall or peers else _SWEEP_LEVELS if sweep else _DEFAULT_LEVELS)
    compared = protocol == "http" and not sweep  # the baseline speaks HTTP only, and a sweep is of Headrace alone
    try:
        config = BenchConfig(
            models=subject.models,
            out=out,
            model=subject.model,
            images=tuple(images or (_data_of(subject) if sweep else ())),
            baseline=subject.recipe if compared or baseline is not None else None,
            concurrency=tuple(int(part) for part in levels.split(",")),
            rounds=rounds,
            restart=restart,
            seconds=seconds,
            protocol=protocol,
            processes=processes,
            peers=services,
            frameworks=frameworks,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if waterfall:
        ok, found = _waterfall(config, console, frontends)
    else:
        ok, found = _sweep(config, console) if sweep else _plain(config, console)
    if old is not None:
        from .reporting.compare import changes_report

        console.print(changes_report(old, found).terminal())
    raise typer.Exit(0 if ok else 1)


@dataclass(frozen=True)
class _Subject:
    """What the path stands for: a model repository, the model asked for, and the recipe of its original if known."""

    models: Path
    model: str | None
    recipe: Mapping[str, Any] | None


def _subject(path: Path, baseline: Path | None, entry: str | None, model: str | None, out: Path, console: Console) -> _Subject:
    from ...errors import BenchError, NothingToMigrateError
    from ...runtime.artifact.artifact import model_names
    from .subject import only_model

    if model_names(path):
        return _Subject(path, model, _recipe(baseline, entry) if baseline is not None else None)
    require(f"headrace bench {path}, which is no model repository,", "migrate")
    from ...migrate.prepared import migrated_from, prepared
    from ...runtime.base.cache_folder import cache_folder

    if (found := migrated_from(path)) is not None:
        models, origin = found
        source = baseline or origin
        name = model if model in model_names(models) else None
        return _Subject(models, name, _recipe(source, entry) if source is not None else None)
    cache = cache_folder()
    key = f"{path.resolve().name}-{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    folder = cache / "bench" / key if cache is not None else out / ".prepared"
    try:
        models = prepared(path, folder, leave_out=(out,), entry=entry, model=model, console=console)
    except NothingToMigrateError as error:
        raise BenchError(f"{path} holds no packaged model and is no PyTorch repository: {error}") from error
    console.print(f"Measuring {models}", highlight=False)
    return _Subject(models, only_model(models), _recipe(baseline or path, entry, model))


def _data_of(subject: _Subject) -> tuple[Path, ...]:
    """The folder of images of the original repository, where that is known and has one."""
    from .images import data_folder

    folder = None if subject.recipe is None else data_folder(Path(subject.recipe["root"]))[0]
    return () if folder is None else (folder,)


def _recipe(repository: Path, entry: str | None, model: str | None = None) -> Mapping[str, Any]:
    """How the repository builds the model."""
    from ...migrate.resolving.resolve import resolve
    from ...migrate.survey.survey import survey

    return resolve(survey(repository), entry=entry, model=model).recipe.to_json()


def _peers(subject: _Subject, folder: Path, console: Console) -> tuple[tuple[Service, ...], tuple[str, ...]]:
    """The services of a folder and the frameworks by hand. Those that are not installed are said, not measured."""
    from .config import FRAMEWORKS
    from .peers import peers_in
    from .subject import only_model

    name = subject.model or only_model(subject.models)
    found, absent = peers_in(folder, subject.models / name)
    for peer, why in absent.items():
        console.print(f"{peer} is left out: {why}", highlight=False)
    return found, FRAMEWORKS


def _plain(config: BenchConfig, console: Console) -> tuple[bool, dict[str, Any]]:
    from .run import bench as run

    result = run(config, console=console)
    return result.ok, result.to_json()


def _sweep(config: BenchConfig, console: Console) -> tuple[bool, dict[str, Any]]:
    from .capacity import sweep as run

    found = run(config, console=console)
    return found.bench.ok, found.to_json()


def _waterfall(config: BenchConfig, console: Console, frontends: int | None) -> tuple[bool, dict[str, Any]]:
    from .waterfall import waterfall as run

    found = run(config, frontends=frontends, console=console)
    return found.bench.ok, found.to_json()


def _read_old(path: Path) -> dict[str, Any]:
    from .reporting.compare import read_result

    return read_result(path)
