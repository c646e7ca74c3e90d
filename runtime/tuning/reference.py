"""What candidates are compared with: the captured program run eagerly, and how much that alone varies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from ...errors import BackendError
from ...specs import Signature
from ..artifact.agreement import Array
from ..artifact.known_answers import Span, known_rows, record, span_of
from ..artifact.parity import largest_changes
from ..backends.shared.torch_session import TorchSession
from ..base.numerics import fresh_rows
from ..base.session import Session, Target
from ..base.task import DENSE, Task
from ..capture.capture import CapturedGraph
from ..capture.programs import computing, like_parameter, on_device, rebuilt
from .budget import Budget
from .judging_data import NO_IMAGES, JudgingData
from .rare_rows import RareRows, run_rare

CHUNK = 16
NOISE_ROWS = 3
RARE_SHARE = 0.25  # of the seconds for images
_LEAST_IMAGES = 64


@dataclass(eq=False)
class Reference:
    """Rows to try candidates with, eager's outputs for them, and eager's own noise per output in the output's units: of a few
    rows at first, and of those that candidates were off in, by `varies` of rows and their outputs.

    `images`, with their scores, judge lossy candidates. `calibrating` have set the ranges of int8: they cannot speak for it,
    but against it. `rare` are inputs that few images are. `judged` are those that were held to a budget on these images.
    """

    inputs: list[Array]
    outputs: list[Array]
    noise: tuple[float, ...]
    task: Task
    images: JudgingData | None = None
    calibrating: JudgingData = NO_IMAGES
    rare: RareRows | None = None
    judged: list[Any] = field(default_factory=list)
    varies: Callable[[list[Array], list[Array]], tuple[float, ...]] | None = None
    known: tuple[list[Array], dict[str, Any]] | None = None
    _own: list[Array] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._own = [value.copy() for value in self.inputs]  # a candidate may write to those that it is given

    def learn_noise(self, given: Sequence[Array], rows: Array) -> bool:
        """Whether eager itself varies more than was known on the rows that `given` is furthest off in; then `noise` says so.
        `rows` are their places in `inputs`.

        A network may round a few of its rows a hundred times worse than the others.
        """
        if self.varies is None:
            return False
        some = list(dict.fromkeys(rows[furthest_off([value[rows] for value in self.outputs], given)].tolist()))[:NOISE_ROWS]
        found = self.varies([value[some] for value in self._own], [value[some] for value in self.outputs])
        wider = tuple(map(max, self.noise, found))
        changed, self.noise = wider != self.noise, wider
        return changed

    def share_of_doubt(self, arithmetic: Any, alpha: float) -> float:
        """The probability with which one more that is held to a budget may pass by luck, so that all together do with `alpha`
        at most: a half, a sixth, a twelfth... of it, which add up to one."""
        if arithmetic not in self.judged:
            self.judged.append(arithmetic)
        number = self.judged.index(arithmetic) + 1
        return alpha / (number * (number + 1))


def make_reference(
    captured: CapturedGraph,
    target: Target,
    *,
    rows: int,
    judging: JudgingData = NO_IMAGES,
    seconds: float = 10.0,
    seed: int = 0,
    with_rare: bool = False,
) -> Reference:
    """Run the program eagerly in fp32 on `rows` rows, real ones where there are any, and on the images while `seconds` of work
    last.

    At least 64 images are run in any case, in an order that mixes classes stored one after the other. None are run when their
    scores are known. `with_rare` adds rare inputs, for a share of the seconds.
    """
    inputs = some_rows(judging, rows)
    if inputs is None:
        inputs = [fresh_rows(value, rows, seed=seed + index).numpy(force=True) for index, value in enumerate(captured.example)]
    captured, eager, outputs, noise = _run_eagerly(captured, target, inputs)
    if judging.images and judging.scores is None:
        judging = _with_scores(judging, eager, captured.task, target, seconds)

    def varies(some: list[Array], base: list[Array]) -> tuple[float, ...]:
        return _noise(captured, target, eager, some, base)

    rare = None
    if with_rare:
        rare = run_rare(eager, inputs, varies, seconds=RARE_SHARE * seconds)
    known = known_of(eager, captured.signature, captured.task, noise, span_of(judging.images))
    images = judging if judging.images else None
    return Reference(inputs, outputs, noise, captured.task, images, rare=rare, varies=varies, known=known)


def known_of(
    session: Session, signature: Signature, task: Task, noise: Sequence[float], span: Span | None
) -> tuple[list[Array], dict[str, Any]] | None:
    """The rows by which a server knows a model, with what a lossless session answers; None where that would tell nothing."""
    rows = known_rows(signature, span)
    if rows is None:
        return None
    try:
        recorded = _recorded(session.run(rows), task, noise, span)
    except BackendError:  # such as a model that checks its inputs
        return None
    return None if recorded is None else (rows, recorded)


def _recorded(outputs: Sequence[Array], task: Task, noise: Sequence[float], span: Span | None) -> dict[str, Any] | None:
    found = record(outputs[task.primary], noise[task.primary])
    return None if found is None else {"output": task.primary, **found, **({} if span is None else {"span": list(span)})}


def furthest_off(wanted: Sequence[Array], given: Sequence[Array]) -> Array:
    """The rows in the order of how far any output is off, the furthest first. Outputs of other shapes, and those that are
    missing, tell nothing."""
    off = np.zeros(len(wanted[0]))
    for expected, found in zip(wanted, given, strict=False):
        if expected.dtype.kind == "f" and expected.size and expected.shape == found.shape:
            difference = np.abs(expected.astype(np.float64) - found).reshape(len(off), -1).max(axis=1)
            off = np.maximum(off, np.nan_to_num(difference / (np.abs(expected).max() or 1.0)))
    return np.argsort(-off)


def noise_where_off(
    captured: CapturedGraph, target: Target, inputs: Sequence[Array], wanted: Sequence[Array], given: Sequence[Array]
) -> tuple[float, ...]:
    """How much eager varies, for each output, on those of the rows that are furthest off."""
    some = furthest_off(wanted, given)[:NOISE_ROWS]
    return _run_eagerly(captured, target, [value[some] for value in inputs])[3]


def known_answers(captured: CapturedGraph, target: Target, images: Sequence[Array] = ()) -> dict[str, Any] | None:
    """What eager answers on the rows that every machine can make, for the manifest; None where that would tell nothing. They
    are like the `images` that judge the model, where there are any."""
    span = span_of(images)
    inputs = known_rows(captured.signature, span)
    if inputs is None:
        return None
    try:
        _, _, outputs, noise = _run_eagerly(captured, target, inputs, noise_rows=1)  # only its order of magnitude counts
    except BackendError:  # such as a model that checks its inputs
        return None
    return _recorded(outputs, captured.task, noise, span)


def _run_eagerly(
    captured: CapturedGraph, target: Target, inputs: list[Array], *, noise_rows: int = NOISE_ROWS
) -> tuple[CapturedGraph, TorchSession, list[Array], tuple[float, ...]]:
    """The graph on the target's device, eager there, what that answers, and how far that alone varies."""
    captured = replace(captured, program=on_device(captured.program, target.device))
    eager = TorchSession(computing(captured.program), target)
    outputs = eager.run(inputs)
    few = [value[:noise_rows] for value in (*inputs, *outputs)]
    return captured, eager, outputs, _noise(captured, target, eager, few[: len(inputs)], few[len(inputs) :])


