"""Turn a program into a recipe: source text, command line, folder; and read off it what it builds and loads."""

import ast
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ..reading.arguments import read_options
from ..reading.facts import Factory, Option, Script
from ..reading.nodes import inside
from ..reading.recipe import Recipe
from ..reading.scopes import Module, Repository, bound_names, last_name
from ..reading.source import NOTEBOOK, walk
from .interprocedural import Program
from .portable import make_portable

_MODEL_OPTION = re.compile(
    r"^(arch(itecture)?|model(_?(name|type|arch|version))?|net(work)?(_?(name|type))?|backbone|classifier|cnn|name)$", re.I
)
_CHECKPOINT_OPTION = re.compile(
    r"checkpoint|ckpt|weight(?!_?decay)|resume|pretrained|snapshot|load|model_?(path|file)|state", re.I
)
_CONFIGURATION_OPTION = re.compile(
    r"^(exp_?|model_?|data(set)?_?|train(ing)?_?)?(cfg|config|conf)(uration)?(_?(file|path|name|ya?ml))?$|^ya?ml(_?(file|path))?$",
    re.I,
)
_FILE = re.compile(r"\b(path|file|checkpoint|weights)\b|\.pth?\b", re.I)
"""In an option's help: its value is a file, not a name."""
_KEEP_WHOLE = frozenset("Path PurePath abspath expanduser expandvars fspath join realpath str".split())  # noqa: SIM905
"""What is made by them of a path as their last argument leads to the same file, where that path is absolute."""
_OTHER_CONFIGURATIONS = ((".toml", ".json", ".cfg", ".ini", ".conf"), (".py",))
_CONFIGURATION_FOLDER = re.compile(r"(^|/)(experiments?|[^/]*(cfg|conf)[^/]*)(/|$)", re.I)
_NOT_A_FILE = re.compile(r"dir|folder|key|save|interval|freq|url|prefix|workers|decay|num|size", re.I)


@dataclass(frozen=True)
class Written:
    """A program as text with the expression that names its result."""

    source: str
    expression: str
    tree: ast.Module


def write(program: Program, repository: Repository, folder: str, result: str) -> Written:
    """The program's text; a result that is not a plain name is bound to `result` at its end."""
    statements = list(program.body)
    expression: ast.expr = program.expression
    if not isinstance(expression, ast.Name):
        taken = set().union(*(bound_names(statement) for statement in statements)) if statements else set()
        name = result
        while name in taken:
            name = f"{name}_"
        statements.append(
            ast.fix_missing_locations(
                ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], expression), _last(statements))
            )
        )
        expression = ast.Name(name, ast.Load())
    tree = make_portable(statements, program.entry, folder, repository)
    source = ast.unparse(tree) + "\n"
    return Written(source, ast.unparse(expression), ast.parse(source))


def _last(statements: list[ast.stmt]) -> ast.AST:
    return (
        statements[-1] if statements else ast.copy_location(ast.Pass(lineno=1, col_offset=0), ast.Pass(lineno=1, col_offset=0))
    )


def options_of(written: Written, script: Script) -> list[Option]:
    """The options that the program's own parser still declares, or all of the script's when the parser stands elsewhere."""
    own = read_options(ast.walk(written.tree))
    if own:
        lines = {option.dest: option.line for option in script.options}  # the program's own lines are nobody's
        return [replace(option, line=lines.get(option.dest, option.line)) for option in own]
    parses = any(re.search(r"pars|arg|opt", last_name(call.func), re.I) for call in inside(written.tree, ast.Call))
    return list(script.options) if parses else []


def working_folder(script: Module, repository: Repository) -> str:
    """Where people stand when they run a script: its own folder, or the root when it imports what lies only there.

    Jupyter starts a notebook in its own folder, and one that reaches for the root itself says the way from there.
    """
    folder = posixpath.dirname(script.path)
    if not folder:
        return "."
    if script.path.endswith(NOTEBOOK) and re.search(r"\bsys\.path\b|\bchdir\b", script.file.text or ""):
        return folder
    for name in {value.partition(".")[0] for value in script.imports.values()}:
        beside = repository.has_package(name, script.path)
        nearby = any(path.startswith((f"{folder}/{name}.py", f"{folder}/{name}/")) for path in repository.modules)
        if beside and not nearby:
            return "."
    return folder


def recipe(root: Path, script: Module, repository: Repository, written: Written, argv: Iterable[str]) -> Recipe:
    return Recipe(
        root=str(root.resolve()),
        directory=working_folder(script, repository),
        script=script.path,
        argv=tuple(argv),
        source=written.source,
        expression=written.expression,
    )


def model_option(options: Iterable[Option], factories: Iterable[Factory], wanted: str | None) -> Option | None:
    """The option whose value chooses the model."""
    names = {factory.name for factory in factories}
    best: list[tuple[int, Option]] = []
    for option in options:
        if option.action is not None or option.type in ("int", "float", "bool") or _FILE.search(option.help):
            continue
        score = 0
        score += 4 * bool(option.choices and (wanted in option.choices if wanted else names & set(option.choices)))
        score += 3 * bool(_MODEL_OPTION.match(option.dest) and not _names_the_run(option, names))
        score += 2 * bool(isinstance(option.default, str) and option.default in names)
        if score >= 2:
            best.append((score, option))
    return max(best, key=lambda pair: pair[0])[1] if best else None


