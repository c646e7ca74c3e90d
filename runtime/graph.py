"""Graph mode as users see it: subclass, `build`, call. Captured, tuned and compiled at the first call, replayed after."""

from __future__ import annotations

import functools
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import ArtifactError, BackendError, InputError, ParityError
from ..specs import Labels, Preprocessing, Signature
from .cache import Cached, cache_key, look_up, store
from .capture import CapturedGraph, capture, input_names
from .config import GraphConfig
from .package import write_package
from .parity import Array, ParityRecord
from .passes import PassRecord, run_passes
from .plan import Plan
from .portable import write_onnx
from .reference import checked_inputs
from .runner import Runner
from .source import CapturedSource
from .training.options import StepRecord, TrainingOptions
from .training.trainer import Trainer
from .tune import Progress, tune
from .uint8_input import as_rows, fold_preprocessing
from .watch import Watch, modules_in

# What a call that must be planned for measures with at most: rows (more are run in parts, which costs a CPU nothing) and
# seconds, because its caller waits for the answer.
_MOST_ROWS = {"cpu": 16, "cuda": 128}
_MOST_SECONDS = 8.0
_KEPT = 4  # compiled graphs per Graph; each holds a copy of the weights in every backend it uses


@dataclass(eq=False)
class _Compiled:
    """One captured and tuned graph: for one shape of row, dtype and device of each input."""

    captured: CapturedGraph
    passes: tuple[PassRecord, ...]
    plan: Plan
    runner: Runner
    folder: tempfile.TemporaryDirectory[str]
    watch: Watch
    key: str | None = None  # of the cache; None where the plan was not made by a call

    @functools.cached_property
    def optimised(self) -> CapturedGraph:
        """The graph after the passes; made when it is needed, since a cached plan brings its files along."""
        return run_passes(self.captured)[0]

    def close(self) -> None:
        self.runner.close()
        self.folder.cleanup()


