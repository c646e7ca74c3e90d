"""What belongs to a model besides its weights: the evaluation transform, the class names, the input's shape."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..reading.calls import SliceError
from ..reading.facts import Survey
from ..reading.recipe import Recipe, TransformRecipe
from ..reading.scopes import Module
from ..slicing.interprocedural import Point, ProgramSlicer
from ..slicing.liveness import Options
from ..slicing.recipes import options_of, recipe, write
from ..survey.loops import CallSite
from ..survey.survey import ProjectIndex
from .construction import Construction, rank_sites
from .evaluation import EvaluationTransform, Tracer
from .input_size import from_data_set, from_transform, stated_size
from .labels import find_class_names
from .resolved import Resolved
from .settings import Settings


@dataclass(frozen=True)
class ModelMetadata:
    """Finds them for one construction."""

    survey: Survey
    known: ProjectIndex
    settings: Settings
    construction: Construction

    @property
    def module(self) -> Module:
        return self.known.repository.modules[self.construction.script.path]

    def add_to(self, resolved: Resolved) -> Resolved:
        """The resolved model with what was found."""
        nearby = [self.module, *imported(self.module)]
        transform, found = self._transform()
        labels = find_class_names(nearby)
        size = None
        if transform is not None and found is not None:
            size = from_transform(f"{transform.source}\n{ast.unparse(found.definition)}", found.convert)
        if size is None:
            size = from_data_set(nearby, transform_resizes=transform is not None and "esize" in transform.source)
        if size is None and resolved.factory is not None:
            module = self.known.repository.modules[resolved.factory.rpartition(":")[0]]
            size = stated_size(module, resolved.factory_name or "", resolved.recipe.source)
        size = size or self.settings.stated_size(self.survey.root, self.known.repository.modules.values())
        names = self._program(labels.point, (), "names") if labels is not None else None
        return replace(
            resolved,
            transform_recipe=transform,
            class_names=labels.names if labels is not None else None,
            class_names_recipe=names,
            input_size=size,
            image_size=from_data_set(nearby, transform_resizes=False),
            findings=tuple(self.settings.findings),
        )

    def _program(self, point: Point, stack: Sequence[tuple[Module, ast.Call]], name: str) -> Recipe | None:
        script = self.construction.script
        program_slicer = ProgramSlicer(
            self.known.repository,
            self.known.calls,
            self.module,
            Options(seeds=False, data=False, checkpoints=name != "transform"),
        )
        try:
            program = program_slicer.build(point, stack)
        except SliceError:
            return None
        written = write(program, self.known.repository, posixpath.dirname(script.path), name)
        argv = self.settings.argv(script, options_of(written, script))
        return recipe(self.survey.root, self.module, self.known.repository, written, argv)

    def _transform(self) -> tuple[TransformRecipe | None, EvaluationTransform | None]:
        script, site = self.construction.script, self.construction.site
        for candidate in [site, *rank_sites(self.known, script), *self._neighbors()]:
            found = Tracer(self.known.calls, self.module).transform(candidate)
            made = self._program(found.point, found.stack, "transform") if found is not None else None
            if found is not None and made is not None:
                where = f"{found.path}:{found.line}"
                more = TransformRecipe(**vars(made), takes=found.takes, convert=found.convert, source_at=where)
                return more, found
        message = "the evaluation transform could not be followed from the model's call to its definition"
        self.settings.remark(site.fact.path, site.fact.call_line, "PS013", message)
        return None, None

    def _neighbors(self) -> Iterable[CallSite]:
        """Evaluation and prediction calls of other scripts of the same folder, which may say what this one does not."""
        own = self.construction.script.path
        for script in self.survey.scripts:
            if script.path != own and posixpath.dirname(script.path) == posixpath.dirname(own):
                yield from (site for site in rank_sites(self.known, script) if site.fact.kind != "train")


def imported(module: Module) -> list[Module]:
    """The repository's own files that a file imports, directly."""
    found: list[Module] = []
    for name in [*module.imports.values(), *module.star_imports]:
        prefix = name
        while prefix:
            other = module.repository.module(prefix, module.path)
            if other is not None:
                if other not in found and other is not module:
                    found.append(other)
                break
            prefix = prefix.rpartition(".")[0]
    return found
