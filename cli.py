"""The `penstock` command: one thin function each, heavy imports inside, so that --help and --version answer at once."""

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
from .cli_triton import app as triton
from .errors import PenstockError

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    name="penstock",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="A PyTorch image-classification repository, migrated to graph mode, compiled, served, and proved.",
)

Precision = Annotated[str, typer.Option(help="auto, fp32, bf16, fp16 or int8; auto is lossy only when real images prove it.")]


def main() -> None:
    """Run the command line; errors Penstock raises on purpose become one message and exit status 2."""
    try:
        app()
    except PenstockError as error:
        _say_error(error)
        raise SystemExit(2) from None


def _say_error(error: PenstockError) -> None:
    from rich.console import Console

    Console(stderr=True, soft_wrap=True).print("[bold red]error:[/]", end=" ")
    print(error, file=sys.stderr)  # noqa: T201  the message may hold brackets that rich would read as markup


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
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
        bool, typer.Option("--write", help="Change the repository in place; penstock undo takes it back.")
    ] = False,
    entry: Annotated[str | None, typer.Option(help="The script to take the model from, e.g. evaluate.py.")] = None,
    model: Annotated[str | None, typer.Option(help="The model to take, where there are several; or more, as in a,b,c.")] = None,
    all_models: Annotated[bool, typer.Option("--all-models", help="Package every model that can be built.")] = False,
    input_size: Annotated[str | None, typer.Option(help="C,H,W, where the repository does not state it.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Weights to load, where the script does not find them.")] = None,
    data: Annotated[Path | None, typer.Option(help="Passed to the scripts as their data folder.")] = None,
    precision: Precision = "auto",
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
    would change, 2 errors, 4 parity failed. Settings may stand in the repository's pyproject.toml, under [tool.penstock].
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
    from .errors import AmbiguousError
    from .migrate.api import migrate as run
    from .migrate.reporting.report import Report

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
    repository: Annotated[Path, typer.Argument(help="A repository that penstock migrate --write changed.")],
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
    max_tuning_seconds: Annotated[float, typer.Option(help="When used up, the remaining candidates are skipped.")] = 30.0,
    trust_checkpoint: Annotated[bool, typer.Option(help="Let checkpoints execute code while they load.")] = False,
) -> None:
    """Compile one model into a model repository, with a plan measured on this machine."""
    from .migrate.reference import CompileConfig, compile_reference
    from .runtime.plan_table import plan_table

    try:
        config = CompileConfig(
            out=out,
            name=name,
            input_size=_input_size(input_size),
            checkpoint=checkpoint,
            precision=precision,
            max_tuning_seconds=max_tuning_seconds,
            trust_checkpoint=trust_checkpoint,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
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

    check_format(format)
    try:
        config = GraphConfig(
            precision=precision,  # type: ignore[arg-type]
            backend=backend,
            buckets=tuple(int(part) for part in buckets.split(",")) if buckets else None,
            threads=threads,
            tolerance=tolerance,
            max_tuning_seconds=max_tuning_seconds,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    console = make_console(stderr=format == "json")
    with _progress(console) as tell:
        artifact, plan = retune(model, config, images=calibration, progress=tell)
    if format == "json":
        typer.echo(json.dumps(plan.to_json(), indent=2))
        return
    console.print(plan_table(plan.to_json()))
    if calibration is None and precision == "auto":
        console.print("only fp32 was tried: give real images with --calibration DIR to allow bf16, fp16 and int8")
    console.print(f"the plan is in {artifact.path / 'penstock.json'}", highlight=False)


@app.command()
def serve(
    context: typer.Context,
    models: Annotated[Path, typer.Argument(help="A model repository, as migrate and compile write it.")],
    host: Annotated[str, typer.Option(help="The address to bind.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8000,
    grpc_port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8001,
    metrics_port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8002,
    ready_file: Annotated[Path | None, typer.Option(help="Written as JSON with the ports once ready.")] = None,
    instances: Annotated[
        int | None, typer.Option(help="Sessions side by side per model; by default what warm-up finds.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of each session; by default as the plan measured.")] = None,
    max_queue: Annotated[int, typer.Option(help="Requests that may wait, per model, before new ones are refused.")] = 256,
    timeout: Annotated[float, typer.Option(help="Deadline in seconds of a request that names none.")] = 30.0,
    frontends: Annotated[
        int | None,
        typer.Option(help="Processes that take requests and decode images; 0 is one process for all. By default by the cores."),
    ] = None,
    ring_mib: Annotated[int, typer.Option(help="Shared memory of each front end for requests on their way, in MiB.")] = 256,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="A name by which it may be called, besides localhost and addresses. Repeatable.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="TOML or JSON with lists of bearer tokens under infer, admin and metrics.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM certificate chain; all ports then speak TLS only.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its PEM key, unencrypted.")] = None,
    tls_client_ca: Annotated[Path | None, typer.Option(help="Clients must show a certificate of this authority.")] = None,
    shared_memory: Annotated[
        bool, typer.Option("--shared-memory", help="Let clients on this machine pass tensors in shared memory.")
    ] = False,
    allow_settings: Annotated[
        bool, typer.Option("--allow-settings", help="Let clients change log settings over the network.")
    ] = False,
    log_format: Annotated[str, typer.Option(help="text or json; the log goes to stderr.")] = "text",
    access_log: Annotated[bool, typer.Option("--access-log", help="Log a line per request.")] = False,
    trace_otlp: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Send OpenTelemetry traces to this OTLP/HTTP collector, as in http://localhost:4318."),
    ] = None,
    model_control_mode: Annotated[
        str, typer.Option(help="none: fixed at the start; explicit: clients load and unload; poll: the folder is followed.")
    ] = "none",
    load_model: Annotated[
        list[str] | None, typer.Option(help="Under explicit control, loaded at the start; '*' is all. Repeatable.")
    ] = None,
    rate_limit: Annotated[
        float | None, typer.Option(help="Inference requests a second that one client may send; by default any number.")
    ] = None,
    response_cache_bytes: Annotated[
        int, typer.Option(help="Memory for outputs that are given again when the same input comes again; 0 keeps none.")
    ] = 0,
    repository_poll_secs: Annotated[float, typer.Option(help="Seconds between two looks at the folder in poll mode.")] = 15.0,
    decoding: Annotated[
        str, typer.Option(help="exact: as Pillow; fast: JPEG within 2 of 255; scaled: large JPEGs decoded smaller.")
    ] = "fast",
    ray: Annotated[bool, typer.Option("--ray", help="On a Ray cluster, by Ray Serve; the options below are for it.")] = False,
    ray_address: Annotated[
        str | None, typer.Option(help="The cluster; by default that of RAY_ADDRESS, or the one this machine belongs to.")
    ] = None,
    min_replicas: Annotated[int, typer.Option(help="Data planes that always run.")] = 1,
    max_replicas: Annotated[int, typer.Option(help="Data planes that run under load.")] = 4,
    cpus_per_replica: Annotated[float, typer.Option(help="Cores of a node that each takes.")] = 1.0,
    gpus_per_replica: Annotated[float, typer.Option(help="GPUs of a node that each takes.")] = 0.0,
    models_per_replica: Annotated[
        int | None, typer.Option(help="Models that each holds at a time; others wait to be asked for. By default all.")
    ] = None,
    target_requests: Annotated[int, typer.Option(help="Requests under way per replica, above which one is added.")] = 16,
    upscale_secs: Annotated[float, typer.Option(help="Seconds of such load before a replica is added.")] = 10.0,
    downscale_secs: Annotated[float, typer.Option(help="Seconds without it before one is taken away.")] = 300.0,
) -> None:
    """Serve a model repository over the Open Inference Protocol, HTTP and gRPC, until SIGTERM."""
    from .serving.config import ServeConfig
    from .serving.ray_serve.config import RayConfig, check_options

    given = [name for name in context.params if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"]
    try:
        check_options(given, ray=ray)
        cluster = RayConfig(
            address=ray_address,
            min_replicas=min_replicas,
            max_replicas=max_replicas,
            cpus_per_replica=cpus_per_replica,
            gpus_per_replica=gpus_per_replica,
            models_per_replica=models_per_replica,
            target_requests=target_requests,
            upscale_seconds=upscale_secs,
            downscale_seconds=downscale_secs,
        )
        config = ServeConfig(
            models=models,
            host=host,
            http_port=http_port,
            grpc_port=grpc_port,
            metrics_port=metrics_port,
            ready_file=ready_file,
            instances=instances,
            threads=threads,
            max_queue=max_queue,
            default_timeout_seconds=timeout,
            frontends=frontends,
            ring_bytes=ring_mib << 20,
            allowed_hosts=tuple(allowed_host or ()),
            token_file=token_file,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_client_ca=tls_client_ca,
            shared_memory=shared_memory,
            allow_settings=allow_settings,
            log_format=log_format,
            access_log=access_log,
            trace_otlp=trace_otlp,
            model_control_mode=model_control_mode,
            load_models=tuple(load_model or ()),
            repository_poll_seconds=repository_poll_secs,
            response_cache_bytes=response_cache_bytes,
            rate_limit=rate_limit,
            decoding=decoding,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if ray:
        from .serving.ray_serve.deploy import serve_on_ray

        serve_on_ray(config, cluster)
        return
    from .serving.server import serve as run

    run(config)


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
