"""Survey: read every Python file and notebook of a repository once and state what is there. Nothing of it is run."""

import ast
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import MigrateError, NothingToMigrateError
from ..reading.arguments import is_parse_call, read_options
from ..reading.calls import Calls
from ..reading.facts import CheckpointSite, Command, Factory, Loop, LoopKind, Option, Script, Survey
from ..reading.finding import Finding
from ..reading.nodes import arguments_of, inside
from ..reading.scopes import Definition, Function, Module, Repository, dotted, last_name
from ..reading.source import MAX_FILES, SUFFIXES, SourceFile, read_source, walk
from ..slicing.factories import ModelTable
from .checkpoints import find_checkpoints
from .documented_commands import documented_commands
from .entry_points import called_by_commands
from .importers import leading_to
from .library_trainers import find_library_trainers, find_owned_loops
from .lightning_module import find_trainer_calls
from .loops import CallSite, TrainerSite, find_calls
from .model_archives import ModelArchive, model_archives
from .own_calls import find_own_calls
from .pointers import missing_contents
from .served_classes import served
from .submodules import missing_submodules
from .usages import usages

__all__ = ["CheckpointSite", "Factory", "Finding", "Loop", "Option", "Script", "Survey", "survey"]

_IMAGE = re.compile(
    r"^(im|img|image|picture|photo)s?(_?(path|file|name|filename|url)s?)?$|(path|file)_?(to_)?(img|image)s?$|^input_image", re.I
)
_HANDLERS = frozenset(["route", "api_route", "get", "post", "put", "websocket", "command", "on_event", "event"])
"""Decorators of functions that answer requests or commands."""
_MOUNTS = frozenset(["include_router", "register_blueprint", "mount", "include", "add_typer", "add_command"])
_ROUTES = ("django.urls", "django.conf.urls", "rest_framework.routers")
_OPENERS = frozenset(["open", "imread", "read_image", "load_image", "pil_loader", "default_loader"])
_TORCH = re.compile(rb"\b(torch|timm|torchvision|lightning|pytorch_lightning|fastai|ultralytics|transformers)\b")


@dataclass(frozen=True)
class ProjectIndex:
    """The repository's modules, model classes, calls and model calls, for the stages after the survey."""

    repository: Repository
    table: ModelTable
    calls: Calls
    sites: tuple[CallSite, ...]
    trainers: tuple[TrainerSite, ...] = ()
    """Calls of a Trainer, which has the loops itself."""
    own: tuple[CallSite, ...] = ()
    """Calls that networks make of themselves, in the methods by which they are trained and evaluated."""
    archives: tuple[ModelArchive, ...] = ()
    """What the repository packs for TorchServe."""
    called: Mapping[str, str] = field(default_factory=dict)
    """What the commands that installing it makes call of files that run nothing by themselves, by path."""


def project_index(survey: Survey) -> ProjectIndex:
    """The index of a survey; made anew for one that was put together by hand."""
    return (
        survey.index
        if isinstance(survey.index, ProjectIndex)
        else _indexed(survey.files, model_archives(survey.root), called_by_commands(survey.root))
    )


