"""The `headrace` command: gathers the commands, which stand beside what they run and import nothing heavy before they run."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from types import FrameType
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from ._version import __version__
from .console import print_error
from .errors import DiskFault, HeadraceError, disk_fault

# What is not as a path that somebody named says.
_OF_PLACES = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTEMPTY)


class _Command(NamedTuple):
    """`place` and `cls` are a module of this package and a name in it: a function or an application, a class of commands."""

    place: str
    help: str
    context: dict[str, bool] | None = None
    cls: str = ""


COMMANDS = {
    "migrate": _Command("migrate.cli:migrate", "Migrate a repository, prove each step, and package its models."),
    "undo": _Command("migrate.cli:undo", "Take back the last migrate --write, byte for byte."),
    "rules": _Command("migrate.cli:rules", "List the migrator's rules, or explain one."),
    "run": _Command(
        "migrate.cli:run",
        "Run a script with its models in graph mode.",
        # What follows the script belongs to the script.
        {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
    ),
    "compile": _Command("migrate.cli:compile_", "Compile one model into a models folder, with a measured plan."),
    "tune": _Command("runtime.cli:tune", "Measure a packaged model on this machine and keep the plan."),
    "serve": _Command("serving.cli:serve", "Serve models over HTTP and gRPC.", cls="serving.command_line:GroupedCommand"),
    "bench": _Command("serving.bench.cli:bench", "Measure a served model beside the original repository."),
    "predict": _Command("serving.predict.cli:predict", "Say what is on images, as the server would."),
    "plan-parallel": _Command(
        "runtime.parallel.planner.cli:plan_parallel", "Plan a model's placement on a mesh of devices, from measured rates."
    ),
    "split": _Command("runtime.cli:split", "Split a packaged model over several processes, by class or into stages."),
    "export": _Command("runtime.cli:export", "Write a packaged model for another runtime."),
    "classify": _Command("serving.offline.cli:classify", "Classify every image of a folder, bucket or archive."),
    "verify": _Command("serving.verify.cli:verify", "Hold anyone's endpoint to a packaged model."),
    "doctor": _Command("runtime.cli:doctor", "Say what this machine has, and what is missing."),
    "triton": _Command("serving.triton.cli:app", "Check, write and run a models folder for NVIDIA Triton."),
}


class _Commands(TyperGroup):
    """The commands, each imported when it is asked for: `--help` and `headrace serve` wait for no other's imports."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """None for a name that is no command's, as click has it."""
        command = COMMANDS.get(cmd_name)
        if command is None:
            return None
        found = _imported(command.place)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(rich_markup_mode=None, add_completion=False)
            cls = _imported(command.cls) if command.cls else None
            alone.command(cmd_name, cls=cls, context_settings=command.context)(found)
            found = alone
        made = typer.main.get_command(found)
        made.name = cmd_name
        return made

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As click has it, and for a name that is none with those that are near."""
        if args and args[0] not in COMMANDS and not ctx.resilient_parsing:
            from difflib import get_close_matches

            if near := get_close_matches(args[0], COMMANDS):
                ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, near))}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f".{module}", __package__), name)


app = typer.Typer(
    name="headrace",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="A PyTorch image-classification repository, migrated to graph mode, compiled, served, and proved.",
)


def main() -> None:
    """Run the command line. Errors that Headrace raises on purpose become one message and exit status 2; so do disks that
    fail, and paths that are not what the command line says they are."""
    _open_closed_streams()
    if sys.argv[1:2] != ["run"]:  # what runs there is the user's
        _end_in_order_on_sigterm()
    try:
        app()
    except HeadraceError as error:
        print_error(error)
        raise SystemExit(2) from None
    except OSError as error:
        if fault := disk_fault(error):
            print_error(HeadraceError(f"{fault}; {_remedy(fault, error)}"))
        elif place := _named_place(error):
            print_error(HeadraceError(f"{place}: {error.strerror}; name another place"))
        else:
            raise
        raise SystemExit(2) from None


def _open_closed_streams() -> None:
    """What is started with a closed stream (`>&-`) prints to nobody, and not into the next file that it opens."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            nobody = os.open(os.devnull, os.O_RDWR)
            os.dup2(nobody, number)
            if nobody != number:
                os.close(nobody)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _remedy(fault: DiskFault, error: OSError) -> str:
    if error.errno == errno.EFBIG:  # a limit of the process, seldom one of the file system
        return "raise the limit on the size of a file (ulimit -f), or name a folder on another file system"
    where = "there" if fault.place else "where it writes (TMPDIR, --out)"
    return f"free space {where}, or name a folder that this user may write to"


_STARTING = (("threading", "start"), ("concurrent.futures.thread", "_adjust_thread_count"))
"""Functions of Python that start threads."""


def _end_in_order_on_sigterm() -> None:
    """Have SIGTERM, as of `timeout` or at a job's end, remove what lies in temporary folders, as Ctrl-C does; and SIGHUP, of a
    terminal that is closed, unless it is ignored (`nohup`) or a server's.

    A library of C++ that is being imported makes an error of its own of the exit, or crashes; and a thread that is just being
    started is not known yet to what ends it, and would be waited for without end; so it is asked again soon.
    """

    def end(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            starts = (frame.f_globals.get("__name__"), frame.f_code.co_name) in _STARTING
            if starts or isinstance(frame.f_locals.get("self"), ExtensionFileLoader):
                again = threading.Timer(0.05, os.kill, (os.getpid(), number))
                again.daemon = True
                again.start()
                return
            frame = frame.f_back
        sys.exit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        return
    closed = getattr(signal, "SIGHUP", None) if sys.argv[1:2] != ["serve"] else None
    for number in filter(None, (signal.SIGTERM, closed)):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


def _named_place(error: OSError) -> str | None:
    """The path of an error that the command line names, or names a place in: a file where a folder belongs, say. Of any other
    the traceback is of use."""
    place = os.fsdecode(error.filename2 or error.filename or "") if not isinstance(error.filename, int) else ""
    if not place or error.errno not in _OF_PLACES:
        return None
    given = [part.partition("=")[2] if part.startswith("--") else part for part in sys.argv[1:]]
    found = os.path.realpath(place)
    for one in (os.path.realpath(part) for part in given if part and "\0" not in part):
        if os.path.commonpath((one, found)) in (one, found):
            return place
    return None


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """A PyTorch image-classification repository, migrated to graph mode, compiled, served, and proved."""