class Graph:
    """A computation that is captured once and then replayed by the fastest backend that agrees with eager.

    Subclass it, keep modules as attributes in `__init__` (after `super().__init__()`), and compute in `build`. Calls may come
    from several threads; they take turns. Modules run in evaluation mode and without gradients, and are never changed.
    A call with a new row shape, dtype or device, or after parameters changed, captures anew; `captures` counts that.
    """

    def __init__(self, *, config: GraphConfig | None = None) -> None:
        self.config = config or GraphConfig()
        self.captures = 0
        self._lock = threading.RLock()
        self._trainer: Trainer | None = None
        self._compiled: dict[Any, _Compiled] = {}
        self._latest: _Compiled | None = None
        self._images: tuple[list[Array], Array | None] = ([], None)
        self._calibration: list[Array] = []
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
    ) -> None:
        """Make this a training graph: `build` computes a loss and calls its `backward()`, and a call is a whole step.

        After every `accumulate` calls the summed gradients are clipped by value and by norm, the optimiser updates, gradients
        are dropped and `lr_scheduler` steps (once per update; give none to step it per epoch yourself). `grad_scaler` scales
        what `backward()` starts from. `checkpoint` names modules whose activations are computed again instead of kept. Modules
        run in the mode that they are in. Parameters are written in place, so `model`, `optimizer` and this graph always
        agree, and eager steps may be taken in between. Call it once, after the modules are attributes.
        """
        if self._trainer is not None:
            raise ValueError("this graph has an optimiser already; one graph is one training step")
        options = TrainingOptions(
            lr_scheduler=lr_scheduler,
            clip_grad_norm=clip_grad_norm,
            clip_grad_value=clip_grad_value,
            accumulate=accumulate,
            grad_scaler=grad_scaler,
            checkpoint=tuple(checkpoint),
        )
        self._trainer = Trainer(self.build, _modules(self), optimizer, options, self.config)

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """How a training graph runs each kind of step it has seen: captured or eager, why, and the times of both."""
        return () if self._trainer is None else self._trainer.records

    def state_dict(self) -> dict[str, Any]:
        """The state of each module attribute by name, and of the optimiser, scheduler and scaler of a training graph.

        The parts are those of torch's own `state_dict`, so eager code loads them one by one.
        """
        with self._lock:
            modules = {name: value.state_dict() for name, value in vars(self).items() if isinstance(value, torch.nn.Module)}
            return {"modules": modules, "training": None if self._trainer is None else self._trainer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` gave. Raises InputError when the modules or the kind of graph differ."""
        with self._lock:
            modules = {name: value for name, value in vars(self).items() if isinstance(value, torch.nn.Module)}
            if set(state["modules"]) != set(modules):
                raise InputError(f"the state is of modules {sorted(state['modules'])}, this graph has {sorted(modules)}")
            if (state["training"] is None) != (self._trainer is None):
                raise InputError("one of the state and this graph has an optimiser and the other has none")
            for name, value in modules.items():
                value.load_state_dict(state["modules"][name])
            if self._trainer is not None:
                self._trainer.load_state_dict(state["training"])

    def build(self, *inputs: torch.Tensor) -> Any:
        """The computation: tensors [batch, ...] in; a tensor, or tuples, lists, dicts or dataclasses of them, out."""
        raise NotImplementedError(f"{type(self).__name__} must define build(self, ...)")

    def __call__(self, *inputs: torch.Tensor) -> Any:
        """What `build` returns for these inputs, computed by the plan; on the inputs' device and without gradients.

        Raises CaptureError when `build` cannot become one graph, InputError when an input is no tensor or has no rows.
        """
        for value in inputs:
            if not isinstance(value, torch.Tensor):
                raise InputError(f"a graph takes tensors, got a {type(value).__name__}")
            if value.ndim and not value.shape[0]:
                raise InputError(f"an input has no rows (shape {tuple(value.shape)}); give at least one")
        with self._lock:
            if self._trainer is not None:
                return self._trainer.step(inputs)
            compiled = self._ready(inputs, None)
            self._plan_for(compiled, inputs[0].shape[0])
            return compiled.captured.structure.rebuild(compiled.runner.run(inputs))

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
        With `preprocessing` its arithmetic becomes part of the graph, and inputs, examples and images are decoded pixels, uint8
        [n, height, width, channels].
        `progress(fraction, text)` is told how far it is.
        """
        self._refuse_training("compile")
        with self._lock:
            examples = example_inputs or _first_rows(images)
            if not examples:
                raise InputError("compile needs example inputs, or images whose first rows can be taken")
            self._images = _checked_images(images, labels)
            self._calibration = _checked_images(calibration, None)[0]
            self._preprocessing = preprocessing
            for compiled in self._compiled.values():
                compiled.close()
            self._compiled.clear()
            self._latest = None
            self._ready(examples, progress, self.config.planned)
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

    def save(
        self,
        path: str | Path,
        *,
        labels: Labels | Sequence[str] | None = None,
        preprocessing: Preprocessing | None = None,
        probabilities: bool | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write the latest capture as a model folder (models/resnet50) that `load`, the server and Triton read.

        `labels` are the class names, `probabilities` says that the outputs need no softmax. With `preprocessing`, the models
        beside it take encoded images. An existing model is replaced in one step; on any failure it stays.
        Raises ArtifactError, also before the first call.
        """
        self._refuse_training("save")
        with self._lock:
            if self._latest is None:
                raise ArtifactError("there is nothing to save yet; call the graph or compile it with example inputs first")
            compiled = self._latest
            if compiled.watch.changed():
                compiled = self._ready(compiled.captured.example, None)
            self._extend(compiled, self.config.planned)
            folder = Path(path)
            with tempfile.TemporaryDirectory(prefix="penstock-") as staging:
                write_onnx(compiled.optimised, compiled.runner.directory)
                wanted = {"model.onnx", *(name for choice in compiled.plan.choices.values() for name in choice.files)}
                wanted |= {item.name for item in compiled.runner.directory.glob("model.onnx.*")}
                for name in wanted:
                    shutil.copyfile(compiled.runner.directory / name, Path(staging) / name)
                return write_package(
                    folder,
                    name=folder.name,
                    files_from=Path(staging),
                    signature=compiled.captured.signature,
                    preprocessing=preprocessing or self._preprocessing,
                    labels=labels,
                    probabilities=bool(probabilities),
                    parity=self.parity,
                    plans=[compiled.plan],
                    provenance={
                        **(provenance or {}),
                        "outputs": compiled.captured.structure.to_json(),
                        "passes": [record.to_json() for record in compiled.passes],
                    },
                )

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__}("]
        for name, module in _named_modules(self):
            count = sum(value.numel() for value in module.parameters())
            lines.append(f"  ({name}): {type(module).__name__}, {count:,} parameters")
        if self._trainer is not None:
            lines += [f"  trained by {type(self._trainer.optimizer).__name__}", *(f"  {record}" for record in self.steps)]
        elif self._latest is None:
            lines.append("  not captured yet: call it, or compile it with example inputs")
        else:
            signature, plan = self._latest.captured.signature, self._latest.plan
            lines += [f"  input {spec.name}: {spec.dtype} {list(spec.shape)}" for spec in signature.inputs]
            lines += [f"  output {spec.name}: {spec.dtype} {list(spec.shape)}" for spec in signature.outputs]
            lines += [f"  batch {bucket}: {choice}" for bucket, choice in plan.choices.items()]
            lines.append(f"  parity {self.parity.status}" + (f": {self.parity.why}" if self.parity.why else ""))
        return "\n".join([*lines, ")"])

    def _refuse_training(self, what: str) -> None:
        if self._trainer is not None:
            raise ArtifactError(f"a training graph cannot {what} for inference; use penstock.compile(model) on its model")

    def _last(self) -> _Compiled:
        if self._trainer is not None:
            raise BackendError("a training graph has no plan; its steps attribute says how it runs")
        if self._latest is None:
            raise BackendError("the graph is not captured yet; call it or compile it with example inputs first")
        return self._latest

    def _plan_for(self, compiled: _Compiled, rows: int) -> None:
        """Measure for a call's batch size too, when the plan has none near it; unless the user chose the buckets."""
        if self.config.buckets is not None:
            return
        wanted, near = self._own_bucket(rows, compiled.plan.device), compiled.plan.bucket(rows)
        if not near / 4 < wanted <= near:
            self._extend(compiled, (wanted,), during_call=True)

    def _own_bucket(self, rows: int, device: str) -> int:
        return min(rows, _MOST_ROWS[device])

    def _for_a_call(self, buckets: tuple[int, ...]) -> GraphConfig:
        return replace(self.config, buckets=buckets, max_tuning_seconds=min(_MOST_SECONDS, self.config.max_tuning_seconds))

    def _extend(self, compiled: _Compiled, buckets: Sequence[int], *, during_call: bool = False) -> None:
        """Add the buckets that the plan lacks. Files that were written for it are used again."""
        lacking = tuple(bucket for bucket in buckets if bucket not in compiled.plan.choices)
        if not lacking:
            return
        config = self._for_a_call(lacking) if during_call else replace(self.config, buckets=lacking)
        runner = compiled.runner
        more = self._tuned(compiled.captured, compiled.optimised, config, runner.directory, compiled.plan.device, None)
        compiled.plan = runner.plan = replace(
            compiled.plan,
            choices={**compiled.plan.choices, **more.choices},
            measurements=compiled.plan.measurements + more.measurements,
        )
        if compiled.key is not None:
            store(compiled.key, Cached(compiled.plan, compiled.passes), runner.directory)

    def _ready(
        self, inputs: Sequence[torch.Tensor], progress: Progress | None, buckets: tuple[int, ...] | None = None
    ) -> _Compiled:
        key = tuple((tuple(value.shape[1:]), value.dtype, value.device) for value in inputs)
        compiled = self._compiled.get(key)
        if compiled is None or compiled.watch.changed():
            compiled = self._compile(inputs, progress, buckets, compiled)
        if (stale := self._compiled.pop(key, compiled)) is not compiled:
            stale.close()
        self._compiled[key] = compiled  # at the end: the first one is the one longest unused
        if len(self._compiled) > _KEPT:
            self._compiled.pop(next(iter(self._compiled))).close()
        self._latest = compiled
        return compiled

    def _compile(
        self,
        inputs: Sequence[torch.Tensor],
        progress: Progress | None,
        buckets: tuple[int, ...] | None,
        stale: _Compiled | None,
    ) -> _Compiled:
        watch = Watch(_modules(self), [value for value in vars(self).values() if isinstance(value, torch.Tensor)])
        names, inside = input_names(self._described(), len(inputs)), self._preprocessing
        rows = inputs if inside is None else [as_rows(value, inside) for value in inputs]
        captured = capture(_Step(self), rows, names=names)
        captured = captured if inside is None else fold_preprocessing(captured, inside)
        self.captures += 1
        device = self.config.device if self.config.device != "auto" else captured.device
        if buckets is None:
            config = self._for_a_call(self.config.buckets or (self._own_bucket(inputs[0].shape[0], device),))
        else:
            config = replace(self.config, buckets=buckets)
        folder = tempfile.TemporaryDirectory(prefix="penstock-")
        directory = Path(folder.name)
        # A call may use what an earlier process measured; whoever compiles ahead asks for a measurement.
        key = cache_key(captured, config) if buckets is None and stale is None and not self._images[0] else None
        try:
            cached = look_up(key, directory) if key is not None else None
            if cached is not None and (self.config.buckets is None or set(self.config.buckets) <= set(cached.plan.choices)):
                plan, records = cached.plan, cached.passes
            else:
                optimised, records = run_passes(captured)
                plan = self._tuned(captured, optimised, config, directory, device, progress, stale.plan if stale else None)
                if key is not None:
                    store(key, Cached(plan, records), directory)
        except BaseException:
            folder.cleanup()
            raise
        return _Compiled(captured, records, plan, Runner(captured.signature, plan, directory), folder, watch, key)

    def _tuned(
        self,
        captured: CapturedGraph,
        optimised: CapturedGraph,
        config: GraphConfig,
        directory: Path,
        device: str,
        progress: Progress | None,
        keep: Plan | None = None,
    ) -> Plan:
        images, labels = self._images if _fit(captured.signature, self._images[0]) else ([], None)

        def run(keep: Plan | None) -> Plan:
            return tune(
                CapturedSource(captured, optimised), config, directory=directory, device=device, images=images, labels=labels,
                calibration=self._calibration if images else (), progress=progress, keep=keep,
            )  # fmt: skip

        if keep is None:
            return run(None)
        try:
            return run(keep)
        except (BackendError, ParityError):
            return run(None)  # the old choice does not suit the new weights

    def _described(self) -> Callable[..., Any]:
        """The function whose parameters name the inputs."""
        return self.build

    def _title(self) -> str:
        return type(self).__name__


class _Step(torch.nn.Module):  # type: ignore[misc]
    """A graph's `build` as a module, so that its modules' parameters are the exported program's."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        for index, module in enumerate(_modules(graph)):
            self.add_module(f"module_{index}", module)
        self._build = (graph.build,)
        self.captured_as = graph._title()
        self.source_of_forward = graph._described()

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self._build[0](*inputs)


class ModuleGraph(Graph):
    """The graph of one module, without a subclass; what `compile` returns."""

    def __init__(self, model: torch.nn.Module, *, config: GraphConfig | None = None) -> None:
        super().__init__(config=config)
        self.model = model

    def build(self, *inputs: torch.Tensor) -> Any:
        return self.model(*inputs)

    def _described(self) -> Callable[..., Any]:
        return self.model.forward

    def _title(self) -> str:
        return type(self.model).__name__


def compile(
    model: torch.nn.Module,
    example_inputs: torch.Tensor | Sequence[torch.Tensor] | None = None,
    *,
    config: GraphConfig | None = None,
    images: Any = None,
    labels: Any = None,
    calibration: Any = None,
    preprocessing: Preprocessing | None = None,
    progress: Progress | None = None,
) -> Graph:
    """The graph of a module. With example inputs or images it is captured and tuned now, else at its first call.

    See `Graph.compile` for images, labels, calibration and preprocessing.
    """
    graph = ModuleGraph(model, config=config)
    if example_inputs is None and images is None:
        return graph
    examples = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs or ())
    return graph.compile(
        *examples, images=images, labels=labels, calibration=calibration, preprocessing=preprocessing, progress=progress
    )


def _modules(graph: Graph) -> list[torch.nn.Module]:
    return list(dict.fromkeys(modules_in(vars(graph).values())))


def _named_modules(graph: Graph) -> list[tuple[str, torch.nn.Module]]:
    return [(name, module) for name, value in vars(graph).items() for module in modules_in([value])]


def _first_rows(images: Any) -> tuple[torch.Tensor, ...]:
    if images is None:
        return ()
    given = images if isinstance(images, tuple | list) else (images,)
    return tuple(torch.as_tensor(value)[:2] for value in given)


def _checked_images(images: Any, labels: Any) -> tuple[list[Array], Array | None]:
    """Images and labels as arrays; raises InputError when their numbers differ."""
    if images is None:
        if labels is not None:
            raise InputError("labels were given without images")
        return [], None
    given = images if isinstance(images, tuple | list) else (images,)
    arrays = [value.numpy(force=True) if isinstance(value, torch.Tensor) else np.asarray(value) for value in given]
    if labels is None:
        return arrays, None
    classes = labels.numpy(force=True) if isinstance(labels, torch.Tensor) else np.asarray(labels)
    if classes.shape != arrays[0].shape[:1]:
        raise InputError(f"labels have shape {classes.shape} for {len(arrays[0])} images; give one class number per image")
    return arrays, classes


def _fit(signature: Signature, images: list[Array]) -> bool:
    """Whether the images are inputs of this capture. Those for another row shape are left out, wrong ones are refused."""
    if not images or tuple(images[0].shape[1:]) != signature.inputs[0].row_shape:
        return False
    checked_inputs(signature, images, "images")
    return True
