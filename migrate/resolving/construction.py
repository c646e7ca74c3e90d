"""The construction of the model behind one of a script's model calls, as a program; and of a factory without a script."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from ..reading.calls import SliceError
from ..reading.facts import Factory, Script
from ..reading.nodes import keyword_of, text_of
from ..reading.recipe import Recipe
from ..reading.scopes import Module, dotted, last_name
from ..reading.source import NOTEBOOK, STORED
from ..slicing.heads import is_zoo_constructor
from ..slicing.interprocedural import Point, Program, ProgramSlicer
from ..slicing.liveness import Options
from ..slicing.model_class import makes_itself
from ..slicing.recipes import recipe, write
from ..survey.lightning_module import LightningSite, WithoutCheckpoint, reduction
from ..survey.loops import CallSite
from ..survey.survey import ProjectIndex

_BY_NAME = frozenset(["create_model", "get_model", "load", "from_pretrained", "from_name"])
"""Constructors of published models that are told which."""
_NAMES = ("model_name", "name", "model", "pretrained_model_name_or_path")
"""What they call the argument that says it."""


@dataclass(frozen=True)
class Construction:
    """A script, the call whose model is meant, and the program that builds that model."""

    script: Script
    site: CallSite
    program: Program
    factory: Factory | None
    calls: tuple[ast.Call, ...]
    """The calls that make models in the program, as written."""
    networks: frozenset[str] = frozenset()
    """The names of the repository's networks, whose own parts are not how the program makes a model."""

    @property
    def builders(self) -> tuple[str, ...]:
        """Their callees."""
        return tuple(ast.unparse(call.func) for call in self.calls)

    @property
    def signature(self) -> str:
        """Two constructions with the same signature build the same model."""
        if self.factory is not None:
            return f"{self.factory.path}:{self.factory.name}"
        return " ".join(self.builders) or ast.unparse(ast.Module(self.program.body, type_ignores=[]))

    @property
    def zoo_name(self) -> str | None:
        """The published model that the program asks a library for, by its constructor's name, or by the name that one which
        makes any model is given; None where it asks for one or another, as where the first has no weights here."""
        asked: set[str | None] = set()
        for call, name in zip(self.calls, self.builders, strict=True):
            expanded = self.program.entry.expand(ast.parse(name, mode="eval").body)
            if expanded is not None and is_zoo_constructor(expanded):
                leaf = expanded.rpartition(".")[2]
                by_name = leaf in _BY_NAME
                asked.add(_asked_by_name(call, 1 if expanded.startswith("torch.hub.") else 0) if by_name else leaf)
        return next(iter(asked)) if len(asked) == 1 else None

    @property
    def statements(self) -> list[ast.stmt]:
        """The simple statements of the program's functions and top level, in source order."""
        found: list[ast.stmt] = []
        for item in self.program.body:
            if isinstance(item, ast.ClassDef | ast.Import | ast.ImportFrom):
                continue
            nodes = _outside(item, self.networks)
            found += [node for node in nodes if isinstance(node, ast.Assign | ast.Expr) and hasattr(node, "lineno")]
        return sorted(found, key=lambda node: node.lineno)

    def path_of(self, statement: ast.stmt) -> str:
        """The file that a statement of the program is from: the script, one through which its call was followed, or one of
        which a part was taken into the program."""
        for item in self.program.body:
            if (taken := getattr(item, "path", None)) is not None and any(node is statement for node in ast.walk(item)):
                return str(taken)
        for module in (self.program.entry, *(module for module, _ in self.program.callers)):
            alike = (node for node in module.of_kind(type(statement)) if _head(node) == _head(statement))
            if any(node.lineno == statement.lineno for node in alike):
                return module.path
        return self.script.path

    def names_model(self, statement: ast.stmt) -> bool:
        """Whether a statement calls what builds the model."""
        return any(isinstance(node, ast.Call) and ast.unparse(node.func) in self.builders for node in ast.walk(statement))


def _head(statement: ast.stmt) -> str:
    """What a statement gives a value to, else what it is; slicing may have changed the value."""
    return ", ".join(map(ast.unparse, statement.targets)) if isinstance(statement, ast.Assign) else type(statement).__name__


def rank_sites(known: ProjectIndex, script: Script) -> list[CallSite]:
    """A script's model calls: evaluation first, then prediction, then training; its own before those in other files."""
    order = {"evaluate": 0, "predict": 1, "train": 2}
    sites = [site for site in (*known.sites, *known.trainers) if site.fact in script.loops]
    return sorted(sites, key=lambda site: (order[site.fact.kind], site.fact.path != script.path))


