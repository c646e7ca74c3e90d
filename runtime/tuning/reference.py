"""What candidates are compared with: the captured program run eagerly, and how much that alone varies."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ...errors import BackendError, InputError
from ...specs import Signature, TensorSpec
from ..artifact.parity import Array
from ..backends.shared.torch_session import TorchSession
from ..base.numerics import fresh_rows
from ..base.session import Target
from ..capture.capture import CapturedGraph
from ..capture.programs import on_device, rebuilt, runnable

_CHUNK = 16
_NOISE_ROWS = 3
_LEAST_IMAGES = 64


@dataclass(frozen=True, eq=False)
class Images:
    """Real inputs (one array per input, [n, ...]), eager's class scores for them [n, classes], and labels [n] or None."""

    inputs: list[Array]
    scores: Array
    labels: Array | None


@dataclass(frozen=True, eq=False)
class Reference:
    """Rows to try candidates with, eager's outputs for them, and eager's own noise per output in the output's units.

    `images` judge lossy candidates. `calibrating` have set the ranges of int8: they cannot speak for it, but against it.
    """

    inputs: list[Array]
    outputs: list[Array]
    noise: tuple[float, ...]
    primary: int
    images: Images | None = None
    calibrating: Images | None = None


def make_reference(
    captured: CapturedGraph,
    target: Target,
    *,
    rows: int,
    images: Sequence[Array] = (),
    labels: Array | None = None,
    scores: Array | None = None,
    seconds: float = 10.0,
) -> Reference:
    """Run the program eagerly in fp32 on `rows` rows, real ones where there are any, and on the images while `seconds` last.

    At least 64 images are run in any case, in an order that mixes classes stored one after the other. None are run when their
    `scores` [n, classes] are known.
    """
    captured = replace(captured, program=on_device(captured.program, target.device))
    eager = TorchSession(runnable(captured.program), target)
    inputs = _rows(captured, images, rows)
    outputs = eager.run(inputs)
    primary = primary_output(captured.signature)
    few = [value[:_NOISE_ROWS] for value in (*inputs, *outputs)]
    noise = _noise(captured, target, eager, few[: len(inputs)], few[len(inputs) :])
    judged = None
    if images and scores is not None:
        judged = Images(list(images), scores, labels)
    elif images:
        judged = _run_images(eager, images, labels, primary, seconds)
    return Reference(inputs, outputs, noise, primary, judged)


def primary_output(signature: Signature) -> int:
    """The index of the output that holds the class scores: the one called logits, else the first."""
    names = [spec.name for spec in signature.outputs]
    return names.index("logits") if "logits" in names else 0


def checked_inputs(signature: Signature, value: Any, what: str) -> list[Array]:
    """A tensor, an array or a tuple of them as numpy arrays that fit the signature. Raises InputError naming what does not."""
    given = list(value) if isinstance(value, tuple | list) else [value]
    if len(given) != len(signature.inputs):
        raise InputError(f"{what}: expected {len(signature.inputs)} tensors, one per input; got {len(given)}")
    arrays = [item.numpy(force=True) if isinstance(item, torch.Tensor) else np.asarray(item) for item in given]
    for spec, array in zip(signature.inputs, arrays, strict=True):
        check_input(spec, tuple(array.shape), array.dtype.name, what)
    if len({len(array) for array in arrays}) > 1:
        raise InputError(f"{what}: inputs must have equally many rows, got {[len(array) for array in arrays]}")
    return arrays


def check_input(spec: TensorSpec, shape: tuple[int, ...], dtype: str, what: str) -> None:
    """Raise InputError unless shape and dtype are what the graph takes, with at least one row."""
    if len(shape) != len(spec.shape) or shape[1:] != spec.row_shape:
        raise InputError(f"{what}: {spec.name} must have shape {spec.shape}, got {shape}")
    if shape[0] < 1:
        raise InputError(f"{what}: {spec.name} has no rows; give at least one")
    if dtype != spec.dtype:
        raise InputError(f"{what}: {spec.name} must be {spec.dtype}, got {dtype}")


def _rows(captured: CapturedGraph, images: Sequence[Array], count: int) -> list[Array]:
    if images and len(images[0]) >= count:
        chosen = _mixed(len(images[0]))[:count]
        return [value[chosen] for value in images]
    return [fresh_rows(value, count, seed=index).numpy(force=True) for index, value in enumerate(captured.example)]


def _mixed(count: int) -> Array:
    return np.random.default_rng(0).permutation(count)


def _run_images(eager: TorchSession, images: Sequence[Array], labels: Array | None, primary: int, seconds: float) -> Images:
    order = _mixed(len(images[0]))
    deadline = time.monotonic() + seconds
    scores: list[Array] = []
    done = 0
    while done < len(order) and (done < _LEAST_IMAGES or time.monotonic() < deadline):
        chosen = order[done : done + _CHUNK]
        scores.append(eager.run([value[chosen] for value in images])[primary])
        done += len(chosen)
    used = order[:done]
    return Images([value[used] for value in images], np.concatenate(scores), None if labels is None else labels[used])


def _noise(
    captured: CapturedGraph, target: Target, eager: TorchSession, inputs: list[Array], base: list[Array]
) -> tuple[float, ...]:
    """Largest change of each output between ways to compute the same.

    Row by row, in another layout, and with inputs or weights off by one rounding step: the last two measure how far the
    network amplifies a rounding error, which is all that another order of operations is.
    """
    tensors = [torch.from_numpy(np.ascontiguousarray(value)) for value in inputs]
    others: list[Callable[[], list[Array]]] = [
        lambda: _one_by_one(eager, inputs),
        lambda: _in_another_layout(eager, tensors) or base,
        lambda: eager.run([_rounded_elsewhere(value, seed).numpy() for seed, value in enumerate(tensors)]),
        lambda: TorchSession(_perturbed(captured), target).run(inputs),
    ]
    noise = [0.0] * len(base)
    for other in others:
        for index, (expected, actual) in enumerate(zip(base, other(), strict=True)):
            if expected.dtype.kind == "f":
                difference = np.abs(expected.astype(np.float64) - actual.astype(np.float64))
                noise[index] = max(noise[index], float(np.nan_to_num(difference).max(initial=0.0)))
    return tuple(noise)


def _one_by_one(eager: TorchSession, inputs: list[Array]) -> list[Array]:
    singles = [eager.run([value[row : row + 1] for value in inputs]) for row in range(len(inputs[0]))]
    return [np.concatenate(parts) for parts in zip(*singles, strict=True)]


def _in_another_layout(eager: TorchSession, tensors: list[torch.Tensor]) -> list[Array] | None:
    """None where the model takes one layout only: its `view(batch, -1)` after a convolution wants contiguous values."""
    try:
        return _arrays(eager.run_tensors([_channels_last(value) for value in tensors]))
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
    kept = {
        name: torch.nn.Parameter(value, requires_grad=False) if _is_parameter(captured, name) else value
        for name, value in state.items()
    }
    return runnable(rebuilt(program, program.graph_module, state_dict=kept))


def _is_parameter(captured: CapturedGraph, name: str) -> bool:
    return isinstance(captured.program.state_dict[name], torch.nn.Parameter)


def _arrays(values: list[torch.Tensor]) -> list[Array]:
    return [value.numpy(force=True) for value in values]
