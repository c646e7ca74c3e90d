"""Several models of one repository: each resolved as the repository itself states it, and all packaged side by side."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...errors import AmbiguousError, MigrateError
from ..reading.calls import SliceError
from ..reading.facts import Factory, Survey
from ..reporting.report import ModelReport, Parity
from ..resolving.construction import construct
from ..resolving.resolve import resolve
from ..resolving.resolved import Resolved
from ..survey.survey import project_index
from .migration import Migration
from .package_model import ModelOutcome, package_model, serve
from .scripts.originals import Originals
from .worker_client import model_name

_SHARE = 4.0
"""All models together are tuned for so many times the seconds that one alone would get,"""
_LEAST_SECONDS = 4.0
"""but each for as long as it takes to measure candidates that need no compiler beside eager."""
_SECONDS, _SECONDS_ON_A_GPU = 30.0, 240.0  # as GraphConfig has them for one model
_SCRIPTS = 4
_MENU = re.compile(r"^\s*#\s*(?:[\w.]+\s*=\s*)?(\w+\(.*\))\s*(?:#.*)?$")


def split_models(wanted: str) -> list[str]:
    """The names in `--model a,b,VGG('VGG16', 10)`; commas inside of brackets part no names."""
    parts, depth = [""], 0
    for character in wanted:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def resolve_all(surveyed: Survey, main: Resolved | None, entry: str | None) -> Iterator[tuple[Factory, Resolved | str]]:
    """Every factory but the one of `main` (the script's own model), as the repository builds it, or why it cannot be built.

    A script that builds it says best how; else it is called in place of the script's own model, with the arguments that a call
    or a commented-out call of it states; else alone. Nothing is made up for arguments that stand nowhere.
    """
    builders = _builders(surveyed)
    for factory in surveyed.factories:
        place = f"{factory.path}:{factory.line}"
        if main is not None and main.factory == place:
            continue
        yield factory, _resolve_one(surveyed, factory, entry, builders.get((factory.path, factory.name)))


def _resolve_one(surveyed: Survey, factory: Factory, entry: str | None, builder: str | None) -> Resolved | str:
    name = f"{factory.path}:{factory.name}"
    reasons: list[str] = []
    call = _stated_call(surveyed, factory) if factory.required else None
    tries: list[tuple[str | None, str | None]] = [(builder, None)] if builder is not None else []
    tries += [(entry, f"{name}{call}" if call else name), (entry, factory.name)]
    if entry is None:  # where scripts build different models, any of them says what its data are like
        tries += [(script.path, f"{name}{call}" if call else name) for script in surveyed.scripts[:_SCRIPTS]]
    for where, model in tries:
        try:
            found = resolve(surveyed, entry=where, model=model)
        except MigrateError as error:
            reasons.append(str(error))
            continue
        if found.factory == f"{factory.path}:{factory.line}":
            return found
    if factory.required and call is None:
        needs = ", ".join(factory.required)
        return f'it needs {needs}, which nothing in the repository states; give --model "{factory.name}(...)"'
    return reasons[0] if reasons else "the script's own way of choosing a model does not lead to it"


def _builders(surveyed: Survey) -> dict[tuple[str, str], str]:
    """The first script that builds each factory by itself, by the factory's place and name."""
    known = project_index(surveyed)
    found: dict[tuple[str, str], str] = {}
    for script in surveyed.scripts:
        try:
            made = construct(known, script)
        except SliceError:
            continue
        if made.factory is not None:
            found.setdefault((made.factory.path, made.factory.name), script.path)
    return found


def _stated_call(surveyed: Survey, factory: Factory) -> str | None:
    """The arguments, "('VGG19')", of the first call of a factory with literal arguments: a script's, one in a script's menu of
    commented-out lines, or any other of the repository."""
    known = project_index(surveyed)
    scripts = [script.path for script in surveyed.scripts]
    modules = sorted(known.repository.modules.values(), key=lambda module: (module.path not in scripts, module.path))
    for module in modules:
        if not re.search(rf"\b{factory.name}\b", module.file.text or ""):
            continue
        calls = [node for node in module.nodes if isinstance(node, ast.Call)]
        for line in (module.file.text or "").splitlines():
            if (menu := _MENU.match(line)) is not None and menu[1].startswith(f"{factory.name}("):
                calls += _parsed(menu[1])
        for call in calls:
            called = isinstance(call.func, ast.Name) and call.func.id == factory.name and _is_literal(call)
            if called and ((found := module.find(factory.name)) is None or found[0].path == factory.path):
                return ast.unparse(call).removeprefix(factory.name)
    return None


def _parsed(text: str) -> list[ast.Call]:
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return []
    return [node] if isinstance(node, ast.Call) else []


def _is_literal(call: ast.Call) -> bool:
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    if not values or any(keyword.arg is None for keyword in call.keywords):
        return False
    try:
        for value in values:
            ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError):
        return False
    return True


def package_all(
    migration: Migration, models: Sequence[Resolved], originals: Originals, models_folder: str
) -> list[ModelOutcome]:
    """Package every model into one repository of models, and load them all in a fresh process.

    One that fails stops no other. Their workers run one after the other, each in a process of its own.
    """
    if len(models) == 1:
        return serve(migration, [package_model(migration, models[0], originals, models_folder)])
    names = unique_names([resolved.name for resolved in models])
    alone = migration.options.tuning_seconds or (_SECONDS_ON_A_GPU if migration.options.device == "cuda" else _SECONDS)
    seconds = min(alone, max(_LEAST_SECONDS, _SHARE * alone / len(models))) if models else alone
    outcomes: list[ModelOutcome] = []
    shared = replace(migration, options=replace(migration.options, tuning_seconds=seconds))
    for index, (resolved, name) in enumerate(zip(models, names, strict=True)):
        shared.stages.prefix = f"{index + 1}/{len(models)} {name}: "
        listed = ModelReport(name=resolved.name, factory=resolved.factory)
        try:
            if index:  # its construction reads the files as they came, whatever was repaired in them
                shared = replace(shared, unrepaired=resolved)
            outcome = package_model(shared, replace(resolved, name=name), originals, models_folder)
            built = outcome.model.built
            outcomes.append(outcome if built else replace(outcome, model=replace(listed, parity=outcome.model.parity)))
        except AmbiguousError as error:
            outcomes.append(ModelOutcome(model=replace(listed, parity=Parity(why=str(error)))))
            shared.remark("PS520", f"{name} is left out: {error}", "warning", resolved.factory or "")
    shared.stages.prefix = ""
    return serve(migration, outcomes)


def unique_names(names: Sequence[str]) -> list[str]:
    """Names for the folders of a model repository, all different also where case does not count and with what is put beside
    them (`<name>_decode`, `<name>_classify`)."""
    taken: set[str] = set()
    result = []
    for plain in map(model_name, names):
        name, count = plain, 1
        while taken & {variant.lower() for variant in _variants(name)}:
            count += 1
            name = f"{plain}_{count}"
        taken |= {variant.lower() for variant in _variants(name)}
        result.append(name)
    return result


def _variants(name: str) -> tuple[str, ...]:
    return name, f"{name}_decode", f"{name}_classify"
