"""What the repository serves: tensor models that run in batches, and their decode and classify companions, done natively."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import InputError
from ...runtime.artifact.model_config import ConfigTensor, ModelConfig
from ...runtime.artifact.pipeline.stages import Stages
from ...runtime.artifact.plan import Plan
from ...runtime.artifact.split.members import Members
from ...runtime.base.task import Task
from ...runtime.images.preprocessing import Preprocessor
from ...specs import Preprocessing, Signature
from ..batching.queue_rules import QueueRules
from ..batching.request_queue import RequestQueue
from ..batching.statistics import ModelStatistics
from ..protocol.messages import InferenceRequest, Tensor
from .improvement import Improvement
from .leases import Leases
from .oversight.shadow import Agreement, Shadow
from .response_cache import ModelCache


@dataclass(kw_only=True)
class Model:
    """One version of a model. `config` declares its tensors. Whoever sends it a request does so between `leases.acquire()` and
    `leases.release()`, as `ModelRepository.use` does. What does not fit is worded as Triton words it, whose clients look for
    that."""

    name: str
    version: str
    config: ModelConfig
    statistics: ModelStatistics = field(default_factory=ModelStatistics)
    leases: Leases = field(default_factory=Leases, repr=False)

    @property
    def labels(self) -> Mapping[str, Sequence[str]]:
        """The names of the entries of each output, where they have names."""
        return {}

    @property
    def trouble(self) -> str:
        """Why it cannot answer for the moment, though it is loaded; empty when it can."""
        return ""

    def whole(self, row: Sequence[int]) -> list[int]:
        """A tensor's shape with the batch, where the model takes batches."""
        return [-1, *row] if self.config.max_batch_size else list(row)

    def close(self, *, drain: bool = True) -> None:
        """Free what the model holds."""

    def check_inputs(self, request: InferenceRequest) -> tuple[list[Tensor], int]:
        """The request's tensors in the config's order, and how many rows they have; raises InputError on what does not fit."""
        given = {tensor.name: tensor for tensor in request.inputs}
        expected = [tensor.name for tensor in self.config.inputs]
        if unknown := [name for name in given if name not in expected]:
            raise InputError(
                f"unexpected inference input '{unknown[0]}' for model '{self.name}'; it takes {', '.join(expected)}"
            )
        if missing := [name for name in expected if name not in given]:
            raise InputError(
                f"expected {len(expected)} inputs but got {len(given)} inputs for model '{self.name}'. "
                f"Got input(s) {_listed(given)}, but missing required input(s) {_listed(missing)}. "
                "Please provide all required input(s)."
            )
        ordered = [given[name] for name in expected]
        for tensor, declared in zip(ordered, self.config.inputs, strict=True):
            if tensor.datatype != declared.datatype:
                raise InputError(
                    f"inference input '{tensor.name}' data-type is '{tensor.datatype}', but model '{self.name}' expects "
                    f"'{declared.datatype}'"
                )
            expected_shape = self.whole(declared.shape)
            if not _fits(tensor.shape, expected_shape):
                raise InputError(
                    f"unexpected shape for input '{tensor.name}' for model '{self.name}'. "
                    f"Expected {expected_shape}, got {list(tensor.shape)}"
                )
        if not self.config.max_batch_size:
            return ordered, 1
        rows = {tensor.shape[0] for tensor in ordered}
        if len(rows) != 1:
            raise InputError(f"all inputs must have the same batch size, got {sorted(rows)}")
        count = rows.pop()
        if not 1 <= count <= self.config.max_batch_size:
            raise InputError(
                f"inference request batch-size must be >= 1 and <= {self.config.max_batch_size} for '{self.name}', got {count}"
            )
        return ordered, count

    def check_outputs(self, request: InferenceRequest) -> None:
        """Raise InputError for an output that is asked for and does not exist."""
        known = [tensor.name for tensor in self.config.outputs]
        for output in request.outputs or ():
            if output.name not in known:
                raise InputError(
                    f"unexpected inference output '{output.name}' for model '{self.name}'; it has {', '.join(known)}"
                )


