"""`headrace migrate`, `undo`, `rules`, `run` and `compile`: their options."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..console import make_console, print_error
from ..extras import require

__all__ = ["compile_", "migrate", "read_input_size", "read_named_task", "rules", "run", "undo"]

Precision = Annotated[
    str, typer.Option(help="auto, or one or several of fp32,bf16,fp16,fp8,int8; auto: lossy only if images prove it.")
]
Budget = Annotated[
    float | None, typer.Option(help="Points of accuracy that a lossy precision may lose, shown with 95 % confidence on images.")
]
Trust = Annotated[bool, typer.Option("--trust-repository", help="Run its code with your rights where it is not isolated.")]
Task = Annotated[
    str, typer.Option(help="What the outputs are, where nothing tells: single-label, multi-label:0.3, embedding, dense, raw.")
]
TuningSeconds = Annotated[
    float | None, typer.Option(help="When used up, the remaining candidates are skipped; by default 30, for a GPU 240.")
]
Device = Annotated[str, typer.Option(help="cpu or cuda: what the plan is made for; auto: where the model's parameters are.")]


_OF_THIS_RUN = frozenset(["out", "write", "check", "format", "report"])
"""Options that say what is done with the outcome of one run, not what is asked for."""


def migrate(
    context: typer.Context,
    repository: Annotated[
        Path, typer.Argument(help="A folder with a PyTorch image-classification repository, or a TorchServe archive (.mar).")
    ],
    out: Annotated[Path | None, typer.Option(help="Write a migrated, verified copy with its models/ here.")] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Change the repository in place; headrace undo takes it back.")
    ] = False,
    entry: Annotated[str | None, typer.Option(help="The script to take the model from, e.g. evaluate.py.")] = None,
    model: Annotated[str | None, typer.Option(help="The model to take, where there are several; or more, as in a,b,c.")] = None,
    all_models: Annotated[bool, typer.Option("--all-models", help="Package every model that can be built.")] = False,
    input_size: Annotated[str | None, typer.Option(help="C,H,W, where the repository does not state it.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Weights to load, where the script does not find them.")] = None,
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="Package the model also where its weights are random numbers.")
    ] = False,
    task: Task = "",
    data: Annotated[Path | None, typer.Option(help="Passed to the scripts as their data folder.")] = None,
    precision: Precision = "auto",
    budget: Budget = None,
    device: Device = "auto",
    max_tuning_seconds: TuningSeconds = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if anything would change.")] = False,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not run the scripts; the report says unproved.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Run the scripts on whole data sets, not on slices of them.")] = False,
    parallel: Annotated[
        bool,
        typer.Option(
            "--parallel", help="Make scripts of DistributedDataParallel and DataParallel global; run them on 2 ranks."
        ),
    ] = False,
    timeout: Annotated[float, typer.Option(min=1.0, help="Seconds for one run of a script, or for packaging a model.")] = 600.0,
    trust_checkpoint: Annotated[bool, typer.Option(help="Let checkpoints execute code while they load.")] = False,
    trust_repository: Trust = False,
    select: Annotated[
        list[str] | None, typer.Option(help="Only rules with these codes or beginnings of codes, e.g. PS2.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="No rules with these; comma-separated, may be repeated.")] = None,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Also make the changes that may alter behavior.")] = False,
    rules: Annotated[list[Path] | None, typer.Option(help="A file with rules of your own; may be repeated.")] = None,
    trust_rules: Annotated[
        bool, typer.Option("--trust-rules", help="Run the rules that the repository's pyproject.toml names.")
    ] = False,
    format: Annotated[str, typer.Option(help="text, json or sarif.")] = "text",  # noqa: A002
    report: Annotated[Path | None, typer.Option(metavar="FILE.md", help="Also write the report as Markdown.")] = None,
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
    if max_tuning_seconds is not None and not max_tuning_seconds > 0:
        raise typer.BadParameter("must be a number of seconds, more than 0", param_hint="--max-tuning-seconds")
    require("headrace migrate", "migrate")
    from ..errors import AmbiguousError
    from ..runtime.base.session import check_device
    from .api import migrate as run
    from .reporting.report import Report

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
        input_size=read_input_size(input_size),
        checkpoint=checkpoint,
        random_weights=random_weights,
        task=read_named_task(task),
        data=data,
        precision=precision,
        budget=_budget(budget),
        device=device,
        tuning_seconds=max_tuning_seconds,
        verify=not no_verify,
        full=full,
        parallel=parallel,
        timeout=timeout,
        trust_checkpoint=trust_checkpoint,
        trust_repository=trust_repository,
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
        from .reporting.markdown_report import write_markdown

        write_markdown(done, report)
    if format == "json":
        typer.echo(json.dumps(done.to_json(), indent=2))
    elif format == "sarif":
        from .reporting.sarif import to_sarif

        typer.echo(json.dumps(to_sarif(done), indent=2))
    else:
        from .reporting.render import render

        stopped = undecided is not None and (out is not None or write)
        render(done, console, stopped=stopped, options=_typed(context))
    if undecided is not None:
        print_error(undecided)
    raise typer.Exit(done.exit_status)


def _typed(context: typer.Context) -> list[str]:
    """The options that were typed and ask for the same in another run, as they would be typed again."""
    typed: list[str] = []
    for option in context.command.params:
        name = str(option.name)
        given = getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
        if not given or option.param_type_name != "option" or name in _OF_THIS_RUN:
            continue
        value = context.params[name]
        if isinstance(value, bool):
            typed.append(option.opts[0] if value else option.secondary_opts[0])
        else:
            for each in value if isinstance(value, list | tuple) else [value]:
                typed += [option.opts[0], str(each)]
    return typed


def undo(
    repository: Annotated[Path, typer.Argument(help="A repository that headrace migrate --write changed.")],
) -> None:
    """Take back the last migrate --write, byte for byte; refused where its files changed since, which are named."""
    from .stages.journal import undo as run

    for path in run(repository):
        typer.echo(f"restored {path}")


def rules(
    code: Annotated[str | None, typer.Argument(help="The code of one rule or finding, for its page.")] = None,
    test: Annotated[Path | None, typer.Option(metavar="FILE.py", help="Run the examples of the rules in this file.")] = None,
) -> None:
    """List the rules; with a code, show what it does, why, an example, and how safe its fix is."""
    from .rewriting.catalog import page, table

    if test is not None:
        from .rewriting.plugins import load_rules
        from .rewriting.selftest import self_test

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


def run(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="A Python script of a PyTorch repository, as it stands.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Run a copy before and after instead, and compare; exit 4 where they differ.")
    ] = False,
    trust_repository: Trust = False,
) -> None:
    """Run SCRIPT ARGS... with its models as graphs; no file is changed. The exit status is the script's own.

    It runs as `python SCRIPT` would, with your rights, and so with --trust-repository only; --verify runs it in the sandbox.
    """
    require("headrace run", "migrate")
    from .stages.zero_edit import run_script, verify_script

    if verify:
        raise typer.Exit(verify_script(script, context.args, make_console(stderr=True), trusted=trust_repository))
    raise typer.Exit(run_script(script, context.args, make_console(stderr=True), trusted=trust_repository))


def compile_(
    model: Annotated[
        str, typer.Argument(metavar="WHAT", help="timm:NAME, torchvision:NAME, hf:ORG/NAME, FILE.onnx, FILE.py:EXPRESSION, ...")
    ],
    out: Annotated[Path, typer.Option(help="The model repository to write to.")] = Path("models"),
    name: Annotated[str | None, typer.Option(help="The model's name; by default its class's.")] = None,
    input_size: Annotated[str | None, typer.Option(help="C,H,W, where the model does not tell.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Weights to load instead of the library's own.")] = None,
    random_weights: Annotated[bool, typer.Option("--random-weights", help="Weights that are nobody's.")] = False,
    task: Task = "",
    precision: Precision = "auto",
    budget: Budget = None,
    images: Annotated[
        Path | None,
        typer.Option(
            help="A folder of real images, or an .npz file of inputs 'images' and 'labels': they judge lossy precisions."
        ),
    ] = None,
    device: Device = "auto",
    max_tuning_seconds: TuningSeconds = None,
    trust_checkpoint: Annotated[bool, typer.Option(help="Let checkpoints execute code while they load.")] = False,
    trust_repository: Trust = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the code that a Hugging Face model brings.")
    ] = False,
) -> None:
    """Compile one model into a model repository, with a plan measured on this machine; docs/names.md says what WHAT can be."""
    require("headrace compile", "migrate")
    from ..runtime.artifact.artifact import load_artifact
    from ..runtime.artifact.package import place_package
    from ..runtime.base.session import check_device
    from ..runtime.inspect.plan_table import plan_table
    from .named.packaged import compile_model
    from .named.source import Options

    try:
        options = Options(
            name=name,
            input_size=read_input_size(input_size),
            checkpoint=checkpoint,
            random_weights=random_weights,
            task=read_named_task(task),
            precision=precision,
            budget=_budget(budget),
            images=images,
            device=device,
            max_tuning_seconds=max_tuning_seconds,
            trust_checkpoint=trust_checkpoint,
            trust_repository=trust_repository,
            trust_remote_code=trust_remote_code,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    check_device(device)
    console = make_console()
    made = compile_model(model, out, place_package, options=options, console=console)
    artifact = load_artifact(made)
    console.print(plan_table(artifact.plan_here().to_json()))
    status, worst = artifact.parity["status"], artifact.parity["max_abs"]
    largest = f", largest difference {worst:.1e}" if worst is not None else ""
    console.print(f"parity {status}{largest}; written to {made}", highlight=False)


def _budget(points: float | None) -> float | None:
    if points is not None and not 0 < points <= 100:
        raise typer.BadParameter("must be points of accuracy, more than 0 and up to 100", param_hint="--budget")
    return points


def read_named_task(text: str) -> str:
    from ..runtime.base.task import read_task

    try:
        read_task(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--task") from None
    return text


def _codes(given: list[str] | None) -> list[str]:
    """The codes of a repeated, comma-separated option."""
    return [code.strip() for text in given or () for code in text.split(",") if code.strip()]


def read_input_size(text: str | None) -> tuple[int, int, int] | None:
    if text is None:
        return None
    try:
        channels, height, width = (int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise typer.BadParameter(f"must be C,H,W, got {text!r}", param_hint="--input-size") from None
    return channels, height, width
