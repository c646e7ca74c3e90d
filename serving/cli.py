"""`headrace serve`: its options are those of ServeConfig and RayConfig, from the command line, the environment and a file."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated, Any

import typer

from ..extras import require
from .command_line import takes
from .config import GROUPS, ServeConfig
from .options import options_of, values_of
from .ray.config import RayConfig, check_options

_VARIABLES = "HEADRACE_SERVE_"
_IN_FILES = {bool: "true or false", int: "a whole number", float: "a number", list[str]: "a list of texts"}


def _read_file(context: typer.Context, path: Path | None) -> Path | None:
    """Make the options of a TOML file the defaults of this call."""
    if path is None:
        return None
    import difflib
    import tomllib

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"cannot read {path}: {error}") from None
    known: dict[str, Any] = {one.name: one.taken for group in (*GROUPS.values(), RayConfig) for one in options_of(group)}
    known |= {"models": Path, "ray": bool}
    for name, value in content.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else "options are named as on the command line, without the dashes"
            raise typer.BadParameter(f"{path}: {name} is no option of headrace serve; {hint}")
        if not _is(value, known[name]):
            raise typer.BadParameter(f"{path}: {name} must be {_IN_FILES.get(known[name], 'a text')}, got {value!r}")
    context.default_map = {name.replace("-", "_"): value for name, value in content.items()}
    return path


def _is(value: Any, kind: Any) -> bool:
    if kind == list[str]:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return isinstance(value, bool if kind is bool else str)


@takes(*GROUPS.values(), RayConfig, variables=_VARIABLES)
def serve(
    context: typer.Context,
    models: Annotated[
        Path, typer.Argument(help="A model repository, as migrate and compile write it.", envvar=f"{_VARIABLES}MODELS")
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file with options, named as here without the dashes.",
            is_eager=True,
            callback=_read_file,
            envvar=f"{_VARIABLES}CONFIG",
        ),
    ] = None,
    *,
    ray: Annotated[
        bool,
        typer.Option(
            help="Serve on a Ray cluster, by Ray Serve; the other options of this group are for that.",
            rich_help_panel=RayConfig.title,
            envvar=f"{_VARIABLES}RAY",
            show_default=False,
        ),
    ] = False,
    **options: Any,
) -> None:
    """Serve a model repository over the Open Inference Protocol, HTTP and gRPC, until SIGTERM.

    What is not given here is taken from the environment (--max-queue from HEADRACE_SERVE_MAX_QUEUE), then from the file of
    --config (max-queue = 512).
    """
    require("headrace serve", "serve")
    given = {name for name in options if getattr(context.get_parameter_source(name), "name", "DEFAULT") != "DEFAULT"}
    try:
        check_options(given, ray=ray)
        if ray and options["decoding"] == "gpu":
            raise ValueError("--decoding gpu does not go with --ray: replicas decode on their cores; see --cpus-per-replica")
        cluster = RayConfig(**values_of(RayConfig, options))
        settings = ServeConfig(models=models, **{name: group(**values_of(group, options)) for name, group in GROUPS.items()})
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if ray:
        from .ray.deploy import serve_on_ray

        serve_on_ray(settings, cluster)
        return
    gc.disable()  # until all is loaded: of what is imported nothing is garbage
    from .server import serve as run

    run(settings)
