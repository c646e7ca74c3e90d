"""`headrace plan-parallel`: its options, and how its model is read."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....console import check_format, make_console
from ....errors import HeadraceError, InputError, MigrateError
from ....extras import require
from ....scratch import ScratchFolder

if TYPE_CHECKING:
    from .operators import Model
    from .plan import Planned

_META = "import torch\ntorch.set_default_device('meta')\n"
_SHOWN = 12
_MOST_SECONDS = 600.0  # for a model to be built and captured


def plan_parallel(
    model: Annotated[
        str, typer.Argument(metavar="WHAT", help="timm:NAME, torchvision:NAME, hf:ORG/NAME or FILE.py:EXPRESSION.")
    ],
    mesh: Annotated[str, typer.Option(help="How many ranks along each axis: 8, or 2x4.")],
    memory: Annotated[str, typer.Option(help="Of one rank: 80GB, 512MiB.")],
    batch: Annotated[int | None, typer.Option(help="Rows of a step over all ranks; by default 32 for each rank.")] = None,
    input_size: Annotated[str | None, typer.Option(help="C,H,W of a row, where the model does not tell; or any sizes.")] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="NAME=split(0): how a parameter lies, whatever else is chosen. May be repeated.")
    ] = None,
    rates: Annotated[
        Path | None, typer.Option(help="A file of rates for a mesh that is not here; else they are measured on its ranks.")
    ] = None,
    save_rates: Annotated[Path | None, typer.Option(help="Where to write the rates that were measured.")] = None,
    save: Annotated[
        Path | None, typer.Option(help="Where to write the plan, as --format json prints it: what apply_plan takes.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda: where rates are measured.")] = "cpu",
    optimizer: Annotated[str, typer.Option(help="adam, momentum or sgd: what it keeps takes memory.")] = "adam",
    *,
    inference: Annotated[bool, typer.Option("--inference", help="Plan the forward pass alone.")] = False,
    trust_repository: Annotated[
        bool, typer.Option("--trust-repository", help="Let the model's code run where there is no sandbox.")
    ] = False,
    format: Annotated[str, typer.Option(help="text or json.")] = "text",  # noqa: A002
) -> None:
    """Plan how a model lies on a mesh of ranks: splits of its operators, ZeRO, or a pipeline, by predicted time and memory.

    Under torchrun the ranks of that job are measured, else ranks that are started on this machine.
    """
    require("headrace plan-parallel", "migrate")
    from .plan import plan, read_keep, read_memory, read_mesh
    from .rates import Rates, read_rates
    from .saved import document

    check_format(format)
    sizes, bytes_ = read_mesh(mesh), read_memory(memory)
    rows = 32 * math.prod(sizes) if batch is None else batch
    if rows < 1:
        raise typer.BadParameter("must be at least 1", param_hint="--batch")
    if device not in ("cpu", "cuda"):
        raise typer.BadParameter(f"must be cpu or cuda, got {device!r}", param_hint="--device")
    row = _read_sizes(input_size)
    given = None if rates is None else read_rates(rates, len(sizes))
    in_job = int(os.environ.get("WORLD_SIZE", "1")) > 1 and given is None
    read: Model | None = None
    if in_job:
        read, measured = _in_job(model, sizes, rows, row, device, trusted=trust_repository)
        if read is None:
            return  # another rank prints
        data = measured
    else:
        from .measure import check_apart, measured_apart

        if given is None:
            check_apart(sizes, device)
        read = _described(model, rows, row, trusted=trust_repository)
        data = given.to_json() if given is not None else measured_apart(sizes, device, read)
    found = Rates.from_json(data, len(sizes))
    if save_rates is not None:
        _write("--save-rates", save_rates, json.dumps(data, indent=1))
    kept = read_keep(keep or [], read, sizes)
    planned = plan(read, sizes, found, bytes_, kept=kept, training=not inference, optimizer=optimizer)
    written = json.dumps(document(planned, read, sizes, found), indent=1)
    if save is not None:
        _write("--save", save, written)
    if format == "json":
        typer.echo(written)
        return
    _show(planned, rows=rows, mesh=sizes, source=str(rates) if rates is not None else str(data.get("source", "measured")))


def _read_sizes(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) for part in parts):
        raise typer.BadParameter(f"must be positive sizes as 3,224,224, got {text!r}", param_hint="--input-size")
    return tuple(map(int, parts))


def _in_job(
    what: str, mesh: tuple[int, ...], rows: int, row: tuple[int, ...] | None, device: str, *, trusted: bool
) -> tuple[Model | None, dict[str, Any]]:
    """On rank 0 the model and the measured rates; the other ranks measure with it."""
    import torch.distributed as dist

    from ..mesh import rank, world
    from .measure import measure
    from .operators import Model

    world(device, mesh)
    told: list[Any] = [None]
    error: HeadraceError | None = None
    if rank() == 0:
        try:
            told = [_described(what, rows, row, trusted=trusted).to_json()]
        except HeadraceError as raised:
            error = raised
    dist.broadcast_object_list(told, src=0)
    if error is not None:
        raise error
    if told[0] is None:
        raise SystemExit(2)  # rank 0 says why
    read = Model.from_json(told[0])
    measured = measure(mesh, device, read).to_json()
    dist.barrier()
    own = rank()
    dist.destroy_process_group()
    return (read if own == 0 else None), measured


def _described(what: str, rows: int, row: tuple[int, ...] | None, *, trusted: bool) -> Model:
    """The operators of a model, which is built and captured in a sandbox. Raises MigrateError saying why it cannot be."""
    from ....migrate.named.code import Code, said
    from ....migrate.named.packaged import read, sandbox_for
    from ....migrate.named.source import Options
    from ....migrate.proving.worker_pool import PACKAGING, WorkerPool
    from ....migrate.proving.worker_protocol import Evaluate, Evaluated
    from ....migrate.stages.worker_client import ask
    from .operators import Model

    random = not what.partition(":")[0].endswith(".py")
    options = Options(random_weights=random, trust_repository=trusted, timeout=_MOST_SECONDS)
    subject = read(what, options)
    if not isinstance(subject, Code):
        raise MigrateError(
            f"{what} holds a graph already; plan-parallel takes code: timm:NAME, torchvision:NAME, FILE.py:EXPRESSION"
        )
    with ScratchFolder() as scratch:
        sandbox = sandbox_for(subject, options, scratch)
        recipe = subject.recipe if subject.recipe.root else subject.recipe.in_copy(sandbox.readable_folder())
        with WorkerPool(sandbox, (*PACKAGING, *subject.preload)) as pool:
            if row is None:
                row = _told_size(subject, recipe, pool.sandbox)
            call = f"{Model.__module__!r}, fromlist=['described']).described(lambda: {recipe.expression}, {(rows, *row)})"
            asked = replace(recipe, expression=f"__import__({call}")
            answer = ask(Evaluate(recipe=replace(asked, source=_META + recipe.source)), pool.sandbox)
            if not isinstance(answer, Evaluated) and "CaptureError" not in said(answer):  # its code wants real numbers
                answer = ask(Evaluate(recipe=asked), pool.sandbox)
    if not isinstance(answer, Evaluated):
        raise MigrateError(f"{what}: {said(answer)}")
    try:
        return Model.from_json(answer.value)
    except ValueError as error:
        raise MigrateError(f"{what}: {error}") from None


def _told_size(subject: Any, recipe: Any, sandbox: Any) -> tuple[int, ...]:
    """What a library says of its model's input."""
    from ....migrate.named.code import said
    from ....migrate.proving.worker_protocol import Evaluate, Evaluated, Failed
    from ....migrate.stages.worker_client import ask

    if subject.facts:
        answer = ask(Evaluate(recipe=replace(recipe, expression=subject.facts)), sandbox)
        if isinstance(answer, Failed):
            raise MigrateError(f"{subject.what}: {said(answer)}")
        size = answer.value.get("input") if isinstance(answer, Evaluated) else None
        if isinstance(size, list | tuple) and size and all(type(item) is int and item > 0 for item in size):
            return tuple(size)
    raise MigrateError(f"{subject.what}: nothing says what size its input has; give --input-size 3,224,224")