def construct(known: ProjectIndex, script: Script, *, site: CallSite | None = None, checkpoints: bool = True) -> Construction:
    """The program that builds a script's model. Raises SliceError when no call can be followed back to its construction."""
    module = known.repository.modules[script.path]
    failures: list[str] = []
    for candidate in [site] if site is not None else rank_sites(known, script):
        options = Options(checkpoints=checkpoints, data=checkpoints)
        expression = ast.parse(candidate.fact.model, mode="eval").body
        point = Point(candidate.module, candidate.function, candidate.module.statement_of(candidate.call), expression)
        program_slicer = ProgramSlicer(known.repository, known.calls, module, options)
        if isinstance(candidate, LightningSite) and (reduced := reduction(candidate, options)) is not None:
            program_slicer.reduce(reduced, candidate.module)
        try:
            program = program_slicer.build(point)
            if not checkpoints and isinstance(candidate, LightningSite):
                program = replace(program, body=[WithoutCheckpoint().visit(item) for item in program.body])
        except SliceError as error:
            failures.append(str(error))
            continue
        if (asked := _asked(program)) is not None:
            failures.append(f"{asked} asks at the terminal (input), where nobody answers")
            continue
        factory, calls = _builders(known, program)
        return Construction(script, candidate, program, factory, calls, _networks(known))
    raise SliceError("; ".join(dict.fromkeys(failures)) or f"{script.path} calls no model")


def called(root: Path, value: str | None) -> str | None:
    """What the value of an option calls a model: a folder's name, and of a file that holds it nothing."""
    if value is None or value.endswith(STORED) or (root / value).is_file():
        return None
    return Path(value).name if (root / value).is_dir() else value


def _asked(program: Program) -> str | None:
    """Where a program would wait for what somebody types; None where it does not."""
    for item in [*program.body, program.expression]:
        for node in ast.walk(item):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "input":
                return f"{getattr(item, 'path', program.entry.path)}:{node.lineno}"
    return None


def _builders(known: ProjectIndex, program: Program) -> tuple[Factory | None, tuple[ast.Call, ...]]:
    """The factory that a program calls, as far as that is written, and every call of it that makes a model."""
    table = known.table
    by_place = {(factory.path, factory.name): factory for factory in table.factories}
    found: Factory | None = None
    calls: list[ast.Call] = []
    for item in [*program.body, program.expression]:
        if isinstance(item, ast.Import | ast.ImportFrom):
            continue
        for node in _outside(item, _networks(known)):
            if not isinstance(node, ast.Call):
                continue
            text = dotted(node.func)
            if text is None:
                if isinstance(node.func, ast.Subscript) or last_name(getattr(node.func, "func", node.func)) == "getattr":
                    calls.append(node)
                continue
            origin = known.repository.modules.get(getattr(item, "path", ""), program.entry)
            target = _target(origin, node)
            if target is None:
                if is_zoo_constructor(program.entry.expand(node.func)):
                    calls.append(node)
                continue
            module, definition = target
            if table.makes_model(module, definition):
                calls.append(node)
                found = found or by_place.get((module.path, definition.name)) or _only(known, module, definition)
    return found, tuple(calls)


def _networks(known: ProjectIndex) -> frozenset[str]:
    """The names of the repository's networks; what a Lightning module makes is how the program makes its model."""
    return frozenset(model.node.name for model in known.table.classes.values() if not model.lightning)


def _outside(item: ast.AST, networks: Collection[str]) -> Iterator[ast.AST]:
    """The nodes of a piece of a program but for those within networks, in the order of `ast.walk`."""
    found = [item]
    for node in found:
        if not (isinstance(node, ast.ClassDef) and node.name in networks):
            found += ast.iter_child_nodes(node)
            yield node


def _target(module: Module, call: ast.Call) -> tuple[Module, Any] | None:
    """What a call calls: a function, a class, or a class that makes itself, as `Net` does in `Net.from_name("small")`."""
    target = module.find_callee(call.func)
    if target is None and isinstance(call.func, ast.Attribute):
        owner = module.find_callee(call.func.value)
        if owner is not None and isinstance(owner[1], ast.ClassDef) and makes_itself(owner[1], call.func.attr):
            return owner
    return target


