"""Graph mode as users see it: subclass, `build`, call. Captured, tuned and compiled at the first call, replayed after."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ...errors import ArtifactError, BackendError, InputError
from ...scratch import ScratchFolder
from ...specs import Preprocessing, Signature
from ..artifact.package import copy_model_files, write_package
from ..artifact.parity import ParityRecord
from ..artifact.plan import Plan
from ..base.atomic import old_model_stays
from ..base.config import GraphConfig
from ..base.passes import PassRecord
from ..base.session import Target
from ..base.task import GivenLabels
from ..capture.capture import input_names
from ..inspect.describe import framed, module_lines, optimizer_lines, parity_line, pass_lines, plan_lines, signature_lines
from ..inspect.journal import Journal
from ..inspect.recompiles import InputKind, Recompile, changed_inputs, described_inputs, kinds_of
from ..lowering.portable import write_onnx
from ..parallel.shares import is_global
from ..training.options import StepRecord, TrainingOptions
from ..training.trainer import Trainer, without_settings
from ..tuning.autotuner import Progress
from ..tuning.judging_data import JudgingData, first_rows
from ..tuning.reference import known_answers
from .checks import check_tensors
from .compiler import Compiled, Compiler, Computation
from .left_undone import left_undone
from .lru_cache import LRUCache
from .packaged import weights_digest
from .program_digest import program_digest
from .staging import Staging
from .watch import Watch, distinct_modules, modules_in

_COPIED = {"config", "_judging", "_preprocessing"}  # of what a graph keeps, what its copy has, too
_SHOWN = 3  # of the recompiles, the latest


class Graph(Staging):
    """A computation that is captured once and then replayed by the fastest backend that agrees with eager.

    Subclass it, keep modules as attributes in `__init__` (after `super().__init__()`), and compute in `build`. Calls may come
    from several threads; they take turns. Modules run in evaluation mode and without gradients, and are never changed.
    A call with a new row shape, dtype or device, or after parameters changed, captures anew; `captures` counts that, and
    `recompiles` says why. While one thread captures, no other may run modules of its own eagerly: torch traces every module
    call of the process then, and the captured module is in evaluation mode. Graphs may be called at any time.
    """

    def __init__(self, *, config: GraphConfig | None = None) -> None:
        super().__init__()
        self.config = config or GraphConfig()
        self._captures = 0
        self._recompiles: list[Recompile] = []
        self._journal = Journal(type(self).__name__)
        self._lock = threading.RLock()
        self._trainer: Trainer | None = None
        self._parallel: Trainer | None = None  # what runs calls with global tensors, forward alone
        self._kept = LRUCache(self.config.max_captures)
        self._warned = False
        self._told: set[str] = set()
        self._latest: Compiled | None = None
        self._latest_key: tuple[InputKind, ...] | None = None
        self._judging = JudgingData()
        self._preprocessing: Preprocessing | None = None

    def add_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        lr_scheduler: Any = None,
        clip_grad_norm: float | None = None,
        clip_grad_value: float | None = None,
        accumulate: int = 1,
        grad_scaler: torch.amp.GradScaler | None = None,
        checkpoint: Sequence[torch.nn.Module] = (),
        update: bool = True,
    ) -> None:
        """Make this a training graph: `build` computes a loss and calls its `backward()`, and a call is a whole step.

        After every `accumulate` calls the summed gradients are clipped by value and by norm, the optimizer updates, gradients
        are dropped and `lr_scheduler` steps (once per update; give none to step it per epoch yourself). `grad_scaler` scales
        what `backward()` starts from. `checkpoint` names modules whose activations are computed again instead of kept. Modules
        run in the mode that they are in. With `update` False a call ends after `backward()`: gradients are added to `.grad`;
        the update is yours. Parameters are written in place, so `model`, `optimizer` and this graph always
        agree, and eager steps may be taken in between. Call it once, after the modules are attributes.
        """
        if self._trainer is not None:
            raise ValueError("this graph has an optimizer already; one graph is one training step")
        options = TrainingOptions(
            lr_scheduler=lr_scheduler,
            clip_grad_norm=clip_grad_norm,
            clip_grad_value=clip_grad_value,
            accumulate=accumulate,
            grad_scaler=grad_scaler,
            checkpoint=tuple(checkpoint),
            update=update,
        )
        self._trainer = Trainer(
            self.build, distinct_modules(vars(self)), optimizer, options, self.config, self._journal, constants=self._read()
        )

    def _read(self) -> Sequence[object]:
        """What `build` calls that is no module, and may read numbers of its own."""
        return ()

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """How a training graph, or one over global tensors, runs each kind of step it has seen: captured or eager, why, and the
        times of both."""
        with self._lock:
            runner = self._trainer or self._parallel
            return () if runner is None else runner.records

    @property
    def captures(self) -> int:
        """How often the computation, or a training step, was captured."""
        runner = self._trainer or self._parallel
        return self._captures if runner is None else runner.captures

    @property
    def recompiles(self) -> tuple[Recompile, ...]:
        """Every capture after the first, and in words why it was needed."""
        runner = self._trainer or self._parallel
        return tuple(self._recompiles if runner is None else runner.recompiles)

    def debug(self, level: int = 1) -> Graph:
        """Say what this graph does, to the logger "headrace.graph", or on stderr where no logging is set up; returns itself.

        0 is off. 1: each capture with its reason, its duration, the passes, and the plan's choices. 2: also what every
        candidate measured. 3: also each captured operation with your own file and line, where torch knows it.
        Raises ValueError for other levels.
        """
        self._journal.set(level)
        return self

    def state_dict(self) -> dict[str, Any]:
        """The state of each module attribute by name, and of the optimizer, scheduler and scaler of a training graph.

        The parts are those of torch's own `state_dict`, so eager code loads them one by one. All ranks of a pipeline call it
        alike, and each gets all of it.
        """
        with self._lock, self._all_stages(here=True):
            modules = {name: self._state_of(value) for name, value in vars(self).items() if isinstance(value, torch.nn.Module)}
            return {"modules": modules, "training": None if self._trainer is None else self._trainer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` gave. Raises InputError when the modules or the kind of graph differ."""
        with self._lock:
            modules = {name: value for name, value in vars(self).items() if isinstance(value, torch.nn.Module)}
            if set(state["modules"]) != set(modules):
                raise InputError(f"the state is of modules {sorted(state['modules'])}, this graph has {sorted(modules)}")
            if (state["training"] is None) != (self._trainer is None):
                raise InputError("one of the state and this graph has an optimizer and the other has none")
            with self._all_stages(here=False):
                for name, value in modules.items():
                    self._load_into(value, state["modules"][name])
            if self._trainer is not None:
                self._trainer.load_state_dict(state["training"])

    def build(self, *inputs: torch.Tensor) -> Any:
        """The computation: tensors [batch, ...] in; a tensor, or tuples, lists, dicts or dataclasses of them, out."""
        raise NotImplementedError(f"{type(self).__name__} must define build(self, ...)")

    def __call__(self, *inputs: torch.Tensor) -> Any:
        """What `build` returns for these inputs, computed by the plan; on the inputs' device and without gradients.

        An autocast around the call changes nothing in inference: `GraphConfig(precision=...)` and the plan choose.
        Raises CaptureError when `build` cannot become one graph, InputError when an input is no tensor or has no rows.
        """
        check_tensors(inputs, batched=self._trainer is None)
        with self._lock:
            if (trainer := self._staged() or self._trainer) is not None:
                return trainer.step(inputs)
            if any(map(is_global, inputs)):
                return self._parallel_step(inputs)
            compiled = self._ready(inputs, None)
            self._compiler().extend_for_call(compiled, inputs[0].shape[0])
            return compiled.captured.structure.rebuild(compiled.runner.run(inputs))

    def ready(self, *inputs: torch.Tensor) -> bool:
        """Whether a call with such inputs would be answered at once, with nothing captured or measured."""
        self._reject_training("be asked")
        check_tensors(inputs)
        with self._lock:
            compiled = self._kept.get(kinds_of(inputs))
            if compiled is None or compiled.watch.changed():
                return False
            return self._compiler().covers(compiled, inputs[0].shape[0])

    def compile(
        self,
        *example_inputs: torch.Tensor,
        images: Any = None,
        labels: Any = None,
        calibration: Any = None,
        preprocessing: Preprocessing | None = None,
        progress: Progress | None = None,
    ) -> Graph:
        """Capture and tune now, for inputs shaped like the examples, instead of at the first call; returns itself.

        `images` are real inputs [n, ...], at least 64 of them, with `labels` [n] if known: with them, precision "auto" also
        tries lossy precisions and keeps one that agrees in top-1. int8 takes its ranges from `calibration` images [m, ...],
        which should not be among those that judge it; without any, from a quarter of `images`, which are then not judged by.
        Calibration may also be an iterable of batches, such as a DataLoader, or with `preprocessing` a folder of images.
        With `preprocessing` its arithmetic becomes part of the graph, and inputs, examples and images are decoded pixels, uint8
        [n, height, width, channels].
        `progress(fraction, text)` is told how far it is.
        """
        self._reject_training("compile")
        check_tensors(example_inputs)
        with self._lock:
            examples = example_inputs or first_rows(images)
            if not examples:
                raise InputError("compile needs example inputs, or images whose first rows can be taken")
            self._judging = JudgingData.of(images, labels, calibration, preprocessing)
            self._preprocessing = preprocessing
            self._kept.clear()
            self._latest = None
            self._ready(examples, progress, ahead=True, why="compile was called again")
        return self

    @property
    def plan(self) -> Plan:
        """The plan of the latest capture, with every measurement. Raises BackendError before the first call."""
        return self._last().plan

    @property
    def signature(self) -> Signature:
        """Names, dtypes and shapes of the latest capture. Raises BackendError before the first call."""
        return self._last().captured.signature

    @property
    def passes(self) -> tuple[PassRecord, ...]:
        """What each rewrite did to the latest capture. Raises BackendError before the first call."""
        return self._last().passes

    @property
    def parity(self) -> ParityRecord:
        """How the plan's choices compare with eager: the worst of their records. Raises BackendError before the first call."""
        return self.plan.worst_parity()

    @old_model_stays
    def save(
        self,
        path: str | Path,
        *,
        labels: GivenLabels = None,
        preprocessing: Preprocessing | None = None,
        probabilities: bool | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write the latest capture as a model folder (models/resnet50) that `load`, the server and Triton read.

        `labels` are the class names, or those of each output by its name. `probabilities` says whether scores need no softmax
        or sigmoid; None: where each row sums to one or a sigmoid ends it, as the capture found. With `preprocessing`, the
        models beside it take encoded images. An existing model is replaced in one step; on any failure it stays.
        Raises ArtifactError, also before the first call.
        """
        self._reject_training("save")
        with self._lock:
            if self._latest is None:
                raise ArtifactError("there is nothing to save yet; call the graph or compile it with example inputs first")
            compiled = self._latest
            if compiled.watch.changed():
                compiled = self._ready(compiled.captured.example, None)
            self._compiler().extend(compiled)
            folder = Path(path)
            with ScratchFolder() as staging:
                structure = compiled.captured.structure.to_json()
                digests = {"weights": weights_digest(distinct_modules(vars(self))), "program": self._program()}
                facts = {**(provenance or {}), "outputs": structure, **digests}
                try:
                    write_onnx(compiled.source.optimized, compiled.runner.directory)
                except BackendError as error:  # an operator has no form in ONNX: the plan's own files run it all the same
                    facts["no_portable_graph"] = str(error)
                copy_model_files(compiled.plan.files, compiled.runner.directory, staging)
                return write_package(
                    folder,
                    name=folder.name,
                    files_from=staging,
                    signature=compiled.captured.signature,
                    preprocessing=preprocessing or self._preprocessing,
                    labels=labels,
                    task=compiled.captured.task.activated(probabilities),
                    parity=self.parity,
                    plans=[compiled.plan],
                    answers=known_answers(
                        compiled.captured,
                        Target(device=compiled.plan.device, threads=compiled.plan.threads),
                        self._judging.for_graph(compiled.captured.signature).images,
                    ),
                    provenance={**facts, "passes": [record.to_json() for record in compiled.passes]},
                )

    def __repr__(self) -> str:
        lines = module_lines(modules_in(vars(self)))
        latest = self._latest
        if self._trainer is not None:
            trainer = self._trainer
            lines += optimizer_lines(trainer.optimizer, trainer.options.settings(), trainer.updates)
            lines += [f"  {record}" for record in self.steps]
        elif latest is not None:
            signature, plan = latest.captured.signature, latest.plan
            lines += [
                *signature_lines(signature, latest.captured.task),
                *pass_lines(latest.passes),
                *plan_lines(plan),
                parity_line(plan.worst_parity()),
            ]
        else:
            lines.append("not captured yet: call it, or compile it with example inputs")
        if self.captures:
            kept = f", {len(self._kept)} kept of at most {self._kept.most}" if self._trainer is None else ""
            lines.append(f"captures: {self.captures}{kept}")
            lines += [f"  {recompile}" for recompile in self.recompiles[-_SHOWN:]]
        return framed(type(self).__name__, lines)

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy, or of what is pickled: what the user put there. It captures for itself, at its first call."""
        if self._trainer is not None or self._staged_trainer is not None:
            raise ArtifactError(
                "a training graph cannot be copied; copy its modules and its optimizer, and make another of them"
            )
        own = vars(Graph(config=self.config)).keys() - _COPIED
        return {name: value for name, value in vars(self).items() if name not in own}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        Graph.__init__(self, config=state["config"])
        vars(self).update(state)
        self._journal.title = self._title()

    def _reject_training(self, what: str) -> None:
        if self._trainer is not None:
            raise ArtifactError(f"a training graph cannot {what} for inference; use headrace.compile(model) on its model")

        if self._parameters_are_global():
            raise ArtifactError(f"a graph over global tensors cannot {what}; it is called with global tensors, and has no plan")

    def _parameters_are_global(self) -> bool:
        return any(is_global(value) for module in distinct_modules(vars(self)) for value in module.parameters())

    def _parallel_step(self, inputs: Sequence[torch.Tensor]) -> Any:
        """A call with global tensors: captured with its collectives, by the same means as a training step."""
        if self._parallel is None:
            modules = distinct_modules(vars(self))
            options = TrainingOptions(update=False)
            self._parallel = Trainer(
                self.build, modules, without_settings(modules), options, self.config, self._journal, inference=True
            )
        return self._parallel.step(inputs)

    def _last(self) -> Compiled:
        if self._trainer is not None:
            raise BackendError("a training graph has no plan; its steps attribute says how it runs")
        if self._latest is None:
            raise BackendError("the graph is not captured yet; call it or compile it with example inputs first")
        return self._latest

    def _compiler(self) -> Compiler:
        return Compiler(self.config, self._judging, self._preprocessing, self._journal)

    def _ready(
        self, inputs: Sequence[torch.Tensor], progress: Progress | None, *, ahead: bool = False, why: str | None = None
    ) -> Compiled:
        key = kinds_of(inputs)
        compiled = self._kept.get(key)
        if compiled is None or compiled.watch.changed():
            compiled = self._compile(inputs, progress, ahead, compiled, why or self._why(key, compiled))
        self._kept.use(key, compiled)
        self._latest, self._latest_key = compiled, key
        if self._kept.thrashing and not self._warned:
            self._warned = True
            self._journal.warn(
                f"captures drop one another again and again, because inputs come in more than "
                f"max_captures={self._kept.most} row shapes; resize inputs to one size, or raise GraphConfig(max_captures=...)"
            )
        return compiled

    def _why(self, key: tuple[InputKind, ...], stale: Compiled | None) -> str:
        """Why a call captures, if it is not the first."""
        if stale is not None:
            return stale.watch.why()
        names = input_names(self._described(), len(key))
        reason = changed_inputs(names, self._latest_key, key) if self._latest_key is not None else ""
        if self._kept.was_dropped(key):
            return f"{reason}; captured before, and dropped to keep no more than max_captures={self._kept.most}"
        return reason or "nothing was kept"

    def _compile(
        self, inputs: Sequence[torch.Tensor], progress: Progress | None, ahead: bool, stale: Compiled | None, why: str
    ) -> Compiled:
        modules, compiler = distinct_modules(vars(self)), self._compiler()
        if self._parameters_are_global():
            raise InputError("the parameters are global tensors and the inputs are not; make them so with parallel.to_global")
        if self._journal.level:
            names = described_inputs(input_names(self._described(), len(inputs)), kinds_of(inputs))
            self._journal.report(1, f"capture {self._captures + 1}, for {names}" + (f": {why}" if self._captures else ""))
        for message in left_undone([part for module in modules for part in module.modules()]):
            if message not in self._told:
                self._told.add(message)
                self._journal.warn(message)
        watch = Watch(self)
        captured = compiler.capture(Computation(self.build, modules, title=self._title(), described=self._described()), inputs)
        self._captures += 1
        if self._captures > 1:
            self._recompiles.append(Recompile(self._captures, why))
        return compiler.compile(captured, watch, rows=inputs[0].shape[0], ahead=ahead, progress=progress, stale=stale)

    def _described(self) -> Callable[..., Any]:
        """The function whose parameters name the inputs."""
        return self.build

    def _title(self) -> str:
        return type(self).__name__

    def _program(self) -> str | None:
        """What tells that a module computes what this graph does, where that can be told: a `build` is no module's."""
        return None


class ModuleGraph(Graph):
    """The graph of one module, without a subclass; what `compile` returns."""

    def __init__(self, model: torch.nn.Module, *, config: GraphConfig | None = None) -> None:
        super().__init__(config=config)
        self.model = model
        self._journal.title = self._title()

    def build(self, *inputs: torch.Tensor) -> Any:
        return self.model(*inputs)

    def _described(self) -> Callable[..., Any]:
        return self.model.forward

    def _title(self) -> str:
        return type(self.model).__name__

    def _program(self) -> str | None:
        return program_digest(self.model)
