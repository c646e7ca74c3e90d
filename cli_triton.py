"""`penstock triton`: a models folder and NVIDIA Triton Inference Server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .cli_console import make_console

app = typer.Typer(
    name="triton", no_args_is_help=True, rich_markup_mode=None, help="A models folder and NVIDIA Triton Inference Server."
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
    """Find what Triton would refuse, before Triton does. The exit status adds up: 1 warnings, 2 errors."""
    import json

    from .serving.triton.lint import lint as run
    from .serving.triton.lint import status

    _check_format(format)
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


def _check_format(given: str) -> None:
    if given not in ("text", "json"):
        raise typer.BadParameter("must be text or json", param_hint="--format")