def _only(known: ProjectIndex, module: Module, definition: Any) -> Factory | None:
    """The factory behind a function that leads to exactly one."""
    if isinstance(definition, ast.ClassDef):
        return Factory(name=definition.name, path=module.path, line=definition.lineno, kind="class", module=module.name)
    built = known.table.builders(module, definition)
    places = {f"{factory.path}:{factory.name}": factory for factory in known.table.factories}
    return places.get(next(iter(built))) if len(built) == 1 else None


def imported_paths(known: ProjectIndex) -> set[str]:
    """The files of the repository that others of it import."""
    repository = known.repository
    return {
        found.path
        for module in repository.modules.values()
        for name in [*module.imports.values(), *module.star_imports]
        for part in (name, name.rpartition(".")[0])
        if part and (found := repository.module(part, module.path)) is not None and found is not module
    }


def preferred(known: ProjectIndex, factories: Sequence[Factory]) -> list[Factory]:
    """Factories of one name, those that other files import first: a copy in a script that converts weights is not meant."""
    imported = imported_paths(known)
    return sorted(factories, key=lambda factory: factory.path not in imported)


def _import_folder(known: ProjectIndex, factory: Factory) -> str:
    """The folder from which others import a factory's file: the shortest name that leads to it in one of them, else above
    the packages it stands in."""
    repository = known.repository
    own = repository.modules[factory.path]
    seen: set[str] = set()
    for module in repository.modules.values():
        if module is own:
            continue
        for name in [*module.imports.values(), *module.star_imports]:
            for dotted_name in (name, name.rpartition(".")[0]):
                if dotted_name and repository.module(dotted_name, module.path) is own:
                    path = factory.path.removesuffix("/__init__.py").removesuffix(".py")
                    inside = _importable(dotted_name).replace(".", "/")
                    if inside and (path == inside or path.endswith(f"/{inside}")):
                        seen.add(path.removesuffix(inside).rstrip("/"))
    folder = posixpath.dirname(factory.path)
    while folder and posixpath.join(folder, "__init__.py") in repository.modules:
        folder = posixpath.dirname(folder)
    above = [item for item in seen if f"{folder}/".startswith(f"{item}/") or not item]
    return min(above, key=len, default=folder)


def _importable(dotted_name: str) -> str:
    """The end of a module's name that a statement can import: `nets.small` of `deep-nets.nets.small`, which a relative import
    inside of a folder means whose own name is no identifier."""
    return ".".join(reversed(list(takewhile(str.isidentifier, reversed(dotted_name.split("."))))))


def direct(root: Path, known: ProjectIndex, factory: Factory, call: ast.Call | None) -> Recipe:
    """The recipe of a factory called alone, from the folder of its package; a notebook's is a slice of its cells."""
    if factory.path.endswith(NOTEBOOK):
        return _from_notebook(root, known, factory, call)
    folder = _import_folder(known, factory)
    module = factory.module
    if folder:
        module = module.removeprefix(folder.replace("/", ".") + ".")
    name = "model" if factory.name != "model" else "built"
    text = ast.unparse(call) if call is not None else f"{factory.name}()"
    source = f"from {module} import {factory.name}\n{name} = {text}\n"
    if _importable(module) != module:  # `2-nets.py`
        source = (
            f"from importlib import import_module\n{factory.name} = import_module({module!r}).{factory.name}\n{name} = {text}\n"
        )
    script = posixpath.join(folder, "build_model.py")
    return Recipe(root=str(root.resolve()), directory=folder or ".", script=script, source=source, expression=name)


def _from_notebook(root: Path, known: ProjectIndex, factory: Factory, call: ast.Call | None) -> Recipe:
    """Nothing can import a notebook: the program is what its cells do to define the factory, and the call after them."""
    notebook = known.repository.modules[factory.path]
    made = call if call is not None else ast.Call(ast.Name(factory.name, ast.Load()), [], [])
    program = ProgramSlicer(known.repository, known.calls, notebook, Options(checkpoints=False, data=True)).build(
        Point(notebook, None, None, made)
    )
    written = write(program, known.repository, posixpath.dirname(factory.path), "model")
    return recipe(root, notebook, known.repository, written, ())


def _asked_by_name(call: ast.Call, place: int) -> str | None:
    """The model that a constructor of any is told, where that is written out: `vit-base` of `google/vit-base`."""
    named = next(filter(None, (keyword_of(call, name) for name in _NAMES)), None)
    text = text_of(named.value if named is not None else next(iter(call.args[place : place + 1]), None))
    return text.rpartition("/")[2] or None if text is not None else None
