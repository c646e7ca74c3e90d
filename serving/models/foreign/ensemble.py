"""Ensembles of any steps: what a config wires, whether that can run, and which models it takes.

The models are looked up when a request comes, so that an ensemble is there as long as all of its steps are, in whatever order
they are loaded and exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ....errors import ArtifactError, RequestError
from ....runtime.artifact.model_config import FILE, ConfigTensor, ModelConfig
from ...batching.statistics import ModelStatistics
from ..models import Model

_MOST_STEPS, _MOST_DEPTH = 1000, 16

LookUp = Callable[[str, str], Model]
"""The model of a name and version ("": the newest) that serves; raises RequestError where there is none."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One model of an ensemble. `inputs` and `outputs` map its own tensors' names to the ensemble's."""

    model: str
    version: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(kw_only=True)
class EnsembleModel(Model):
    """Steps in an order in which each has its inputs."""

    steps: tuple[Step, ...]
    label_files: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def labels(self) -> Mapping[str, Sequence[str]]:
        return self.label_files


def ensemble_of(
    declared: ModelConfig, *, name: str, version: str, labels: Mapping[str, Sequence[str]], counted: ModelStatistics
) -> EnsembleModel:
    """The ensemble of a config. Raises ArtifactError where its tensors do not hang together."""
    steps = [*_steps(declared)]
    wrong = [*_wiring(declared, steps)]
    if wrong:
        raise ArtifactError(f"{FILE} of the ensemble '{name}':\n" + "\n".join(f"  {point}" for point in wrong))
    given, ordered, left = {tensor.name for tensor in declared.inputs}, list[Step](), steps
    while left:
        able = [step for step in left if given.issuperset(step.inputs.values())]
        if not able:
            waiting = ", ".join(repr(step.model) for step in left)
            raise ArtifactError(f"{FILE} of the ensemble '{name}': the steps {waiting} wait for each other's outputs")
        ordered += able
        given.update(tensor for step in able for tensor in step.outputs.values())
        left = [step for step in left if step not in able]
    return EnsembleModel(
        name=name, version=version, config=declared, statistics=counted, steps=tuple(ordered), label_files=labels
    )


def step_names(declared: ModelConfig) -> list[str]:
    """The models that an ensemble's config names; none of another model's."""
    return list(dict.fromkeys(step.model for step in _steps(declared)))


def trouble(ensemble: EnsembleModel, look_up: LookUp) -> str:
    """Why an ensemble cannot run with the models that serve now; empty where it can. `look_up` finds an ensemble whatever its
    own steps are."""
    return _trouble(ensemble, look_up, (), set())


def _trouble(ensemble: EnsembleModel, look_up: LookUp, way: tuple[str, ...], fine: set[int]) -> str:
    """`way` leads here from the outermost ensemble; `fine` are those that were looked at."""
    declared, way = ensemble.config, (*way, ensemble.name)
    if len(way) > _MOST_DEPTH:
        return f"ensembles are nested {_MOST_DEPTH} deep at most"
    known = {tensor.name: (tensor.datatype, "the ensemble") for tensor in declared.inputs}
    for step in ensemble.steps:
        if step.model in way:
            return f"it comes back to itself: {' -> '.join((*way, step.model))}"
        try:
            model = look_up(step.model, step.version)
        except RequestError as error:
            return f"its step '{step.model}' is not served: {error}"
        if isinstance(model, EnsembleModel) and id(model) not in fine and (why := _trouble(model, look_up, way, fine)):
            return f"its step '{step.model}' cannot run: {why}"
        if declared.max_batch_size > model.config.max_batch_size:
            return (
                f"its max_batch_size {declared.max_batch_size} is more than '{step.model}' takes, {model.config.max_batch_size}"
            )
        wrong = _unfit(step, model.config.inputs, model.config.outputs, known)
        if wrong:
            return wrong
    for tensor in declared.outputs:
        kind, who = known[tensor.name]
        if kind != tensor.datatype:
            return f"its output '{tensor.name}' is declared {tensor.datatype}, and {kind} from {who}"
    fine.add(id(ensemble))
    return ""


def _unfit(
    step: Step, inputs: Sequence[ConfigTensor], outputs: Sequence[ConfigTensor], known: dict[str, tuple[str, str]]
) -> str:
    """What does not fit of a step's tensors, of which the outputs become known."""
    own = {tensor.name: tensor.datatype for tensor in inputs}
    if absent := [name for name in own if name not in step.inputs]:
        return f"input '{absent[0]}' of its step '{step.model}' gets nothing"
    for name, shared in step.inputs.items():
        if name not in own:
            return f"its step '{step.model}' has no input '{name}'; it has {', '.join(own)}"
        if own[name] != known[shared][0]:
            return f"'{shared}' is {known[shared][0]} from {known[shared][1]}, and its step '{step.model}' takes {own[name]}"
    made = {tensor.name: tensor.datatype for tensor in outputs}
    for name, shared in step.outputs.items():
        if name not in made:
            return f"its step '{step.model}' has no output '{name}'; it has {', '.join(made)}"
        known[shared] = (made[name], f"'{step.model}'")
    return ""


def _steps(declared: ModelConfig) -> Iterator[Step]:
    for step in declared.message.get("ensemble_scheduling", {}).get("step", ()):
        version = int(step.get("model_version", -1))
        yield Step(
            model=str(step.get("model_name", "")),
            version="" if version == -1 else str(version),
            inputs=dict(step.get("input_map", {})),
            outputs=dict(step.get("output_map", {})),
        )


def _wiring(declared: ModelConfig, steps: Sequence[Step]) -> Iterator[str]:
    """What is wrong with an ensemble's tensors, whatever its models are."""
    if not 0 < len(steps) <= _MOST_STEPS:
        yield f"ensemble_scheduling has {len(steps):,} steps; give 1 to {_MOST_STEPS:,}"
        return
    if not declared.inputs or not declared.outputs:
        yield "input and output must be declared"
    if declared.message.get("instance_group"):
        yield "instance_group: an ensemble has no instances of its own; give them to its steps"
    made = {tensor.name: "the ensemble's input" for tensor in declared.inputs}
    for step in steps:
        if not step.model or not step.inputs or not step.outputs:
            yield f"step '{step.model}' needs model_name, input_map and output_map"
        for tensor in step.outputs.values():
            if tensor in made:
                yield f"'{tensor}' is made twice, by '{step.model}' and as {made[tensor]}"
            made[tensor] = f"an output of '{step.model}'"
    for step in steps:
        yield from (f"nothing makes '{one}', which '{step.model}' takes" for one in step.inputs.values() if one not in made)
    yield from (f"no step makes the output '{tensor.name}'" for tensor in declared.outputs if tensor.name not in made)
