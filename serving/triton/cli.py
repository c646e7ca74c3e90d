"""`headrace triton`: a models folder and NVIDIA Triton Inference Server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ...console import check_format, make_console
from ...extras import require
from ..command_line import takes
from ..options import values_of
from .config import RunSettings, Settings

app = typer.Typer(
    add_completion=False,
    name="triton",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="A models folder and NVIDIA Triton Inference Server.",
)

_Models = Annotated[Path, typer.Argument(help="A models folder, as migrate and compile write it.")]
_Format = Annotated[str, typer.Option("--format", help="text or json.")]


@app.command()
def lint(
    models: _Models,
    gpus: Annotated[
        int | None, typer.Option(min=0, help="GPUs of the machine that will serve; by default of this one.")
    ] = None,
    format: _Format = "text",  # noqa: A002
) -> None:
    """Find what Triton would reject, before Triton does. The exit status adds up: 1 warnings, 2 errors."""
    import json

    require("headrace triton lint", "migrate")
    from .lint import lint as run
    from .lint import status

    check_format(format)
    findings = run(models, gpus=gpus)
    if format == "json":
        typer.echo(json.dumps({"models": str(models), "findings": [finding.to_json() for finding in findings]}, indent=2))
    else:
        for finding in findings:
            typer.echo(str(finding))
        errors = sum(finding.severity == "error" for finding in findings)
        counts = f"{errors} error{'s' * (errors != 1)}, {len(findings) - errors} warning{'s' * (len(findings) - errors != 1)}"
        make_console(stderr=True).print(counts if findings else f"{models}: Triton would load all of it", highlight=False)
    raise typer.Exit(status(findings))


@app.command()
@takes(Settings)
def write(
    models: _Models,
    out: Annotated[Path, typer.Option(help="The folder to write to; models of the same names there are replaced.")],
    *,
    cpu: Annotated[bool, typer.Option("--cpu", help="For a machine without GPUs; the default.")] = False,
    cuda: Annotated[bool, typer.Option("--cuda", help="ONNX Runtime's CUDA kernels, on every GPU.")] = False,
    tensorrt: Annotated[bool, typer.Option("--tensorrt", help="TensorRT through ONNX Runtime, on every GPU.")] = False,
    format: _Format = "text",  # noqa: A002
    **options: Any,
) -> None:
    """Write the production variant of MODELS: instances, queue policy, warm-up and what the plan says, in each config.pbtxt.

    The exit status is that of lint over what was written.
    """
    import json

    require("headrace triton write", "migrate")
    from .lint import lint as check
    from .lint import status
    from .write import write as run

    check_format(format)
    if cpu + cuda + tensorrt > 1:
        raise typer.BadParameter("choose one of --cpu, --cuda and --tensorrt")
    try:
        settings = Settings(device="tensorrt" if tensorrt else "cuda" if cuda else "cpu", **values_of(Settings, options))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    written = run(models, out, settings)
    findings = check(out, gpus=0 if settings.device == "cpu" else 1)
    if format == "json":
        report = {"models": [one.to_json() for one in written], "findings": [finding.to_json() for finding in findings]}
        typer.echo(json.dumps(report, indent=2))
    else:
        for one in written:
            typer.echo(f"{out / one.name}" if one.written else f"{one.name} is left out")
            for caveat in one.caveats:
                typer.echo(f"  {caveat}")
        for finding in findings:
            typer.echo(str(finding))
    raise typer.Exit(status(findings))


@app.command()
def install(
    into: Annotated[Path | None, typer.Option(help="The folder; by default triton/ in Headrace's cache.")] = None,
) -> None:
    """Get a real tritonserver from the package index: NVIDIA's nvidia-pytriton wheel, in an environment of its own.

    For Linux on x86-64 with glibc 2.35. About 350 MB; an interrupted call is finished by the next.
    """
    from .install import install as run

    run(_folder(into), typer.echo)


@app.command()
@takes(RunSettings)
def run(
    models: _Models,
    *,
    installed_in: Annotated[Path | None, typer.Option(help="Where headrace triton install put it.")] = None,
    log: Annotated[Path | None, typer.Option(help="Triton's log; by default triton.log in a temporary folder.")] = None,
    **options: Any,
) -> None:
    """Serve MODELS by a real Triton, the tritonserver on PATH or the installed one, until Ctrl-C or SIGTERM.

    Does not start where lint finds an error: one of them keeps all models from being served.
    """
    import signal
    import tempfile

    require("headrace triton run", "migrate")
    from ...errors import ArtifactError
    from .install import find
    from .lint import lint as check
    from .run import TritonServer

    try:
        settings = RunSettings(**values_of(RunSettings, options))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    found = find(_folder(installed_in))
    if rejected := [finding for finding in check(models) if finding.severity == "error"]:
        raise ArtifactError("Triton would not load all of it:\n" + "\n".join(f"  {finding}" for finding in rejected))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end it in order
    path = log or Path(tempfile.mkdtemp(prefix="headrace-triton-")) / "triton.log"
    try:
        with TritonServer(found, models, path, settings) as server:
            ports = ", ".join(f"{name} {port}" for name, port in server.ports.items())
            typer.echo(f"Triton {server.version} on {settings.host}: {ports}; log {path}")
            for row in server.index():
                typer.echo(f"  {row['name']} {row['version']} {row['state'] or 'UNAVAILABLE'} {row['reason']}".rstrip())
            status = server.wait()
            typer.echo(f"Triton ended with status {status}:\n{server.tail()}", err=True)
            raise typer.Exit(1)
    except KeyboardInterrupt:
        typer.echo("ended")


@app.command()
def verify(
    models: _Models,
    tolerance: Annotated[float, typer.Option(help="How far outputs may be apart, relative to the largest.")] = 1e-3,
    installed_in: Annotated[Path | None, typer.Option(help="Where headrace triton install put it.")] = None,
    logs: Annotated[Path | None, typer.Option(help="A folder for both servers' logs; by default a temporary one.")] = None,
    documented: Annotated[bool, typer.Option("--documented", help="Also show the differences that are documented.")] = False,
    format: _Format = "text",  # noqa: A002
) -> None:
    """Send the same requests to the embedded server and to Triton, and list where they differ.

    Metadata, configurations, answers, statistics and errors of every model. The exit status is 1 where a difference is not
    one of the documented ones.
    """
    import json
    import tempfile

    from rich.table import Table

    require("headrace triton verify", "serve", "migrate")
    from .install import find
    from .verify import verify as run

    check_format(format)
    if tolerance < 0:
        raise typer.BadParameter("must not be negative", param_hint="--tolerance")
    folder = logs or Path(tempfile.mkdtemp(prefix="headrace-triton-"))
    folder.mkdir(parents=True, exist_ok=True)
    done = run(models, find(_folder(installed_in)), folder, tolerance=tolerance, report=lambda line: typer.echo(line, err=True))
    if format == "json":
        typer.echo(json.dumps(done.to_json(), indent=2))
    else:
        shown = done.differences if documented else done.unexplained
        if shown:
            table = Table(box=None, pad_edge=False)
            for column in ("model", "what", "over", "embedded", "Triton", "reason"):
                table.add_column(column, overflow="fold")
            for one in shown:
                cells = (
                    one.model,
                    f"{one.area}: {one.what}",
                    one.transport,
                    one.embedded,
                    one.triton,
                    one.documented or "none",
                )
                table.add_row(*(cell.replace("[", "\\[") for cell in cells))
            make_console().print(table)
        known = len(done.differences) - len(done.unexplained)
        typer.echo(
            f"Triton {done.triton}, {len(done.models)} models, {done.compared} points compared: "
            f"{len(done.unexplained)} differences without a reason, {known} documented ones"
        )
    raise typer.Exit(int(bool(done.unexplained)))


def _folder(given: Path | None) -> Path:
    """Where Triton is installed."""
    if given is not None:
        return given
    from ...runtime.base.cache_folder import cache_folder

    cache = cache_folder()
    if cache is None:
        raise typer.BadParameter("the cache is turned off; name a folder with --into or --installed-in")
    return cache / "triton"
