"""The `headrace` command: one thin function each, heavy imports inside, so that --help and --version answer at once."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import __version__
from .cli_bench import bench
from .cli_classify import classify
from .cli_console import check_format, make_console
from .cli_serve import serve
from .cli_triton import app as triton
from .errors import HeadraceError

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    name="headrace",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="A PyTorch image-classification repository, migrated to graph mode, compiled, served, and proved.",
)

Precision = Annotated[str, typer.Option(help="auto, fp32, bf16, fp16, fp8 or int8; auto: lossy only if real images prove it.")]
Device = Annotated[str, typer.Option(help="cpu or cuda: what the plan is made for; auto: where the model's parameters are.")]


def main() -> None:
    """Run the command line; errors Headrace raises on purpose become one message and exit status 2."""
    try:
        app()
    except HeadraceError as error:
        _say_error(error)
        raise SystemExit(2) from None


def _say_error(error: HeadraceError) -> None:
    from rich.console import Console

    Console(stderr=True, soft_wrap=True).print("[bold red]error:[/]", end=" ")
    print(error, file=sys.stderr)  # noqa: T201  the message may hold brackets that rich would read as markup


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """A PyTorch image-classification repository, migrated to graph mode, compiled, served, and proved."""


@app.command()
def migrate(
    repository: Annotated[Path, typer.Argument(help="A folder with a PyTorch image-classification repository.")],
    out: Annotated[Path | None, typer.Option(help="Write a migrated, verified copy with its models/ here.")] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Change the repository in place; headrace undo takes it back.")
    ] = False,
    entry: Annotated[str | None, typer.Option(help="The script to take the model from, e.g. evaluate.py.")] = None,
    model: Annotated[str | None, typer.Option(help="The model to take, where there are several; or more, as in a,b,c.")] = None,
    all_models: Annotated[bool, typer.Option("--all-models", help="Package every model that can be built.")] = False,
    input_size: Annotated[str | None, typer.Option(help="C,H,W, where the repository does not state it.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Weights to load, where the script does not find them.")] = None,
    data: Annotated[Path | None, typer.Option(help="Passed to the scripts as their data folder.")] = None,
    precision: Precision = "auto",
    device: Device = "auto",
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if anything would change.")] = False,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not run the scripts; the report says unproved.")] = False,
    trust_checkpoint: Annotated[bool, typer.Option(help="Let checkpoints execute code while they load.")] = False,
    select: Annotated[
        list[str] | None, typer.Option(help="Only rules with these codes or beginnings of codes, e.g. PS2.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="No rules with these; comma-separated, may be repeated.")] = None,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Also make the changes that may alter behaviour.")] = False,
    rules: Annotated[list[Path] | None, typer.Option(help="A file with rules of your own; may be repeated.")] = None,
    trust_rules: Annotated[
        bool, typer.Option("--trust-rules", help="Run the rules that the repository's pyproject.toml names.")
    ] = False,
    format: Annotated[str, typer.Option(help="text, json or sarif.")] = "text",  # noqa: A002
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Also write the report as one HTML page.")] = None,
) -> None:
    """Migrate a repository to graph mode, prove it, and package its model to be served.

    Without --out or --write, prints the diff and the findings and writes nothing. The exit status adds up: 1 findings or
    would change, 2 errors, 4 parity failed. Settings may stand in the repository's pyproject.toml, under [tool.headrace].
    """
    import json

    if format not in ("text", "json", "sarif"):
        raise typer.BadParameter("must be text, json or sarif", param_hint="--format")
    if out is not None and (write or check):
        raise typer.BadParameter("goes with neither --write nor --check", param_hint="--out")
    if write and check:
        raise typer.BadParameter("--check writes nothing; choose one", param_hint="--write")
    if report is not None and not report.absolute().parent.is_dir():
        raise typer.BadParameter(f"{report.parent} is not a folder", param_hint="--report")
    if all_models and model is not None:
        raise typer.BadParameter("give --model or --all-models, not both", param_hint="--model")
    if device not in ("auto", "cpu", "cuda"):
        raise typer.BadParameter("must be auto, cpu or cuda", param_hint="--device")
    from .errors import AmbiguousError
    from .migrate.api import migrate as run
    from .migrate.reporting.report import Report
    from .runtime.session import check_device

    check_device(device)
    console = make_console(stderr=format != "text")
    undecided: AmbiguousError | None = None
    ask = partial(
        run,
        repository,
        out=out,
        write=write,
        select=_codes(select),
        ignore=_codes(ignore),
        unsafe=unsafe,
        rules=rules or (),
        trust_rules=trust_rules,
        entry=entry,
        model=model,
        all_models=all_models,
        input_size=_input_size(input_size),
        checkpoint=checkpoint,
        data=data,
        precision=precision,
        device=device,
        verify=not no_verify,
        trust_checkpoint=trust_checkpoint,
        check=check,
        console=console,
    )
    try:
        done = ask()
    except AmbiguousError as error:  # what the choice does not touch is shown all the same
        if not isinstance(error.report, Report):
            raise
        done, undecided = error.report, error
    if report is not None:
        from .migrate.reporting.html_report import write_html

        write_html(done, report)
    if format == "json":
        typer.echo(json.dumps(done.to_json(), indent=2))
    elif format == "sarif":
        from .migrate.reporting.sarif import to_sarif

        typer.echo(json.dumps(to_sarif(done), indent=2))
    else:
        from .migrate.reporting.render import render

        render(done, console)
    if undecided is not None:
        _say_error(undecided)
    raise typer.Exit(done.exit_status)


@app.command()
def undo(
    repository: Annotated[Path, typer.Argument(help="A repository that headrace migrate --write changed.")],
) -> None:
    """Take back the last migrate --write, byte for byte; refused where its files changed since, which are named."""
    from .migrate.journal import undo as run

    for path in run(repository):
        typer.echo(f"restored {path}")


@app.command()
def rules(
    code: Annotated[str | None, typer.Argument(help="The code of one rule or finding, for its page.")] = None,
    test: Annotated[Path | None, typer.Option(metavar="FILE.py", help="Run the examples of the rules in this file.")] = None,
) -> None:
    """List the rules; with a code, show what it does, why, an example, and how safe its fix is."""
    from .migrate.rewriting.catalogue import page, table

    if test is not None:
        from .migrate.rewriting.plugins import load_rules
        from .migrate.rewriting.selftest import self_test

        verdicts = [verdict for rule in load_rules(test) for verdict in self_test(rule)]
        for verdict in verdicts:
            typer.echo(f"{verdict.code} {verdict.example}: {'passed' if verdict.why is None else 'FAILED: ' + verdict.why}")
        raise typer.Exit(int(any(verdict.why for verdict in verdicts)))
    console = make_console()
    if code is None:
        console.print(table())
        return
    text = page(code)
    if not console.is_terminal:
        typer.echo(text)
        return
    from rich.markdown import Markdown

    console.print(Markdown(text))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False})
def run(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="A Python script of a PyTorch repository, as it stands.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Run a copy before and after instead, and compare; exit 4 where they differ.")
    ] = False,
) -> None:
    """Run SCRIPT ARGS... with its models as graphs; no file is changed. The exit status is the script's own."""
    from .migrate.zero_edit import run_script, verify_script

    if verify:
        raise typer.Exit(verify_script(script, context.args, console=make_console(stderr=True)))
    raise typer.Exit(run_script(script, context.args, console=make_console(stderr=True)))


