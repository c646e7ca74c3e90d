"""`headrace serve`: its options are those of these classes, from the command line, the environment and a file."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..extras import require
from .command_line import takes
from .config import GROUPS, ServeConfig
from .named.config import NamedModel
from .options import options_of, values_of
from .ray.config import RayConfig, check_options

if TYPE_CHECKING:
    from .named.planner import Planner

_VARIABLES = "HEADRACE_SERVE_"
_IMPORTS_NICE = 5
_OF_THE_SERVER = (
    "headrace.serving.server", "headrace.serving.processes.single", "headrace.serving.models.repository",
    "headrace.serving.http.app", "headrace.serving.grpc.server", "onnxruntime", "simplejpeg", "cykooz_resizer",
)  # fmt: skip
_LOOK_SECONDS = 1.0  # between two looks for a plan
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
    known: dict[str, Any] = {
        one.name: one.taken for group in (*GROUPS.values(), NamedModel, RayConfig) for one in options_of(group)
    }
    known |= {"models": str, "ray": bool}
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


@takes(*GROUPS.values(), NamedModel, RayConfig, variables=_VARIABLES)
def serve(
    context: typer.Context,
    models: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="A models folder, a repository, timm:NAME, torchvision:NAME, hf:ORG/NAME, FILE.onnx, FILE.pt2, ...",
            envvar=f"{_VARIABLES}MODELS",
        ),
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
    """Serve a model repository, or a model by its name, over the Open Inference Protocol, HTTP and gRPC, until SIGTERM.

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
        named = NamedModel(**values_of(NamedModel, options))
        settings = ServeConfig(models=Path(), **{name: group(**values_of(group, options)) for name, group in GROUPS.items()})
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if is_models_folder(models):
        if given & {one.parameter for one in options_of(NamedModel)}:
            raise typer.BadParameter(f"{models} is a models folder, which takes no options of a model by its name")
        planning = None
        settings = settings.changed(models=Path(models))
    else:
        folder, planning = _named(models, named, trusted=settings.security.trust_repository)
        settings = settings.changed(models=folder)
    if ray:
        from .ray.deploy import serve_on_ray

        serve_on_ray(settings, cluster)
        return
    gc.disable()  # until all is loaded: of what is imported nothing is garbage
    from .server import serve as run

    if planning is None or named.no_plan:
        run(settings)
        return
    if settings.control.model_control_mode == "none":
        settings = settings.changed(model_control_mode="poll", repository_poll_seconds=_LOOK_SECONDS)
    planning.start()
    try:
        run(settings)
    finally:
        planning.stop()


@contextlib.contextmanager
def _importing_server() -> Iterator[None]:
    """Import what serves, which takes a second or two, while a worker builds the model and this process waits for it. Of low
    priority: the worker's threads are what everybody waits for."""
    over = threading.Event()

    def work() -> None:
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _IMPORTS_NICE)
        for module in _OF_THE_SERVER:
            if over.is_set():
                return
            with contextlib.suppress(ImportError):  # which whoever needs it says
                importlib.import_module(module)

    gc.disable()  # until all is loaded: of what is imported nothing is garbage
    thread = threading.Thread(target=work, name="headrace-imports")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()  # the module that it is at: a process that ends amid an import may crash


def is_models_folder(what: str) -> bool:
    """Whether it is a folder that is served as it stands: models lie in it, or nothing that says it is something else."""
    from ..runtime.artifact.model_folder import holds_models

    path = Path(what)
    if holds_models(path) or not path.is_dir():
        return path.is_dir()
    others = ("config.pbtxt", "config.json", "*.py", "*.ipynb", "*/*.py", "*/*.ipynb")
    return not any(True for other in others for _ in path.glob(other))


def _named(what: str, asked: NamedModel, *, trusted: bool) -> tuple[Path, Planner | None]:
    """The models folder in the cache that a name becomes, and what measures its plan if there is none."""
    from ..runtime.artifact.model_folder import check_place

    check_place(what)
    require(f"headrace serve {what}, which is no models folder,", "migrate")
    from ..console import make_console
    from ..migrate.cli import read_input_size, read_named_task
    from ..migrate.named.packaged import packaged
    from ..migrate.named.source import Options
    from ..runtime.base.cache_folder import cache_folder
    from .named.planner import Planner, unplanned
    from .ready_file import report

    cache = asked.cache or cache_folder()
    if cache is None:
        raise typer.BadParameter("the cache is off (HEADRACE_CACHE); name a folder for the packaged model with --cache DIR")
    same = ("checkpoint", "random_weights", "name", "precision", "images", "trust_checkpoint", "trust_remote_code")
    options = Options(
        **{name: getattr(asked, name) for name in same},
        input_size=read_input_size(asked.input_size),
        task=read_named_task(asked.task),
        trust_repository=trusted,
    )
    with _importing_server():
        models = packaged(what, cache=cache, options=options, console=make_console())
    name = unplanned(models)
    if name is None:
        return models, None
    arguments = [*asked.arguments(), *(["--trust-repository"] if trusted else [])]
    return models, Planner(what, arguments, models, name, report)