def _write(option: str, path: Path, text: str) -> None:
    """A file, whole or not at all. Raises InputError where it cannot be written."""
    from ...base.atomic import write_aside

    try:
        write_aside(path, f"{text}\n".encode())
    except OSError as error:
        raise InputError(f"{option} {path}: {error.strerror}") from None


def _show(planned: Planned, *, rows: int, mesh: tuple[int, ...], source: str) -> None:
    from .candidate import AXES
    from .plan import duration, size

    console, best = make_console(), planned.best

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    axes = ", ".join(f"{name} {length}" for name, length in zip(AXES, mesh, strict=False))
    say(f"{best.title}")
    say(f"  a step of {rows} rows takes {duration(best.seconds)}, of which {duration(best.moved)} to move data and wait;")
    say(f"  {size(best.memory)} of memory a rank; mesh of {axes}; rates: {source}")
    say("")
    if best.stages:
        say(f"  {best.schedule} over {best.axis}, {best.microbatches} microbatches; stages, from and to:")
        for number, (first, last) in enumerate(best.stages):
            say(f"    {number}: {first} ... {last}")
    if best.layouts or not best.stages:
        say(f"  batch: {_sbp(best.inputs)}; scores: {_sbp(best.outputs)}; parameters: broadcast")
        for name, words in _grouped(best.layouts).items():
            say(f"    but {name}: {words}")
        for module, name, before, after in best.boxed[:_SHOWN]:
            say(f"    convert at {module or name} ({name}): {_sbp(before)} to {_sbp(after)}")
        if len(best.boxed) > _SHOWN:
            say(f"    and {len(best.boxed) - _SHOWN} conversions more (--format json)")
    say("")
    if planned.others:
        say("the others:")
    for other in planned.others[:_SHOWN]:
        say(f"  {duration(other.seconds):>9} {size(other.memory):>9}  {other.title}")
        say(f"  {'':>19}  {other.why}")
    if len(planned.others) > _SHOWN:
        say(f"and {len(planned.others) - _SHOWN} more (--format json)")
    for remark in planned.remarks:
        say(f"note: {remark}")


def _sbp(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"({', '.join(words)})"


def _grouped(layouts: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Names that lie alike on one line, with their numbers as *."""
    return {
        re.sub(r"(^|\.)\d+(?=\.)", r"\1*", name) if len(layouts) > 8 else name: _sbp(words) for name, words in layouts.items()
    }