def run_judged(session: Session, batches: Iterable[Sequence[Array]], task: Task) -> tuple[Array, ...]:
    """The outputs that the task has judged, of all batches."""
    parts = [[outputs[index] for index in task.judged] for outputs in map(session.run, batches)]
    return tuple(np.concatenate(values) for values in zip(*parts, strict=True))


def some_rows(judging: JudgingData, count: int) -> list[Array] | None:
    """So many of the images, mixed; None where there are fewer."""
    if not judging.images or len(judging.images[0]) < count:
        return None
    return list(judging.rows(_mixed(len(judging.images[0]))[:count]).images)


def _mixed(count: int) -> Array:
    return np.random.default_rng(0).permutation(count)


def _with_scores(judging: JudgingData, eager: TorchSession, task: Task, target: Target, seconds: float) -> JudgingData:
    order = _mixed(len(judging.images[0]))
    budget = Budget(seconds, threads=target.thread_count, device=target.device)
    maps = any(task.heads[index].kind == DENSE for index in task.judged)
    order = order[:_LEAST_IMAGES] if maps else order  # whose outputs are too large to keep many
    done = 0

    def batches() -> Iterator[list[Array]]:
        nonlocal done
        while done < len(order) and (done < _LEAST_IMAGES or budget.left or judging.whole):
            chosen = order[done : done + CHUNK]
            done += len(chosen)
            yield [value[chosen] for value in judging.images]

    scores = run_judged(eager, batches(), task)
    return replace(judging.rows(order[:done]), scores=scores)


def _noise(
    captured: CapturedGraph, target: Target, eager: TorchSession, inputs: list[Array], base: list[Array]
) -> tuple[float, ...]:
    """Largest change of each output between ways to compute the same.

    Row by row, in another layout, and with inputs or weights off by one rounding step: the last two measure how far the
    network amplifies a rounding error, which is all that another order of operations is.
    """
    tensors = [torch.from_numpy(np.ascontiguousarray(value)) for value in inputs]
    return largest_changes(
        base,
        [
            one_by_one(eager, inputs),
            _in_another_layout(eager, tensors) or base,
            eager.run([_rounded_elsewhere(value, seed).numpy() for seed, value in enumerate(tensors)]),
            TorchSession(_perturbed(captured), target).run(inputs),
        ],
    )


def one_by_one(session: Session, inputs: list[Array]) -> list[Array]:
    """The outputs of each row run alone."""
    singles = [session.run([value[row : row + 1] for value in inputs]) for row in range(len(inputs[0]))]
    return [np.concatenate(parts) for parts in zip(*singles, strict=True)]


def _in_another_layout(eager: TorchSession, tensors: list[torch.Tensor]) -> list[Array] | None:
    """None where the model takes one layout only: its `view(batch, -1)` after a convolution wants contiguous values."""
    try:
        results = eager.run_tensors([_channels_last(value) for value in tensors])
        return [value.numpy(force=True) for value in results]
    except BackendError:
        return None


def _channels_last(value: torch.Tensor) -> torch.Tensor:
    return value.contiguous(memory_format=torch.channels_last) if value.ndim == 4 else value


def _rounded_elsewhere(value: torch.Tensor, seed: int) -> torch.Tensor:
    """The tensor with each element one rounding step up, down or as it is."""
    if not value.is_floating_point():
        return value
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(-1, 2, value.shape, generator=generator, device="cpu").to(value.device, value.dtype)
    return value * (1 + steps * torch.finfo(value.dtype).eps)


def _perturbed(captured: CapturedGraph) -> Any:
    program = captured.program
    state = {name: _rounded_elsewhere(value.detach(), index) for index, (name, value) in enumerate(program.state_dict.items())}
    kept = {name: like_parameter(program.state_dict[name], value) for name, value in state.items()}
    return computing(rebuilt(program, program.graph_module, state_dict=kept))
