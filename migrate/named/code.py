"""A model that a piece of Python builds: packaged with its labels and its preprocessing, as migrated models are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import AmbiguousError, MigrateError
from ...specs import Preprocessing
from ..prepared import files_digest
from ..proving.sandbox import Sandbox
from ..proving.trace_transform import Traced, row_shape, trace
from ..proving.worker_pool import PACKAGING, WorkerPool
from ..proving.worker_protocol import Evaluate, Evaluated, Failed, Inspected, ModelPackaged, Package, Row
from ..reading.recipe import Recipe, TransformRecipe
from ..reporting.progress import Stages
from ..stages.worker_client import ask, inspect, model_name, package
from .source import Options, Packageable, file_digest, versions
from .told_later import tell

_FETCH_SECONDS = 3600.0
_SAID_ONLY = ("LookupError: ", "ValueError: ")
"""What stands before a sentence that a recipe of ours raises for people."""
FETCH = """\
import json, sys
source, expression = json.load(sys.stdin)
names = {"__name__": "__headrace__"}
exec(compile(source, "headrace", "exec"), names)
eval(expression, names)
"""


@dataclass(frozen=True, kw_only=True)
class Code(Packageable):
    """`recipe` builds the model; its source also defines what the other expressions name. Its root is empty where all its code
    is installed.

    `facts` gives a dict with "input" (channels, height, width), "labels" (of each output a list or None; a single one is of
    that which the model is for; or None) and "notes", and where they are known without a transform "preprocessing" (as
    JSON) and "task" (in words); `transform` a function from an image file to the model's input; empty where nothing tells.
    `fetch` has the installed `library` download the weights: it is evaluated outside of the sandbox, where a network is,
    and runs no code of the model's. `preload` are modules that every request would import. `known_weights`: they are
    somebody's. `facts_of_key` is what decides the package, with the files of `folder`.
    """

    what: str
    recipe: Recipe
    facts: str = ""
    transform: str = ""
    title: str = ""
    library: str = ""
    preload: tuple[str, ...] = ()
    readable: tuple[Path, ...] = ()
    strange: bool = False
    fetch: str = ""
    known_weights: bool = True
    facts_of_key: Mapping[str, Any]
    folder: Path | None = None

    def key(self) -> Mapping[str, Any]:
        """Raises MigrateError where the folder has too many files."""
        return {**self.facts_of_key, **({} if self.folder is None else {"files": files_digest(self.folder)})}

    def package(self, sandbox: Sandbox, options: Options, stages: Stages, *, planned: bool) -> ModelPackaged | Failed:
        """Raises MigrateError where the name, the weights or the code are not to be had, AmbiguousError where several sizes of
        input work and nothing tells."""
        done = self._package(sandbox, options, stages, planned=planned)
        if isinstance(done, Failed) and done.stage == "build" and self.fetch:
            stages.start(f"Having {self.library} get the weights")
            self._fetch(done)
            done = self._package(sandbox, options, stages, planned=planned)
        return done

    def _package(self, sandbox: Sandbox, options: Options, stages: Stages, *, planned: bool) -> ModelPackaged | Failed:
        recipe = self.recipe if self.recipe.root else self.recipe.in_copy(sandbox.readable_folder())
        with ThreadPoolExecutor(1) as beside, WorkerPool(sandbox, (*PACKAGING, *self.preload)) as pool:
            traced = beside.submit(trace, self._transform(recipe), sandbox) if self.transform else None
            stages.start(f"Loading {self.library or self.recipe.script}")
            facts = _Facts()
            if self.facts:
                answer = ask(Evaluate(recipe=replace(recipe, expression=self.facts)), pool.sandbox)
                if isinstance(answer, Failed) and self.fetch and not answer.error.startswith(_SAID_ONLY[0]):
                    return answer  # its configuration is to be downloaded, too
                if not isinstance(answer, Evaluated):
                    raise MigrateError(f"{self.what}: {said(answer)}")
                facts = _read_facts(answer.value)
                row, name = options.input_size or facts.input, self.title
            else:
                seen = inspect(recipe, options.input_size, pool.sandbox)
                if isinstance(seen, Failed):
                    return seen
                row, name = options.input_size or _only_size(seen), self.title or model_name(seen.class_name)
            preprocessing, notes = facts.preprocessing, list(facts.notes)
            # Images that judge or calibrate are read with the preprocessing, before anything is captured.
            beforehand = traced is not None and (planned or options.images is not None)
            if traced is not None and beforehand:
                stages.start("Proving the preprocessing")
                preprocessing, remarks = _chosen(traced.result(), row)
                notes += remarks
            if not self.known_weights:
                made_by = "random" if options.random_weights else "as the code makes them, since no --checkpoint is given"
                notes.append(f"its weights are {made_by}")
            images = None if options.images is None else str(options.images.resolve())
            if options.images is not None and options.images.is_dir() and preprocessing is None:
                raise MigrateError(
                    f"{self.what}: nothing says how an image becomes its input, so --images cannot be read for it"
                )
            request = Package(
                recipe=recipe,
                name=options.name or name,
                out="",
                input=row,
                labels=facts.labels,
                task=options.task or facts.task,
                preprocessing=preprocessing,
                precision=options.precision,
                budget=options.budget,
                device=options.device,
                max_tuning_seconds=options.max_tuning_seconds,
                image_folder=images if planned else None,
                # Who gives images has weights that they fit.
                randomize=planned and not self.known_weights and images is None,
                planned=planned,
                provenance={"reference": self.what, **self.facts_of_key, "notes": notes},
            )
            title = "Capturing, tuning, proving" if planned else "Capturing and proving the graph"
            progress = stages.start(title)
            if traced is None or beforehand:
                made = package(request, None, pool.sandbox, progress, own_outputs=False)
            else:
                told = sandbox.readable_folder() / "told.json"
                request = replace(request, told_later=str(told))
                with ThreadPoolExecutor(1) as telling:
                    remarked = telling.submit(_tell, told, traced, row)
                    made = package(request, None, pool.sandbox, progress, own_outputs=False)
                    notes += remarked.result()
        for note in notes:
            stages.note(note)
        return made

    def _transform(self, recipe: Recipe) -> TransformRecipe:
        given = {**vars(recipe), "expression": self.transform}
        return TransformRecipe(**given, takes="path", source_at=self.what)

    def _fetch(self, why: Failed) -> None:
        """Raises MigrateError where the library cannot have the weights."""
        program = [sys.executable, "-P", "-c", FETCH]
        asked = json.dumps([self.recipe.source, self.fetch])
        try:
            done = subprocess.run(
                program, input=asked, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False,
                env={**os.environ, "TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1"},
            )  # fmt: skip
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            reason = None if done.returncode == 0 else lines[-1] if lines else f"exit status {done.returncode}"
        except subprocess.TimeoutExpired:
            reason = f"no answer within {_FETCH_SECONDS:.0f} s"
        if reason is not None:
            raise MigrateError(
                f"{self.what}: its weights are not on this machine and cannot be downloaded ({reason[:500]}); give a file with "
                f"--checkpoint, or --random-weights for numbers that are nobody's. In the sandbox: {said(why)}"
            )


def library_code(library: str, what: str, source: str, given: Mapping[str, Any], *, preload: tuple[str, ...]) -> Code:
    """The code of an installed library's own model. What is `given` stands before the `source` under its names, of which NAME,
    CHECKPOINT (a file, or None for the library's weights) and RANDOM (nobody's) are some; the source defines `model()`,
    `facts()` and `transform()`. Raises MigrateError where the library is not installed or the checkpoint cannot be read."""
    checkpoint: Path | None = given["CHECKPOINT"]
    installed = versions(library, "torch")
    path = None if checkpoint is None else str(checkpoint.resolve())
    named = f"{', '.join(given)} = {', '.join(map(repr, {**given, 'CHECKPOINT': path}.values()))}\n"
    return Code(
        what=what,
        recipe=Recipe(root="", script=f"{library}_model.py", source=named + source, expression="model()"),
        facts="facts()",
        transform="transform()",
        title=model_name(given["NAME"]),
        library=library,
        preload=preload,
        readable=() if path is None else (Path(path),),
        fetch="model()" if checkpoint is None and not given["RANDOM"] else "",
        known_weights=not given["RANDOM"],
        facts_of_key={**installed, "checkpoint": None if checkpoint is None else file_digest(checkpoint)},
    )


def said(answer: object) -> str:
    """What a failure of the worker says, without what only a programmer reads."""
    if not isinstance(answer, Failed):
        return f"the worker answered something else: {type(answer).__name__}"
    text = answer.error
    for word in _SAID_ONLY:
        text = text.removeprefix(word)
    # a failed capture lists its obstacles in the error, each with its own place
    where = f"{answer.where}: " if answer.where and not text.startswith(answer.where) else ""
    return f"{where}{text}"


@dataclass(frozen=True)
class _Facts:
    input: Row = (0, 0, 0)
    labels: tuple[tuple[str, ...] | None, ...] = ()
    notes: tuple[str, ...] = ()
    preprocessing: Preprocessing | None = None
    task: str = ""


def _read_facts(value: Mapping[str, Any]) -> _Facts:
    """Raises MigrateError where they are not as recipes give them, since a stranger's code or file may have made them."""
    try:
        channels, height, width = (int(size) for size in value["input"])
        steps = value.get("preprocessing")
        return _Facts(
            (channels, height, width),
            tuple(None if names is None else tuple(str(name) for name in names) for names in value["labels"] or ()),
            tuple(str(note) for note in value["notes"]),
            None if steps is None else Preprocessing.from_json(steps),
            str(value.get("task", "")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MigrateError(f"the facts about the model cannot be read: {error!r}") from None


def _chosen(traced: Traced, row: Row) -> tuple[Preprocessing | None, list[str]]:
    """The preprocessing that ends in the model's input, and what is to be said of it."""
    for candidate in traced.candidates:
        if row_shape(candidate) == row:
            return candidate, list(traced.notes)
    sizes = ", ".join("x".join(map(str, row_shape(candidate) or ())) or "any size" for candidate in traced.candidates)
    why = traced.why or f"it gives {sizes}, the model takes {'x'.join(map(str, row))}"
    return None, [f"served without preprocessing, so it takes tensors, not images: {why}"]


def _tell(path: Path, traced: Future[Traced], row: Row) -> list[str]:
    """Have the worker, which captures meanwhile, know the preprocessing once it is known; what is to be said of it."""
    found: tuple[Preprocessing | None, list[str]] = (None, [])
    try:
        found = _chosen(traced.result(), row)
    finally:  # else the worker would wait for it
        tell(path, *found)
    return found[1]


def _only_size(seen: Inspected) -> Row:
    """The size the model itself proves unique; nothing is guessed."""
    if seen.input is not None:
        return seen.input
    sizes = [",".join(map(str, size)) for size in seen.candidates]
    raise AmbiguousError("the model takes inputs of several sizes", candidates=sizes, flag="--input-size")