@dataclass(kw_only=True)
class QueuedModel(Model):
    """Tensors in, tensors out, through the batcher, in the order of `input_names` and of `output_names`.

    `instances` counts the sessions side by side, `instances_per_device` those on each GPU, or on the CPU, and `in_flight`
    the batches that each computes at a time. `cache` keeps outputs for inputs that come again, where that is wanted.
    """

    batcher: RequestQueue
    instances: int = 1
    instances_per_device: int = 1
    in_flight: int = 1
    improvement: Improvement | None = field(default=None, repr=False)
    cache: ModelCache | None = None
    input_names: tuple[str, ...] = field(init=False)
    output_names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.rules = QueueRules.of(self.config)

    def check_values(self, tensors: Sequence[Tensor]) -> None:
        """Raise InputError for values that would fail the requests beside them, too. It walks through all of them."""

    def grow(self, instances: int) -> None:
        """There are so many instances now, on one device."""
        self.instances = self.instances_per_device = instances

    def close(self, *, drain: bool = True) -> None:
        """Answer what was admitted (or with drain=False reject it), then end the model's threads and free its sessions."""
        if self.improvement is not None:
            self.improvement.stop()
        self.batcher.close(drain=drain)
        if self.cache is not None:
            self.cache.clear()


@dataclass(kw_only=True)
class TensorModel(QueuedModel):
    """One that Headrace packaged. `preprocessor` makes its input from images, where that is known.

    `preprocessing` is what `preprocessor` was made from. `task` says what the outputs are. `decoding` counts the images decoded
    for it, whichever way they came: they are the executions of its decode model. `account` tells people of its plan and proofs,
    as JSON. `plan` and `shadow` are where the model runs, the latter where answers are compared with fp32's;
    `agreement_before` is what such a comparison found of the plan that was taken back for it.
    """

    signature: Signature
    task: Task
    preprocessing: Preprocessing | None = None
    preprocessor: Preprocessor | None = None
    decoding: ModelStatistics = field(default_factory=ModelStatistics)
    account: Mapping[str, Any] = field(default_factory=dict, repr=False)
    plan: Plan | None = field(default=None, repr=False)
    shadow: Shadow | None = field(default=None, repr=False)
    agreement_before: Agreement | None = None
    ranks: tuple[Members, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        # Sessions take and give tensors in the signature's order, which an edited config need not follow.
        self.input_names = tuple(spec.name for spec in self.signature.inputs)
        self.output_names = tuple(spec.name for spec in self.signature.outputs)

    @property
    def labels(self) -> Mapping[str, Sequence[str]]:
        return {head.output: head.labels for head in self.task.heads}

    @property
    def trouble(self) -> str:
        """Why it cannot answer: each of its instances lacks a process. Empty where one does not."""
        troubles = [ranks.trouble for ranks in self.ranks]
        return troubles[0] if all(troubles) and troubles else ""

    @property
    def away(self) -> list[str]:
        """Why each instance that lacks a process does not compute; the others answer meanwhile."""
        return [why for ranks in self.ranks if (why := ranks.trouble)]

    @property
    def stages(self) -> list[list[dict[str, float] | None]]:
        """Of each instance that is a pipeline, the shares of its stages, as `Stages.shares` has them."""
        return [ranks.shares() for ranks in self.ranks if isinstance(ranks, Stages)]

    @property
    def choices(self) -> int:
        """The classes of which it gives one, so that a request may ask for the best of them alone; 0 where it gives something
        else, or where its outputs are kept for others that ask for more."""
        number = self.task.one_choice
        return 0 if number is None or self.cache is not None else math.prod(self.signature.outputs[number].row_shape)

    @property
    def agreement(self) -> Agreement | None:
        """How its answers agree with fp32's, or those of the plan that was taken back did; None where nobody looks."""
        return self.agreement_before if self.shadow is None else self.shadow.agreement

    def close(self, *, drain: bool = True) -> None:
        super().close(drain=drain)
        if self.shadow is not None:
            self.shadow.stop()

    @property
    def image_input(self) -> ConfigTensor:
        """The input that images become."""
        return self.config.inputs[0]


@dataclass(kw_only=True)
class DecodeModel(Model):
    """Encoded images in, the target's input out: what the Triton Python model of the same folder computes."""

    target: TensorModel

    @property
    def trouble(self) -> str:
        return self.target.trouble


@dataclass(kw_only=True)
class ClassifyModel(Model):
    """The ensemble decode -> target: encoded images in, the target's outputs out. `outputs` maps the ensemble's output names to
    the target's."""

    target: TensorModel
    outputs: dict[str, str]

    @property
    def labels(self) -> Mapping[str, Sequence[str]]:
        return {name: self.target.labels[source] for name, source in self.outputs.items()}

    @property
    def trouble(self) -> str:
        return self.target.trouble


def _listed(names: Iterable[str]) -> str:
    """As Triton lists them, for clients that look for its words."""
    return f"[{','.join(repr(name) for name in names)}]"


def _fits(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    return len(shape) == len(wanted) and all(size in (-1, given) for size, given in zip(wanted, shape, strict=True))
