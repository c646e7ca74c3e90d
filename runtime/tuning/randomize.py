"""Weights for which agreement means something: a freshly built model often has a zero head, unit norms, empty statistics."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

_OPENED = 0.2
_SHARES = (1.0, 0.5, 0.0)  # of the measured statistics, the others being those of fresh norms
_MOST_AMPLIFIED = 1e-3  # of what tells two rows apart, for a change of a millionth: a thousand times as much


def randomized(model: nn.Module, example: Sequence[torch.Tensor], *, seed: int = 0) -> nn.Module:
    """A copy of the model with every parameter and batch-norm statistic drawn anew; the model itself is not touched.

    Weights are scaled by their fan-in (He et al. 2015), so that activations neither vanish nor overflow, and batch-norm
    statistics are those of one run on noise like `example`, perturbed. Equal seeds give equal weights.
    """
    return _drawn(model, example, seed, keeps_drawn=False)


def settled(model: nn.Module, example: Sequence[torch.Tensor], *, seed: int = 0) -> nn.Module:
    """A copy that keeps what the initializer drew, while what it left constant and every batch-norm statistic is drawn anew.

    A zero head, a zero or tiny scale on a residual branch and empty statistics hide mistakes; the weights' own distribution
    does not, and a deep network stands it better than another.
    """
    return _drawn(model, example, seed, keeps_drawn=True)


def drawn(model: nn.Module, example: Sequence[torch.Tensor], *, seed: int = 0) -> nn.Module:
    """`randomized`, or `settled` where all weights drawn anew amplify rounding so that nothing agrees with the model."""
    made = randomized(model, example, seed=seed)
    rows = [value.repeat(2, *[1] * (value.dim() - 1))[:2] for value in example]
    rows = [noise(value.shape, seed=seed).to(value) if value.is_floating_point() else value for value in rows]
    with torch.no_grad():
        return settled(model, example, seed=seed) if _amplifies(made, rows) else made


def _drawn(model: nn.Module, example: Sequence[torch.Tensor], seed: int, *, keeps_drawn: bool) -> nn.Module:
    model = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in (pair for module in model.modules() for pair in module.named_parameters(recurse=False)):
            constant = bool(parameter.numel()) and bool((parameter == parameter.flatten()[0]).all())
            if keeps_drawn and not constant:
                continue
            scales = name == "weight" and parameter.dim() == 1
            closed = constant and not bool(parameter.any())
            _draw(parameter, generator, is_norm_scale=scales)
            if keeps_drawn and closed and scales:
                # The last norm of a residual branch, zero so that the branch starts closed: training opens it a little, and a
                # deep network with all of them wide open amplifies rounding.
                parameter.mul_(_OPENED)
        _settle(model, example, generator, _SHARES if keeps_drawn else _SHARES[:1])
    return model


def noise(shape: Sequence[int], *, seed: int = 0) -> torch.Tensor:
    """Standard normal float32 inputs, the same for equal seeds."""
    return torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed))


def device_of(model: nn.Module) -> str:
    """Where the model's parameters are: "cpu" or "cuda"."""
    found = next((value for value in (*model.parameters(), *model.buffers())), None)
    return "cpu" if found is None else found.device.type


def _draw(parameter: torch.Tensor, generator: torch.Generator, *, is_norm_scale: bool) -> None:
    if not parameter.is_floating_point():
        return
    if parameter.dim() >= 2:
        fan_in = max(1, parameter[0].numel())
        value = torch.randn(parameter.shape, generator=generator) * math.sqrt(2 / fan_in)
    elif is_norm_scale:
        value = 0.5 + torch.rand(parameter.shape, generator=generator)
    else:
        value = 0.1 * torch.randn(parameter.shape, generator=generator)
    parameter.copy_(value)


def _settle(model: nn.Module, example: Sequence[torch.Tensor], generator: torch.Generator, shares: Sequence[float]) -> None:
    """Measure batch-norm statistics on noise, then move them a little: folding must not be able to cancel."""
    norms = [module for module in model.modules() if isinstance(getattr(module, "running_mean", None), torch.Tensor)]
    for norm in norms:
        norm.running_mean.copy_(0.1 * torch.randn(norm.running_mean.shape, generator=generator))
        norm.running_var.copy_(0.5 + torch.rand(norm.running_var.shape, generator=generator))
    rows = [torch.randn((8, *value.shape[1:]), generator=generator).to(value) for value in example]
    kept = [(norm.running_mean.clone(), norm.running_var.clone()) for norm in norms]
    with _measuring(norms), contextlib.suppress(RuntimeError, ValueError):  # one value per channel has no variance
        model(*rows)
    found = [
        (norm, mean, variance.sqrt(), *_moved(norm, generator))
        for norm, (mean, variance) in zip(norms, kept, strict=True)
        if _is_finite(norm, mean, variance)
    ]
    for share in shares if found else ():
        for norm, mean, deviation, measured, spread, shift, scale in found:
            spread_now = spread**share * deviation ** (1 - share)
            norm.running_mean.copy_(torch.lerp(mean, measured, share) + 0.1 * spread_now * shift)
            norm.running_var.copy_((spread_now * scale) ** 2)
        if share == shares[-1] or not _amplifies(model, rows):
            break


def _is_finite(norm: Any, mean: torch.Tensor, variance: torch.Tensor) -> bool:
    """Whether statistics could be measured; else they are as they were."""
    if torch.isfinite(norm.running_mean).all() and torch.isfinite(norm.running_var).all():
        return True
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(variance)
    return False


def _moved(norm: Any, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """The measured mean and spread, and by how much of the spread, and how many times, they are moved."""
    spread = norm.running_var.clamp(min=1e-3).sqrt()
    shift = torch.randn(spread.shape, generator=generator).to(spread)
    return norm.running_mean.clone(), spread, shift, 0.9 + 0.2 * torch.rand(spread.shape, generator=generator).to(spread)


def _amplifies(model: nn.Module, rows: Sequence[torch.Tensor]) -> bool:
    """Whether a change of a millionth grows to much more in the outputs: what noise hardly varies, as where features are pooled
    before a norm, is spread by the measured statistics until rounding decides what comes out."""
    for move in (0.0, 0.5):
        some = [value[:2] + move if value.is_floating_point() else value[:2] for value in rows]
        near = [value * (1 + 1e-6) if value.is_floating_point() else value for value in some]
        try:
            given, other = (_first(model(*inputs)) for inputs in (some, near))
        except (RuntimeError, ValueError, IndexError, TypeError):  # it takes no two rows, or no others: nothing is known
            return False
        if given is None or other is None or len(given) < 2:
            return False
        if not (given - other).abs().max() <= _MOST_AMPLIFIED * (given[0] - given[1]).abs().max():  # also where it overflows
            return True
    return False


def _first(outputs: Any) -> torch.Tensor | None:
    while isinstance(outputs, tuple | list) and outputs:
        outputs = outputs[0]
    outputs = next(iter(outputs.values()), None) if isinstance(outputs, dict) else outputs
    return outputs if isinstance(outputs, torch.Tensor) and outputs.is_floating_point() and outputs.ndim else None


@contextlib.contextmanager
def _measuring(norms: Sequence[Any]) -> Iterator[None]:
    """Only the batch-norms in training mode, with a momentum that takes the batch's statistics over as they are."""
    momenta = [norm.momentum for norm in norms]
    try:
        for norm in norms:
            norm.training, norm.momentum = True, 1.0
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.training, norm.momentum = False, momentum
