"""`headrace verify`: an endpoint beside a packaged model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...console import check_format, make_console
from ...extras import require
from ..command_line import takes
from ..options import values_of
from .config import VerifyConfig

if TYPE_CHECKING:
    from rich.console import Console

    from .verdict import Finding, Judgement


@takes(VerifyConfig, variables="HEADRACE_VERIFY_")
def verify(
    url: Annotated[
        str,
        typer.Argument(
            help="What takes images by POST; a model, as in http://HOST:PORT/v2/models/NAME or grpc://HOST:PORT/NAME; "
            "or a server's, http://HOST:PORT."
        ),
    ],
    against: Annotated[Path, typer.Option(help="A models folder, as migrate and compile write it, or a PyTorch repository.")],
    *,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",  # noqa: A002
    **options: Any,
) -> None:
    """Hold anyone's endpoint to a packaged model, and say what it does otherwise.

    Sends about 70 requests, at most 4 at once: images of odd sizes, with EXIF orientations, alpha, palettes, 16 bits and
    CMYK. The exit status is 0 where all is answered as the package does, 1 where something differs, 2 where nothing could
    be judged. A repository is migrated first, into the cache.
    """
    import json

    check_format(format)
    require("headrace verify", "serve")
    from .verify import verify as run

    console = make_console(stderr=True)
    try:
        values = values_of(VerifyConfig, options)
        config = VerifyConfig(url=url, models=_models(against, console), **values)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with _progress(console) as report:
        done = run(config, report=report)
    if format == "json":
        typer.echo(json.dumps(done.to_json(), indent=2))
    else:
        for judgement in done.judgements:
            for line in _lines(judgement):
                typer.echo(line)
        verdict = "answers as" if done.same else "does not answer as"
        typer.echo(f"{url} {verdict} {done.model} version {done.version} of {config.models}")
    raise typer.Exit(0 if done.same else 1)


def _models(against: Path, console: Console) -> Path:
    """The folder of packaged models that a path stands for: itself, what migrate wrote there, or one made of a repository."""
    from ...errors import NothingToMigrateError, VerifyError
    from ...runtime.artifact.artifact import model_names
    from ...runtime.base.cache_folder import cache_folder

    if not against.is_dir():
        raise VerifyError(f"{against} is no folder; --against takes a models folder or a PyTorch repository")
    if model_names(against) or (against / "config.pbtxt").is_file():
        return against
    require(f"headrace verify --against {against}, which holds no packaged model,", "migrate")
    from ...migrate.prepared import migrated_from, place_in, prepared

    if (found := migrated_from(against)) is not None:
        return found[0]
    cache = cache_folder()
    if cache is None:
        raise VerifyError(
            f"{against} is a repository, and the cache that its models are kept in is off (HEADRACE_CACHE); run headrace "
            f"migrate {against} --out DIR, and give --against DIR/models"
        )
    try:
        return prepared(against, place_in(cache, against), console=console)
    except NothingToMigrateError as error:
        raise VerifyError(f"{against} holds no packaged model and is no PyTorch repository: {error}") from error


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[Callable[[str], None]]:
    """One line that moves on a terminal; nothing elsewhere."""
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("") as status:
        yield status.update


def _lines(judgement: Judgement) -> Iterator[str]:
    yield f"{judgement.endpoint}: {judgement.verdict}"
    if judgement.groups:
        groups = ", ".join(f"{name} {same}/{asked}" for name, (same, asked) in judgement.groups.items())
        yield f"  the same: {groups} ({judgement.requests} requests; largest error {judgement.largest:.2%})"
    for finding in judgement.findings:
        yield from _finding(finding)
    for note in judgement.notes:
        yield f"  note: {note}"


def _finding(finding: Finding) -> Iterator[str]:
    share = "" if finding.explains is None else f" (explains {_share(finding.explains)} of the difference)"
    yield f"  {finding.fault}: {finding.text}{share}"
    for other in finding.alternatives:
        yield f"    these images cannot tell it from: {other}"
    if finding.images:
        yield f"    images: {', '.join(finding.images)}"


def _share(value: float) -> str:
    """As percent, and all only where it is all."""
    return "all" if value > 1 - 1e-5 else f"{min(99.9, 100 * value):.1f} %"