def names_model(option: Option) -> bool:
    """Whether an option's name is one by which people choose a model."""
    return _MODEL_OPTION.match(option.dest) is not None and option.dest != "name"


def names_configuration(option: Option) -> bool:
    """Whether an option's name is one by which people choose the file that describes an experiment."""
    return _CONFIGURATION_OPTION.match(option.dest) is not None


def _names_the_run(option: Option, names: set[str]) -> bool:
    """Whether a plain `--name` is that of an experiment: nothing about it speaks of models."""
    of_model = re.search(r"model|arch|net\b|network|backbone", option.help, re.I)
    return option.dest.lower() == "name" and not of_model and not names & {option.default, *(option.choices or ())}


def configuration_files(root: Path, option: Option) -> list[str]:
    """The files that an option can mean which wants a configuration: YAML, that of folders of configurations if there is any.

    A repository without YAML may keep TOML, JSON, INI or, without these, Python in such folders.
    """
    if not names_configuration(option) or option.action is not None or option.type not in (None, "str", "Path"):
        return []
    other = (".", "docker-compose", "environment", "mkdocs")
    files = [path for path in sorted(walk(root, (".yaml", ".yml"))) if not posixpath.basename(path).startswith(other)]
    if not files:
        for ends in _OTHER_CONFIGURATIONS:
            others = (path for path in sorted(walk(root, ends)) if posixpath.basename(path) != "__init__.py")
            if found := [path for path in others if re.search("cfg|conf", posixpath.dirname(path), re.I)]:
                return found
        return []
    return [path for path in files if _CONFIGURATION_FOLDER.search(posixpath.dirname(path))] or files


def checkpoint_option(options: Iterable[Option], written: Written) -> Option | None:
    """The option that names the file of weights which the program loads."""
    loaded: set[str] = set()
    for call in inside(written.tree, ast.Call):
        if last_name(call.func) == "load" and call.args:
            loaded |= _whole(call.args[0])
    read = {node.attr for node in inside(written.tree, ast.Attribute)}
    valued = [option for option in options if option.action is None and not option.choices]
    named = [item for item in valued if _CHECKPOINT_OPTION.search(item.dest) and not _NOT_A_FILE.search(item.dest)]
    named = [item for item in named if item.type in (None, "str", "Path")]
    choices = [*(item for item in valued if item.dest in loaded), *(item for item in named if item.dest in read), *named]
    return choices[0] if choices else None


def _whole(path: ast.expr) -> set[str]:
    """The option that a path is, as it is or below a folder; of a name that is put together of several, none is the file."""
    if isinstance(path, ast.Attribute):
        return {path.attr}
    if isinstance(path, ast.Subscript) and isinstance(path.slice, ast.Constant):
        return {str(path.slice.value)}
    if isinstance(path, ast.BinOp) and isinstance(path.op, ast.Div):
        return _whole(path.right)
    if isinstance(path, ast.Call) and path.args and last_name(path.func) in _KEEP_WHOLE:
        return _whole(path.args[-1])
    return set()


def loads_weights(written: Written) -> bool:
    names = ("load_state_dict", "load_from_checkpoint", "load_checkpoint", "load_weights")
    calls = inside(written.tree, ast.Call)
    return any(last_name(call.func) in names or ast.unparse(call.func) == "torch.load" for call in calls)


def with_literal_checkpoint(written: Written, path: str) -> Written | None:
    """The program with its literal `torch.load("...")` paths replaced, or None when it has none."""
    tree = ast.parse(written.source)
    hits = 0
    for call in inside(tree, ast.Call):
        if ast.unparse(call.func) == "torch.load" and call.args:
            call.args[0] = ast.Constant(path)
            hits += 1
    if not hits:
        return None
    source = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    return Written(source, written.expression, ast.parse(source))


def loaded_after(written: Written | Recipe, path: str) -> Written:
    """The program with a checkpoint loaded into its result at its end, whatever keys and prefixes the file has."""
    source = (
        f"{written.source}"
        "from headrace.migrate.worker.checkpoint import load_weights\n"
        "from headrace.migrate.worker.recipe import unwrap\n"
        f"load_weights(unwrap({written.expression}), {path!r})\n"
    )
    return Written(source, written.expression, ast.parse(source))


def guarding_flags(written: Written, options: Iterable[Option]) -> list[Option]:
    """Switches (`--resume`, store_true) under whose `if` the program loads weights."""
    switches = {option.dest: option for option in options if option.action == "store_true"}
    found = []
    for node in inside(written.tree, ast.If):
        if any(last_name(call.func) in ("load_state_dict", "load") for call in inside(node, ast.Call)):
            found += [switches[inner.attr] for inner in inside(node.test, ast.Attribute) if inner.attr in switches]
    return found