def survey(root: Path, progress: Callable[[float, str], None] | None = None) -> Survey:
    """Survey the repository at `root`.

    `progress` is called with a fraction from 0 to 1 and the path at hand. One bad file is one Finding, and stops nothing.
    Raises MigrateError when `root` is not a folder, NothingToMigrateError when it holds no Python that uses PyTorch.
    """
    root = Path(root)
    if not root.is_dir():
        raise MigrateError(f"{root} is not a folder; give the root of a PyTorch repository")
    closed: list[str] = []
    paths = list(walk(root, SUFFIXES, closed))
    if not paths:
        raise NothingToMigrateError(
            f"{root} holds no Python file and no notebook; looked for *.py and *.ipynb outside of hidden and build folders"
        )
    files: list[SourceFile] = []
    for index, path in enumerate(paths):
        if progress is not None:
            progress(0.7 * index / len(paths), path)
        files.append(read_source(root, path))
    if not any(_TORCH.search(file.data if file.notebook is None else file.notebook.text.encode()) for file in files):
        raise NothingToMigrateError(
            f"none of the {len(files)} Python files in {root} mentions torch; there is no model to migrate"
        )
    if progress is not None:
        progress(0.7, "models")
    found = _indexed(tuple(files), model_archives(root), called_by_commands(root))
    findings = [file.problem for file in files if file.problem is not None]
    findings += [
        Finding(path, 1, 0, "PS003", "this user may not read this folder, so it is left out", "warning") for path in closed
    ]
    findings += [finding for file in files if file.notebook is not None for finding in file.notebook.findings]
    findings += missing_submodules(root)
    findings += missing_contents(root)
    if len(paths) >= MAX_FILES:
        findings.append(Finding("", 1, 0, "PS003", f"only the first {MAX_FILES:,} Python files were read", "warning"))
    if progress is not None:
        progress(0.9, "scripts")
    result = _stated(root, tuple(files), findings, found, documented_commands(root), usages(root, files))
    if progress is not None:
        progress(1.0, "")
    return result


def runnable(survey: Survey) -> list[Script]:
    """The files that do something when they are run, and come to torch or are documented: scripts, also where no call of a
    model was seen."""
    found = project_index(survey)
    (with_torch,) = leading_to(found.repository, _mentions_torch)
    documented = {command.script for command in survey.commands}
    return [
        _script_of(module, found, ())
        for module in found.repository.modules.values()
        if (does_something(module) or module.path in found.called) and module.path in with_torch | documented
    ]


def does_something(module: Module) -> bool:
    """Whether a file does more than to define things when it is run: it asks whether it is, or starts work."""
    return is_guarded(module) or started_work([item for item in module.tree.body if not isinstance(item, Definition)])


def _mentions_torch(module: Module) -> bool:
    return _TORCH.search((module.file.text or "").encode()) is not None


def resurvey(survey: Survey, files: tuple[SourceFile, ...], seen: frozenset[str] = frozenset()) -> Survey:
    """The survey of the same repository with other texts in its files, which may lie nowhere but in memory; `seen` are the
    names of classes that a run has shown to be classifiers."""
    known = {file.problem for file in survey.files} | {item for item in survey.findings if item.code == "PS016"}
    findings = [finding for finding in survey.findings if finding not in known and not _mended(finding, files)]
    findings += [file.problem for file in files if file.problem is not None]
    before = project_index(survey)
    found = _indexed(files, before.archives, before.called, seen)
    return _stated(survey.root, files, findings, found, survey.commands, survey.usages)


def _mended(finding: Finding, files: Iterable[SourceFile]) -> bool:
    """Whether a finding says of a notebook's cell that it does not parse, and now it does."""
    if finding.code != "PS001" or finding.severity != "warning":
        return False
    after = next((file.notebook for file in files if file.path == finding.path), None)
    if after is None:
        return False
    broken = {after.locate(line)[0] for line, _ in after.broken_cells()}
    return after.locate(finding.line)[0] not in broken


def _stated(
    root: Path,
    files: tuple[SourceFile, ...],
    findings: Iterable[Finding],
    found: ProjectIndex,
    commands: tuple[Command, ...],
    usages: tuple[Command, ...],
) -> Survey:
    modules = found.repository.modules.values()
    return Survey(
        root=root,
        factories=found.table.factories,
        scripts=_scripts(found),
        checkpoints=tuple(item for module in modules for item in find_checkpoints(module, found.calls)),
        findings=tuple(sorted([*findings, *(item for module in modules for item in find_owned_loops(module))])),
        files=files,
        loops=tuple(site.fact for site in (*found.sites, *found.own)),
        commands=commands,
        usages=usages,
        index=found,
    )