@app.command("compile")
def compile_(
    model: Annotated[str, typer.Argument(help="FILE.py:EXPRESSION or package.module:EXPRESSION; a factory is called.")],
    out: Annotated[Path, typer.Option(help="The model repository to write to.")] = Path("models"),
    name: Annotated[str | None, typer.Option(help="The model's name; by default its class's.")] = None,
    input_size: Annotated[str | None, typer.Option(help="C,H,W, where the model does not tell.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Weights to load.")] = None,
    precision: Precision = "auto",
    device: Device = "auto",
    max_tuning_seconds: Annotated[
        float | None, typer.Option(help="When used up, the remaining candidates are skipped; by default 30, for a GPU 240.")
    ] = None,
    trust_checkpoint: Annotated[bool, typer.Option(help="Let checkpoints execute code while they load.")] = False,
) -> None:
    """Compile one model into a model repository, with a plan measured on this machine."""
    from .migrate.reference import CompileConfig, compile_reference
    from .runtime.plan_table import plan_table
    from .runtime.session import check_device

    try:
        config = CompileConfig(
            out=out,
            name=name,
            input_size=_input_size(input_size),
            checkpoint=checkpoint,
            precision=precision,
            device=device,
            max_tuning_seconds=max_tuning_seconds,
            trust_checkpoint=trust_checkpoint,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    check_device(device)
    console = make_console()
    answer = compile_reference(model, config, console=console)
    console.print(plan_table(answer["plan"]))
    parity = answer["parity"]
    worst = f", largest difference {parity['max_abs']:.1e}" if parity["max_abs"] is not None else ""
    console.print(f"parity {parity['status']}{worst}; written to {answer['artifact']}", highlight=False)


@app.command()
def tune(
    model: Annotated[Path, typer.Argument(help="A model's folder in a model repository, e.g. models/resnet50.")],
    calibration: Annotated[
        Path | None, typer.Option(help="A folder of real images: they judge lossy precisions and set the ranges of int8.")
    ] = None,
    precision: Precision = "auto",
    backend: Annotated[str | None, typer.Option(help="Pin one backend, e.g. onnxruntime.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda: what the plan is made for.")] = "cpu",
    buckets: Annotated[str | None, typer.Option(help="Batch sizes to plan for, comma-separated; 1 to 16 by default.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of a session; by default the physical cores.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="Largest relative difference of lossless candidates.")] = None,
    max_tuning_seconds: Annotated[float, typer.Option(help="When used up, the remaining candidates are skipped.")] = 120.0,
    format: Annotated[str, typer.Option(help="text or json.")] = "text",  # noqa: A002
) -> None:
    """Measure a packaged model on this machine, print every candidate, and keep the plan in the model's folder."""
    import json

    from .runtime.config import GraphConfig
    from .runtime.plan_table import plan_table
    from .runtime.retune import retune
    from .runtime.session import check_device

    check_format(format)
    try:
        config = GraphConfig(
            precision=precision,  # type: ignore[arg-type]
            backend=backend,
            device=device,  # type: ignore[arg-type]
            buckets=tuple(int(part) for part in buckets.split(",")) if buckets else None,
            threads=threads,
            tolerance=tolerance,
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


app.command()(serve)
app.command()(bench)
app.command()(classify)
app.add_typer(triton)


@app.command()
def doctor() -> None:
    """Say what this machine has: devices, backends with versions, and the pip line for what is missing."""

    from rich.table import Table

    from .runtime.doctor import examine

    console = make_console()
    for section in examine():
        table = Table(title=section.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for column in ("", "what", "version", "remark"):
            table.add_column(column, overflow="fold")
        for row in section.rows:
            table.add_row("[green]yes[/]" if row.present else "[yellow]no[/]", row.name, row.version, row.remark)
        console.print(table, "")


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[Callable[[float, str], None]]:
    """A progress bar, and the function that moves it to a share of the whole with a line of text."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda fraction, text: progress.update(task, completed=fraction, description=text)


def _codes(given: list[str] | None) -> list[str]:
    """The codes of a repeated, comma-separated option."""
    return [code.strip() for text in given or () for code in text.split(",") if code.strip()]


def _input_size(text: str | None) -> tuple[int, int, int] | None:
    if text is None:
        return None
    try:
        channels, height, width = (int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise typer.BadParameter(f"must be C,H,W, got {text!r}", param_hint="--input-size") from None
    return channels, height, width
