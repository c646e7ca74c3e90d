"""`headrace serve`: its options are those of ServeConfig and RayConfig, from the command line, the environment and a file."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from .config import GROUPS, ServeConfig
from .options import Option, options_of
from .ray.config import RayConfig, check_options

_NOTHING = inspect.Parameter.empty
_MODELS = Option(
    field="models", name="models", kind=Path, default=_NOTHING, help="A model repository, as migrate and compile write it."
)
_CONFIG = Option(
    field="config", name="config", kind=Path, default=None, help="A TOML file with options, named as here without the dashes."
)
_RAY = Option(
    field="ray", name="ray", kind=bool, default=False, help="On a Ray cluster, by Ray Serve; the options below are for it."
)
_SERVING = [one for group in GROUPS.values() for one in options_of(group)]
_IN_FILES = {bool: "true or false", int: "a whole number", float: "a number", list[str]: "a list of texts"}


def serve(context: typer.Context, **values: Any) -> None:
    """Serve a model repository over the Open Inference Protocol, HTTP and gRPC, until SIGTERM.

    What is not given here is taken from the environment (--max-queue from HEADRACE_SERVE_MAX_QUEUE), then from the file of
    --config (max-queue = 512).
    """
    given = {name for name in values if getattr(context.get_parameter_source(name), "name", "DEFAULT") != "DEFAULT"}
    try:
        check_options(given, ray=values["ray"])
        if values["ray"] and values["decoding"] == "gpu":
            raise ValueError("--decoding gpu does not go with --ray: replicas decode on their cores; see --cpus-per-replica")
        cluster = RayConfig(**{one.field: one.value(values[one.parameter]) for one in options_of(RayConfig)})
        config = ServeConfig.of(models=values["models"], **{one.field: one.value(values[one.parameter]) for one in _SERVING})
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if values["ray"]:
        from .ray.deploy import serve_on_ray

        serve_on_ray(config, cluster)
        return
    from .server import serve as run

    run(config)


class GroupedCommand(TyperCommand):
    """A command whose help lists its options by their groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """By typer's own name for a group, which typer heeds itself only where rich prints the help."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            parameter.show_envvar = False  # type: ignore[attr-defined] # messages name the variable; here one line says it for all
            if (record := parameter.get_help_record(ctx)) is not None:
                group = "Arguments" if parameter.param_type_name == "argument" else "Options"
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or group, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


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
    known = {one.name: one for one in (_MODELS, *_SERVING, _RAY, *options_of(RayConfig))}
    for name, value in content.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else "options are named as on the command line, without the dashes"
            raise typer.BadParameter(f"{path}: {name} is no option of headrace serve; {hint}")
        if not _is(value, known[name].taken):
            raise typer.BadParameter(f"{path}: {name} must be {_IN_FILES.get(known[name].taken, 'a text')}, got {value!r}")
    context.default_map = {known[name].parameter: value for name, value in content.items()}
    return path


def _is(value: Any, kind: Any) -> bool:
    if kind == list[str]:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return isinstance(value, bool if kind is bool else str)


def _parameter(one: Option, group: str | None = None) -> inspect.Parameter:
    """What the command takes for an option, for typer."""
    about: dict[str, Any] = {"help": one.description, "envvar": one.variable, "metavar": one.metavar}
    if one is _MODELS:
        info = typer.Argument(**about)
    elif one is _CONFIG:
        info = typer.Option(is_eager=True, callback=_read_file, **about)
    else:
        info = typer.Option(rich_help_panel=group, show_default=one.kind is not bool, **about)
    default = None if one.default == () else one.default
    kind = Annotated[one.taken | None if default is None else one.taken, info]  # type: ignore[valid-type]
    return inspect.Parameter(one.parameter, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


serve.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
        *map(_parameter, (_MODELS, _CONFIG)),
        *(_parameter(one, group.title) for group in GROUPS.values() for one in options_of(group)),
        *(_parameter(one, RayConfig.title) for one in (_RAY, *options_of(RayConfig))),
    ]
)
