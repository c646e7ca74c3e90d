"""What a survey of a repository states: factories, scripts, model calls, checkpoints. Plain values, no code runs.

Paths are POSIX and relative to the repository root; lines count from 1, columns (in characters) from 0.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .finding import Finding
from .source import SourceFile

LoopKind = Literal["train", "evaluate", "predict"]


@dataclass(frozen=True, kw_only=True)
class Factory:
    """Something that returns a whole classifier when called: a function, or an nn.Module class itself."""

    name: str
    path: str
    line: int
    kind: Literal["class", "function"]
    module: str
    """Dotted import name as seen from the repository root, e.g. "models.resnet"."""
    required: tuple[str, ...] = ()
    """Parameters without a default."""


@dataclass(frozen=True, kw_only=True)
class Loop:
    """One call of a model inside a script or a function that scripts use: `outputs = model(images)`.

    "evaluate" and "train" are calls inside a loop over batches with targets; "predict" is a call on inputs without targets.
    The texts are source as written. `outputs` is None when the result is not bound to a plain name at once.
    """

    path: str
    function: str | None
    """Qualified name of the enclosing function, e.g. "Trainer.evaluate"; None at module level."""
    line: int
    kind: LoopKind
    model: str
    inputs: str
    outputs: str | None = None
    targets: str | None = None
    iterator: str | None = None
    """What the loop runs over, as written, e.g. "enumerate(test_loader)"."""
    call_line: int
    call_column: int
    through: tuple[str, ...] = ()
    """Files of the modules that a trainer may be given here, whose steps it calls."""
    steps: tuple["Loop", ...] = ()
    """The calls of the network in those steps. They serve training, too: they count where no gradients are wanted."""


@dataclass(frozen=True, kw_only=True)
class CheckpointSite:
    """A `torch.load`. `key` is the entry that becomes the state dict, `strip` the prefix that is taken off its keys."""

    path: str
    line: int
    expression: str
    """The file argument as written, e.g. "args.resume"."""
    key: str | None = None
    strip: str | None = None
    weights: bool = True
    """Whether what is read becomes a model's weights or is the model, as far as can be followed; data sets are stored too."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One argparse argument. `default`, `choices` and `type` are literal values or None when they are not literals."""

    flags: tuple[str, ...]
    dest: str
    line: int
    positional: bool
    required: bool
    default: Any = None
    choices: tuple[Any, ...] | None = None
    type: str | None = None
    action: str | None = None
    nargs: str | int | None = None
    help: str = ""
    commands: tuple[str, ...] = ()
    """The subcommands whose option it is; none for one of the whole script."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """A file that is run: it has a main guard, or does its work at import, and reaches at least one model call.

    `loops` holds the calls in the file itself and those in functions of other files that it calls.
    """

    path: str
    roles: tuple[LoopKind, ...]
    loops: tuple[Loop, ...]
    options: tuple[Option, ...] = ()
    argparse_required: tuple[str, ...] = ()
    """Destinations of the options that must be given."""
    image_argument: str | None = None
    """Destination of the option that takes an image's path."""
    main_guard: bool = False
    server: str | None = None
    """The model server for which it defines what that calls, as `survey.served_classes` names it."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command line of the documentation, at `path` and `line`, that runs a script, or a module by `python -m`."""

    script: str
    """Its path; where it `is_file` no longer, what its path ends in."""
    is_file: bool = True
    written: str = ""
    """The path by which the command names it, seen from where people stand who type it; empty for a module."""
    arguments: tuple[str, ...] = ()
    """As written; `reading.arguments.OPEN` stands for each that the reader has to fill in."""
    path: str
    line: int
    readme: bool = True
    """Whether that is a README, and not another document or a shell script."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Everything found in one repository. `errors` are the findings that say which files could not be read or parsed."""

    root: Path
    factories: tuple[Factory, ...] = ()
    scripts: tuple[Script, ...] = ()
    checkpoints: tuple[CheckpointSite, ...] = ()
    findings: tuple[Finding, ...] = ()
    files: tuple[SourceFile, ...] = field(default=(), repr=False)
    loops: tuple[Loop, ...] = ()
    """Every model call of the repository, also those that no script reaches."""
    commands: tuple[Command, ...] = ()
    """How the documentation runs the scripts, in the order of reading."""
    usages: tuple[Command, ...] = ()
    """How scripts say at their top that they are run, and how the editor starts them."""

    index: object = field(default=None, repr=False, compare=False)
    """The project's index, with which the survey worked, for the stages after it; see `survey.project_index`."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "error")

    def file(self, path: str) -> SourceFile:
        """The file at that relative path; KeyError when the survey did not read it."""
        for candidate in self.files:
            if candidate.path == path:
                return candidate
        raise KeyError(path)
