"""How the steps of an ensemble hang together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .finding import Finding, error
from .subject import ModelFolder, Repository, datatype_name


def check(model: ModelFolder, repository: Repository) -> Iterator[Finding]:
    """Triton's ValidateEnsembleSchedulingConfig (core's ensemble_utils.cc), and what its models manager asks of the steps."""
    if not model.is_ensemble:
        return
    scheduling = model.config.WhichOneof("scheduling_choice")
    if scheduling not in (None, "ensemble_scheduling"):
        yield error("TR014", scheduling, "an ensemble does not batch; its steps do")
        return
    steps = model.config.ensemble_scheduling.step
    if not steps:
        yield error("TR015", "ensemble_scheduling", "there are no steps")
        return
    if (cycle := _cycle(model, repository)) is not None:
        yield error("TR015", "ensemble_scheduling", f"the ensemble comes back to itself: {' -> '.join(cycle)}")
        return
    wiring = _Wiring(model, repository)
    for index, step in enumerate(steps):
        yield from wiring.step(f"step[{index}]", step)
    yield from wiring.ends()


def _cycle(model: ModelFolder, repository: Repository) -> list[str] | None:
    """The names of models along a way that leads from an ensemble to itself."""

    def follow(name: str, way: list[str]) -> list[str] | None:
        if name in way:
            return [*way, name] if name == model.name else None
        found = repository.models.get(name)
        steps = found.config.ensemble_scheduling.step if found is not None else ()
        return next((cycle for step in steps if (cycle := follow(step.model_name, [*way, name]))), None)

    return follow(model.name, [])


class _Wiring:
    """The tensors between the steps: what makes each, what takes it, and what is known of its type and shape."""

    def __init__(self, model: ModelFolder, repository: Repository) -> None:
        self.model, self.repository = model, repository
        self.made: dict[str, str] = {tensor.name: "the ensemble's input" for tensor in model.config.input}
        self.taken: set[str] = {tensor.name for tensor in model.config.output}
        self.known: dict[str, tuple[str, Any, bool]] = {}
        self.wanted: list[tuple[str, str]] = []
        self.pending: list[Finding] = []
        for tensor in (*model.config.input, *model.config.output):
            self._meet(tensor.name, tensor, model, "the ensemble")

    def step(self, where: str, step: Any) -> Iterator[Finding]:
        for side, given in (("input_map", step.input_map), ("output_map", step.output_map)):
            if not given:
                yield error("TR015", f"{where}.{side}", f"it is empty; map the tensors of {step.model_name!r}")
        for tensor in step.output_map.values():
            if tensor in self.made:
                yield error("TR015", f"{where}.output_map", f"{tensor!r} is made twice, here and as {self.made[tensor]}")
            self.made[tensor] = f"an output of {step.model_name!r}"
        self.taken |= set(step.input_map.values())
        self.wanted += [(f"{where}.input_map", tensor) for tensor in step.input_map.values()]
        target = self.repository.models.get(step.model_name)
        if target is None:
            if step.model_name in self.repository.unreadable:  # its own finding
                return
            listed = ", ".join(self.repository.models)
            yield error("TR015", where, f"there is no model {step.model_name!r} in the folder; it has {listed}")
            return
        if step.model_version not in (-1, *target.wanted_versions):
            yield error("TR015", where, f"version {step.model_version} of {step.model_name!r} is not served")
        if self.model.config.max_batch_size > target.config.max_batch_size:
            yield error(
                "TR015",
                "max_batch_size",
                f"{self.model.config.max_batch_size} is more than {step.model_name!r} takes, {target.config.max_batch_size}",
            )
        yield from self._mapped(f"{where}.input_map", step.input_map, target.config.input, target, "input")
        yield from self._mapped(f"{where}.output_map", step.output_map, target.config.output, target, "output")
        absent = [one.name for one in target.config.input if one.name not in step.input_map and not one.optional]
        if absent and step.input_map:
            yield error("TR015", f"{where}.input_map", f"input {absent[0]!r} of {target.name!r} gets nothing")

    def ends(self) -> Iterator[Finding]:
        """What nothing makes, and what nothing takes."""
        yield from self.pending
        for where, tensor in self.wanted:
            if tensor not in self.made:
                yield error("TR015", where, f"nothing makes {tensor!r}; the ensemble has {', '.join(self.made)}")
        for tensor in self.model.config.output:
            if tensor.name not in self.made:
                yield error("TR015", "output", f"no step makes {tensor.name!r}; map an output to it")
        for tensor, maker in self.made.items():
            if tensor not in self.taken:
                yield error("TR015", "ensemble_scheduling", f"{tensor!r}, {maker}, is used by nothing; take it out")

    def _mapped(self, where: str, given: Any, declared: Any, target: ModelFolder, side: str) -> Iterator[Finding]:
        tensors = {tensor.name: tensor for tensor in declared}
        for own, shared in given.items():
            if own in tensors:
                self._meet(shared, tensors[own], target, f"{target.name!r}")
            else:
                yield error("TR015", where, f"{target.name!r} has no {side} {own!r}; it has {', '.join(tensors)}")

    def _meet(self, name: str, tensor: Any, model: ModelFolder, who: str) -> None:
        """Hold what one side says of a shared tensor to what the first said of it."""
        if name not in self.known:
            self.known[name] = (who, tensor, model.config.max_batch_size > 0)
            return
        first, other, batches = self.known[name]
        sizes = [
            [-1] * one + list(dims) for one, dims in ((batches, other.dims), (model.config.max_batch_size > 0, tensor.dims))
        ]
        same = len(sizes[0]) == len(sizes[1]) and all(-1 in pair or pair[0] == pair[1] for pair in zip(*sizes, strict=True))
        if tensor.data_type != other.data_type:
            kinds = (datatype_name(other.data_type), datatype_name(tensor.data_type))
            message = f"{name!r} is {kinds[0]} for {first} and {kinds[1]} for {who}"
        elif not same:
            message = f"{name!r} has dims {list(other.dims)} for {first} and {list(tensor.dims)} for {who}"
        else:
            return
        self.pending.append(error("TR015", "ensemble_scheduling", message))