def _indexed(
    files: tuple[SourceFile, ...],
    archives: tuple[ModelArchive, ...],
    called: Mapping[str, str],
    seen: frozenset[str] = frozenset(),
) -> ProjectIndex:
    repository = Repository(files)
    table = ModelTable(repository, seen)
    sites = tuple(site for module in repository.modules.values() for site in find_calls(module, table))
    trainers: list[TrainerSite] = [*find_trainer_calls(repository, table)]
    followed = {site.module.path for site in (*sites, *trainers)}
    for module in repository.modules.values():
        trainers += find_library_trainers(module, table) if table.factories and module.path not in followed else ()
    own = tuple(site for module in repository.modules.values() for site in find_own_calls(module, table))
    return ProjectIndex(repository, table, Calls(repository), sites, tuple(trainers), own, archives, called)


def _scripts(found: ProjectIndex) -> tuple[Script, ...]:
    by_function: dict[ast.AST | None, list[CallSite]] = {}
    for site in (*found.sites, *found.trainers, *found.own):
        by_function.setdefault(_outermost(site), []).append(site)
    modules = found.repository.modules.values()
    scripts = [script for module in modules if (script := _script(module, found, by_function)) is not None]
    if not scripts and len(found.table.factories) < 2:  # a package that others import: its functions build the model
        scripts = [script for module in modules if (script := _script(module, found, by_function, library=True)) is not None]
    return tuple(scripts)


def _outermost(site: CallSite) -> ast.AST | None:
    """The definition at module level in which a call stands; the file's own tree when it stands in none."""
    if site.function is None:
        return site.module.tree
    return [node for node in (site.function, *site.module.ancestors(site.function)) if isinstance(node, Definition)][-1]


def _script(
    module: Module, found: ProjectIndex, by_function: dict[ast.AST | None, list[CallSite]], *, library: bool = False
) -> Script | None:
    """The script that a file is, if it starts what calls a model; of a `library`, all that it defines may be started."""
    started = [item for item in module.tree.body if not isinstance(item, Definition)]
    called = _served(module, found)
    command = module.definitions.get(found.called.get(module.path, ""))
    handlers = [*_handlers(module), *itertools.chain(*called.values()), *filter(None, [command])]
    entered = module.definitions.values() if library else handlers
    sites: list[CallSite] = []
    seen: set[ast.AST] = set()
    names: set[str] = set()
    queue: list[tuple[Module, ast.AST]] = [*((module, item) for item in started), *((module, item) for item in entered)]
    while queue:
        where, node = queue.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, ast.ClassDef):
            queue += [base for item in node.bases if (base := where.find_callee(item)) is not None]
        for inner in ast.walk(node):
            target: tuple[Module, Definition] | None = None
            if isinstance(inner, ast.Call):
                names.add(last_name(inner.func))
                target = where.find_callee(inner.func)
                arguments = [where.find(value.id) for value in arguments_of(inner) if isinstance(value, ast.Name)]
                queue += [item for item in arguments if item is not None]
                if last_name(inner.func) in _MOUNTS:
                    queue += [item for value in arguments_of(inner) for item in _mounted(where, value)]
            elif isinstance(inner, ast.Attribute):
                target = where.find_callee(inner)
            if target is not None:
                queue.append(target)
        sites += by_function.get(node, [])
    sites += [site for site in by_function.get(module.tree, []) if site not in sites]
    own = {site for site in found.own if not names.intersection((site.fact.function or "").split("."))}
    sites = [site for site in sites if site not in own]  # a method that nothing calls makes a script no other
    runs = is_guarded(module) or library or module.path in found.called or (started_work(started) and not _only_routes(module))
    if not (called or (sites and runs)):
        return None
    facts = tuple(sorted({site.fact for site in sites}, key=lambda fact: (fact.path != module.path, fact.path, fact.call_line)))
    return _script_of(module, found, facts)


def _only_routes(module: Module) -> bool:
    """Whether a file lists what Django calls for which path, and is read by Django alone."""
    return any(name.startswith(_ROUTES) for name in module.imports.values())


def _served(module: Module, found: ProjectIndex) -> dict[str, list[Definition]]:
    """What a server would call; of Django's views, of which a project has many, only those near a model."""
    called = served(module, found.archives)
    if "django" in called:
        near = [module, *filter(None, map(module.source_of, module.imports.values()))]
        if not any(_TORCH.search((item.file.text or "").encode()) for item in near):
            del called["django"]
    return called


