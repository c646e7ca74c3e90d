"""Resolve: how a repository builds its model, as a recipe that a subprocess can run (see `migrate/worker/recipe.py`)."""

from __future__ import annotations

import ast
import posixpath
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ...errors import AmbiguousError, MigrateError, NothingToMigrateError
from ..reading.arguments import flag_of, of_command, split
from ..reading.calls import SliceError
from ..reading.facts import CheckpointSite, Factory, Option, Script, Survey
from ..reading.finding import Finding
from ..reading.recipe import Recipe
from ..reading.source import NOTEBOOK, readme_text
from ..slicing.checkpoint_loading import loading_modules
from ..slicing.pretrained import without_weights
from ..slicing.recipes import (
    Written,
    checkpoint_option,
    guarding_flags,
    loaded_after,
    loads_weights,
    model_option,
    options_of,
    recipe,
    with_literal_checkpoint,
    write,
)
from ..survey.survey import ProjectIndex, project_index
from .chain import chain_of
from .construction import Construction, called, construct, direct, preferred
from .input_size import from_name, stated_size
from .labels import find_class_names
from .model_metadata import ModelMetadata, imported
from .ranking import (
    candidates,
    configurations,
    documented_arguments,
    is_test,
    listed,
    natural,
    ranked,
    taken_of,
    tier,
    told_as,
)
from .resolved import ChainStep, Resolved
from .settings import Settings
from .several import different_models, stated

__all__ = ["ChainStep", "Resolved", "resolve"]


def resolve(survey: Survey, *, entry: str | None = None, model: str | None = None, checkpoint: str | None = None) -> Resolved:
    """How the repository builds its model.

    `entry` is a script's relative path, if need be with arguments ("main.py --cfg tiny.yaml"), `model` a factory's name
    ("models/vgg.py:vgg16" where several files have it), a call of one, or a value of the script's own model option,
    `checkpoint` a file. Raises AmbiguousError (with the candidates and the flag that chooses), NothingToMigrateError, or
    MigrateError.
    """
    return _Resolver(survey, entry, model, checkpoint).resolve()


class _Resolver:
    def __init__(self, survey: Survey, entry: str | None, model: str | None, checkpoint: str | None) -> None:
        self.survey = survey
        self.known: ProjectIndex = project_index(survey)
        self.settings = Settings()
        words = [entry] if entry is None or Path(entry).is_file() else shlex.split(entry)
        self.entry = words[0] if words else None
        self.settings.arguments = [word for word in words[1:] if word is not None]
        self.model = model
        self.checkpoint = str(Path(checkpoint).absolute()) if checkpoint is not None else None

    def resolve(self) -> Resolved:
        scripts = self._scripts()
        if not scripts:
            return self._without_script()
        failures: list[str] = []
        for script in scripts:
            if (built := self._constructed(script, failures)) is not None:
                return self._from_script(self._one_model(self._one_of(built, scripts)))
        return self._fall_back(failures)

    # -- which script

    def _constructed(self, script: Script, failures: list[str]) -> Construction | None:
        try:
            return construct(self.known, script)
        except SliceError as error:
            failures.append(str(error))
            return None

    def _scripts(self) -> list[Script]:
        """The scripts that call a model, best first."""
        if self.entry is None:
            return ranked(self.survey, self.survey.scripts)
        wanted = self.entry.replace("\\", "/").removeprefix("./")
        absolute = Path(self.entry).absolute()
        if absolute.is_relative_to(self.survey.root.absolute()) and absolute.is_file():
            wanted = absolute.relative_to(self.survey.root.absolute()).as_posix()
        found = [script for script in self.survey.scripts if script.path == wanted]
        found = found or [script for script in self.survey.scripts if script.path.endswith(f"/{wanted}")]
        if len(found) > 1:
            raise AmbiguousError(f"{self.entry} fits several scripts", candidates=[item.path for item in found], flag="--entry")
        if not found:
            known = ", ".join(script.path for script in self.survey.scripts) or "none was found"
            raise MigrateError(f"--entry {self.entry} is not a script of this repository that calls a model (those: {known})")
        return found

    def _one_of(self, first: Construction, scripts: Sequence[Script]) -> Construction:
        """The best script, or one of the same kind beside it that builds what --model means; the others are remarked."""
        folder = posixpath.dirname(first.script.path)
        alike = [
            script
            for script in scripts
            if script is not first.script and _kind(script) == _kind(first.script) and (folder or "/" not in script.path)
        ]
        built = [first, *(made for script in alike if (made := self._constructed(script, [])) is not None)]
        built = _without_launchers([item for item in built if self._is_meant(item.factory)] or built)
        chosen = built[0]
        if any(item.signature != chosen.signature for item in built):
            others = [script.path for script in candidates(self.survey) if script.path != chosen.script.path]
            self.settings.remark(chosen.script.path, 1, "PS011", taken_of(others), "note")
        return chosen

    def _one_model(self, chosen: Construction) -> Construction:
        """The model that --model names among those which the script builds, by its variable or its factory; else the last."""
        several = different_models(self.known, chosen)
        for item in several:
            if self._is_meant(item.factory):
                return item
        for item in several if not any(factory.name == self.model for factory in self.survey.factories) else ():
            if self.model in (item.site.fact.model, item.site.fact.model.rpartition(".")[2]):
                self.model = None  # asked for, and found
                return item
        if len(several) == 1 or self.model is not None:
            return several[0]
        *rest, taken = several
        made = ", ".join(f"{item.site.fact.model} is {stated(item)}" for item in rest)
        name = taken.site.fact.model
        message = (
            f"{name} is taken for the model, {stated(taken)}; the script also uses others: {made} (--model takes one of them)"
        )
        self.settings.remark(taken.site.fact.path, taken.site.fact.call_line, "PS011", message, "note")
        return taken

    def _is_meant(self, factory: Factory | None) -> bool:
        return factory is not None and self.model in (factory.name, f"{factory.path}:{factory.name}")

    def _fall_back(self, failures: Sequence[str]) -> Resolved:
        reasons = "; ".join(dict.fromkeys(failures))
        if self.survey.factories:
            message = f"built with its own defaults, not as the script does, because that could not be followed: {reasons}"
            self.settings.remark("", 1, "PS015", message)
            return self._without_script()
        raise MigrateError(f"no script could be followed to its model: {reasons}")

    # -- no script: a factory alone

    def _without_script(self) -> Resolved:
        factories = list(self.survey.factories)
        if self.model is not None:
            factory, call = self._factory_named(self.model)
        elif not factories:
            owned = next((f" {item.where}: {item.message}" for item in self.survey.findings if item.code == "PS016"), "")
            raise NothingToMigrateError(
                f"{self.survey.root} uses PyTorch, but neither a model nor a script that calls one was found; looked for "
                f"nn.Module classes that end in a layer of classes, functions that return them, and loops that call a "
                f"model.{owned}"
            )
        else:
            factories = self._ranked(factories)
            factory, call = factories[0], None
            if len(factories) > 1:
                message = (
                    f"taken for the model; no script chooses one, and there are others: {listed(_told_apart(factories)[1:])}"
                )
                self.settings.remark(factory.path, factory.line, "PS011", f"{message} (--model takes one of them)", "note")
        return self._direct(factory, call, None)

    def _ranked(self, factories: Sequence[Factory]) -> list[Factory]:
        """Those that can be built without being told anything first, then those that the README names, then those that a table
        or a function of the repository chooses among, in its order."""
        readme = readme_text(self.survey.root)
        chosen = self.known.table.dispatched()

        def rank(factory: Factory) -> tuple[object, ...]:
            named = re.search(rf"\b{re.escape(factory.name)}\b", readme)
            order = chosen.index(factory.name) if factory.name in chosen else len(chosen)
            return bool(factory.required), named.start() if named else len(readme), order, natural(factory.name), factory.path

        return sorted(factories, key=rank)

    def _factory_named(self, wanted: str) -> tuple[Factory, ast.Call | None]:
        """A factory by its name, or "file:name" where several have it; `VGG('VGG16')` gives arguments."""
        call: ast.Call | None = None
        name = wanted
        if "(" in wanted:
            where, _, text = wanted.partition("(")[0].rpartition(":")
            try:
                parsed = ast.parse((text + wanted[wanted.index("(") :]).strip(), mode="eval").body
            except SyntaxError as error:
                raise MigrateError(f"--model {wanted!r} is neither a name nor a call: {error.msg}") from error
            called = parsed.func if isinstance(parsed, ast.Call) else None
            called = called.value if isinstance(called, ast.Attribute) else called  # Net.from_name("small")
            if not isinstance(parsed, ast.Call) or not isinstance(called, ast.Name):
                raise MigrateError(f"--model {wanted!r} is neither a name nor a call of one")
            name, call = f"{where}:{called.id}" if where else called.id, parsed
        place, _, name = name.rpartition(":")
        known = [item for item in self.survey.factories if not place or item.path == place]
        named = [item for item in known if item.name == name]
        named = named or [item for item in known if item.name.lower() == name.lower()]
        named = preferred(self.known, named)
        if len(named) > 1:
            self.settings.findings.append(
                Finding(
                    named[0].path,
                    named[0].line,
                    0,
                    "PS012",
                    f"{name} is also defined in {named[1].path}:{named[1].line}",
                    "note",
                )
            )
        if not named:
            names = _told_apart(self.survey.factories)
            if not names:
                raise MigrateError(f"--model {wanted}: this repository defines no model")
            raise AmbiguousError(f"this repository defines no model {name!r}", candidates=names, flag="--model")
        return named[0], call

    def _direct(self, factory: Factory, call: ast.Call | None, near: Construction | None) -> Resolved:
        if factory.required and call is None:
            needs = ", ".join(factory.required)
            raise MigrateError(
                f"{factory.name} ({factory.path}:{factory.line}) cannot be built without {needs}; "
                f'give the call, as in --model "{factory.name}(...)"'
            )
        made = direct(self.survey.root, self.known, factory, call)
        if self.checkpoint is not None:
            made = replace(made, source=loaded_after(made, self.checkpoint).source)
        module = self.known.repository.modules[factory.path]
        source = without_weights(made.source, module)
        size = stated_size(module, factory.name, made.source)
        if size is None and near is None:
            size = from_name(self.known.repository.modules.values(), factory.path, factory.name)
            if size is not None:
                message = f"its input is taken to be {list(size)}, as the data sets have it; --input-size C,H,W says otherwise"
                self.settings.remark(factory.path, factory.line, "PS015", message, "note")
        size = size or self.settings.stated_size(self.survey.root, self.known.repository.modules.values())
        base = Resolved(
            name=tidy(factory.name),
            recipe=made,
            fallback_recipe=replace(made, source=source) if source != made.source else None,
            factory=f"{factory.path}:{factory.line}",
            factory_name=factory.name,
            chain=(
                ChainStep(
                    "factory", factory.path, factory.line, ast.unparse(call) if call is not None else f"{factory.name}()"
                ),
            ),
            input_size=size,
            findings=tuple(self.settings.findings),
        )
        if near is not None:
            return ModelMetadata(self.survey, self.known, self.settings, near).add_to(base)
        labels = find_class_names([self.known.repository.modules[factory.path]])
        return replace(base, class_names=labels.names if labels is not None else None)

    # -- from a script

    def _from_script(self, construction: Construction) -> Resolved:
        script, known = construction.script, self.known
        module = known.repository.modules[script.path]
        folder = posixpath.dirname(script.path)
        written = write(construction.program, known.repository, folder, "model")
        options = options_of(written, script)
        given = self.settings.given
        chooser = model_option(options, self.survey.factories, self.model)
        selected = self._select(construction, chooser, given)
        if selected is not None:
            return selected
        if (
            chooser is not None
            and chooser.dest not in given
            and chooser.nargs in ("+", "*")
            and isinstance(chooser.default, str)
        ):
            given[chooser.dest] = chooser.default  # a bare string where the script expects a list of them
        if not self.settings.arguments:
            self._as_documented(script, options)
        options = of_command(options, self.settings.arguments)
        user = {word.partition("=")[0] for word in self.settings.arguments}
        wanted = [item for item in options if item.required and item.dest not in given and not user & set(item.flags)]
        for option in wanted:
            values = configurations(self.survey, script, option)
            if option == chooser:
                named = chooser.choices or self.known.table.dispatched()
                values = list(map(str, named or _told_apart(self._ranked(self.survey.factories))))
            if not values or (option.positional and user):
                continue
            given[option.dest] = values[0]
            if len(values) > 1:
                flag = "" if option.positional else f"{flag_of(option)} "
                message = f"{flag}{values[0]} was taken, the first of {len(values)}: {listed(values[1:])}"
                remedy = f'--entry "{script.path} {flag}{values[1]}" takes another'
                self.settings.remark(script.path, option.line, "PS011", f"{message}; {remedy}", "note")
        weights = checkpoint_option(options, written)
        if self.checkpoint is not None:
            if weights is not None:
                given[weights.dest] = self.checkpoint
            else:
                written = with_literal_checkpoint(written, self.checkpoint) or loaded_after(written, self.checkpoint)
            given |= {flag.dest: "" for flag in guarding_flags(written, options)}
        told = tuple(self.settings.told(options))
        if weights is not None and weights.required and weights.dest not in given:
            given[weights.dest] = "checkpoint-not-given"
            message = f"{script.path} must be told its weights ({flag_of(weights)}); give --checkpoint FILE"
            self.settings.findings.append(Finding(script.path, weights.line, 0, "PS010", message, "warning"))
        argv = self.settings.argv(script, options)
        made = recipe(self.survey.root, module, known.repository, written, argv)
        fallback = self._fallback(construction, made, written.source, given)
        if fallback is not None and self.checkpoint is not None:  # what the script loads itself may be in the way
            fallback = replace(fallback, source=loaded_after(fallback, self.checkpoint).source)
        factory = self._factory(construction, chooser, given)
        value = given.get(chooser.dest) if chooser is not None else None
        if chooser is not None and value is None and isinstance(chooser.default, str):
            value = chooser.default
        name = called(self.survey.root, value) or (factory.name if factory is not None else construction.zoo_name)
        name = name or posixpath.basename(str(self.survey.root.resolve()))
        resolved = Resolved(
            name=tidy(name),
            recipe=made,
            fallback_recipe=fallback,
            factory=f"{factory.path}:{factory.line}" if factory is not None else None,
            factory_name=factory.name if factory is not None else None,
            chain=tuple(chain_of(construction, factory, chooser, value)),
            script=script,
            told=told,
            loop=construction.site.fact,
            checkpoints=self._checkpoints(construction, written),
            findings=tuple(self.settings.findings),
        )
        return ModelMetadata(self.survey, self.known, self.settings, construction).add_to(resolved)

    def _as_documented(self, script: Script, options: Sequence[Option]) -> None:
        """Tell the script what its documentation tells it, where it must be told something and --model says nothing else."""
        argv, where = documented_arguments(self.survey, script)
        declared = {option.dest for option in options} - self.settings.given.keys()
        given = {}
        for option, parts in split(script.options or options, argv):
            if option is not None and option.dest in declared and len(parts) <= 2:
                given[option.dest] = parts[-1] if option.positional or len(parts) == 2 else parts[0].partition("=")[2]
        if given and where is not None:
            self.settings.given |= given
            self.settings.remark(script.path, 1, "PS011", told_as(script, argv, where), "note")

    def _select(self, construction: Construction, chooser: Option | None, given: dict[str, str]) -> Resolved | None:
        """Apply --model: through the script's own option, else in place of the factory that it calls."""
        if self.model is None:
            return None
        if chooser is not None and "(" not in self.model:
            if chooser.choices and self.model.rpartition(":")[2] not in chooser.choices:
                choices = [str(item) for item in chooser.choices]
                raise AmbiguousError(
                    f"{construction.script.path} knows no model {self.model!r}", candidates=choices, flag="--model"
                )
            given[chooser.dest] = self.known.table.key_of(self.model.rpartition(":")[2])
            return None
        factory, call = self._factory_named(self.model)
        if construction.factory is not None and construction.factory.name == factory.name and call is None:
            return None
        return self._direct(factory, call, construction)

    def _fallback(self, construction: Construction, made: Recipe, source: str, given: dict[str, str]) -> Recipe | None:
        folder = posixpath.dirname(construction.script.path)
        try:
            bare = construct(self.known, construction.script, site=construction.site, checkpoints=False)
        except SliceError:
            return None
        written = write(bare.program, self.known.repository, folder, "model")
        bare_source = without_weights(written.source, self.known.repository.modules[construction.script.path])
        written = Written(bare_source, written.expression, ast.parse(bare_source))
        if bare_source == source:
            return None
        options = options_of(written, construction.script)
        known = {option.dest for option in options}
        settings = Settings(arguments=self.settings.arguments, given={k: v for k, v in given.items() if k in known})
        argv = tuple(settings.argv(construction.script, options))
        return replace(made, source=written.source, argv=argv, expression=written.expression)

    def _factory(self, construction: Construction, chooser: Option | None, given: dict[str, str]) -> Factory | None:
        value = given.get(chooser.dest) if chooser is not None else None
        if chooser is not None and value is None and isinstance(chooser.default, str):
            value = chooser.default
        if value is not None:
            named = [item for item in self.survey.factories if item.name == value]
            named = named or [item for item in self.survey.factories if item.name.lower() == value.lower().replace("-", "_")]
            if named:
                return preferred(self.known, named)[0]
        return construction.factory

    def _checkpoints(self, construction: Construction, written: Written) -> tuple[CheckpointSite, ...]:
        """The sites that fill models: of the files that the program passes through, else of those that the script imports."""
        through = {
            path for call in ast.walk(written.tree) if isinstance(call, ast.Call) for path in self._loading(construction, call)
        }
        if not through and not loads_weights(written):
            return ()
        sites = [site for site in self.survey.checkpoints if site.weights]
        paths = {construction.script.path, *through} | {where.path for where, _ in construction.program.callers}
        own = tuple(site for site in sites if site.path in paths)
        if own:
            return own
        near = {module.path for module in imported(self.known.repository.modules[construction.script.path])}
        return tuple(site for site in sites if site.path in near)

    def _loading(self, construction: Construction, call: ast.Call) -> Iterable[str]:
        found = construction.program.entry.find_callee(call.func)
        return (where.path for where in loading_modules(*found)) if found is not None else ()


def _kind(script: Script) -> tuple[bool, bool, int]:
    return is_test(script.path), script.path.endswith(NOTEBOOK), tier(script)


def _without_launchers(built: list[Construction]) -> list[Construction]:
    """Those whose models are not called by way of another's functions: `submit.py` only starts what `main.py` does."""
    paths = {item.script.path for item in built}
    own = [item for item in built if not {module.path for module, _ in item.program.callers} & (paths - {item.script.path})]
    return own or built


def _told_apart(factories: Sequence[Factory]) -> list[str]:
    """The factories' names, as --model takes them: with the file where several files have a name."""
    names = [factory.name for factory in factories]
    return [item.name if names.count(item.name) == 1 else f"{item.path}:{item.name}" for item in factories]


def tidy(name: str) -> str:
    """A name that a model repository's folder may have."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("._-") or "model"