def is_guarded(module: Module) -> bool:
    """Whether a file asks whether it is the one that is run."""
    return any(isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) for node in module.tree.body)


def _script_of(module: Module, found: ProjectIndex, facts: tuple[Loop, ...]) -> Script:
    options = _options(module)
    order: tuple[LoopKind, ...] = ("train", "evaluate", "predict")
    server = next(iter(_served(module, found)), None)
    return Script(
        path=module.path,
        roles=tuple(
            kind
            for kind in order
            if any(fact.kind == kind for fact in facts) or (kind == "predict" and not facts and server is not None)
        ),
        loops=facts,
        options=options,
        argparse_required=tuple(option.dest for option in options if option.required),
        image_argument=_image_argument(module, options),
        main_guard=is_guarded(module),
        server=server,
    )


def started_work(statements: list[ast.stmt]) -> bool:
    """Whether importing a file does more than define things: it calls something at module level and throws the result away,
    loops, or makes an object of a web framework or of a model."""
    return any(
        isinstance(item, ast.For | ast.While | ast.With)
        or (isinstance(item, ast.Expr | ast.Assign) and isinstance(item.value, ast.Call))
        for item in statements
    )


def _handlers(module: Module) -> list[Function]:
    """The functions of a file that a web framework or a command line calls."""
    functions = (node for node in module.definitions.values() if isinstance(node, Function))
    return [
        node
        for node in functions
        if any(isinstance(item, ast.Call) and last_name(item.func) in _HANDLERS for item in node.decorator_list)
    ]


def _mounted(module: Module, value: ast.expr) -> Iterator[tuple[Module, ast.AST]]:
    """The handlers of the file in which stands what an application takes in: a router, a blueprint."""
    other = module.source_of(module.expand(value) or "")
    if other is not None:
        yield from ((other, node) for node in _handlers(other))


def _options(module: Module) -> tuple[Option, ...]:
    """The script's own options, and those of the parser that it imports from another file."""
    own = read_options(module.nodes)
    if own:
        return tuple(own)
    for call in module.calls:
        target = module.find_callee(call.func) if re.search(r"arg|opt|pars", last_name(call.func), re.I) else None
        if target is not None and target[0] is not module:
            others = read_options(ast.walk(target[1])) or read_options(target[0].nodes)
            if others:
                return tuple(others)
    parsed = {(dotted(call.func) or "").partition(".")[0] for call in module.calls if is_parse_call(call)}
    for name, imported in module.imports.items():  # a parser, or what it parsed
        source = module.source_of(imported)
        known = source is not None and source is not module and (name in parsed or _parses_when_imported(source))
        if source is not None and known and (others := read_options(source.nodes)):
            return tuple(others)
    return ()


def _parses_when_imported(module: Module) -> bool:
    top = (item.value for item in module.tree.body if isinstance(item, ast.Assign | ast.AnnAssign | ast.Expr) and item.value)
    return any(is_parse_call(node) for value in top for node in ast.walk(value))


def _image_argument(module: Module, options: tuple[Option, ...]) -> str | None:
    opened: set[str] = set()
    for call in module.calls:
        if last_name(call.func) in _OPENERS and dotted(call.func) != "open":
            opened |= {inner.attr for value in call.args for inner in inside(value, ast.Attribute)}
    named = [option for option in options if option.dest in opened or _IMAGE.match(option.dest) or "IMAGE" in option.flags]
    named = [option for option in named if option.action is None and option.type not in ("int", "float", "bool")]
    best = [option for option in named if option.dest in opened] or [option for option in named if option.positional] or named
    if not best:
        for node in module.nodes:  # for path in args.images
            if isinstance(node, ast.For) and (text := dotted(node.iter)) is not None:
                best += [option for option in options if option.dest == text.rpartition(".")[2] and option.positional]
    return best[0].dest if best else None
