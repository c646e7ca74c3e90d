"""What a preview does without, since it shows a model and not its numbers: random weights, whole files of them, gradients.

A large network is so made, trained for a step and saved in a fraction of the time. Models that were made so must never be
packaged or compared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map_only

_BLOCK = 1 << 16
_FILLING = ("normal_", "uniform_")
_LISTENING = ("register_hook", "register_post_accumulate_grad_hook", "retain_grad")
_PLAIN = (torch.Tensor, torch.nn.Parameter)


@contextmanager
def shortcuts() -> Iterator[None]:
    """Within it `Tensor.normal_` and `uniform_`, by which layers get their first weights, draw 65,536 numbers and repeat them;
    `torch.save` writes of a large tensor in a container its shape and first number; and `Tensor.backward` gives gradients of
    zeros, unless something of the script's listens to gradients."""
    listens: list[str] = []
    replaced: list[tuple[Any, str, Any]] = [(torch, "save", _thin(torch.save))]
    replaced += [(torch.Tensor, name, _repeating(getattr(torch.Tensor, name))) for name in _FILLING]
    replaced += [(torch.Tensor, name, _noting(getattr(torch.Tensor, name), listens)) for name in _LISTENING]
    replaced += [(torch.Tensor, "backward", _zeros(torch.Tensor.backward, listens))]
    # One process has nothing to average, and this one would wait for gradients that do not come.
    replaced += [(DistributedDataParallel, "forward", lambda model, *args, **named: model.module(*args, **named))]
    before = [vars(owner).get(name) for owner, name, _ in replaced]
    for owner, name, value in replaced:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name, _), value in zip(replaced, before, strict=True):
            delattr(owner, name) if value is None else setattr(owner, name, value)  # the base class has it


def _repeating(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(original)
    def fill(tensor: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
        refused = tensor.requires_grad and torch.is_grad_enabled()
        if type(tensor) not in _PLAIN or tensor.device.type != "cpu" or refused:
            return original(tensor, *args, **named)
        if tensor.numel() <= _BLOCK or not tensor.is_contiguous():
            return original(tensor, *args, **named)
        flat = tensor.detach().view(-1)
        first, rest = flat[:_BLOCK], flat[_BLOCK:]
        original(first, *args, **named)
        whole = len(rest) // _BLOCK * _BLOCK
        rest[:whole].view(-1, _BLOCK).copy_(first)
        rest[whole:].copy_(first[: len(rest) - whole])
        return tensor

    return fill


def _thin(original: Callable[..., None]) -> Callable[..., None]:
    def one_number(value: torch.Tensor) -> torch.Tensor:
        if type(value) not in _PLAIN or value.layout != torch.strided or value.numel() <= _BLOCK or value.is_quantized:
            return value
        return value.detach().flatten()[:1].clone().expand(value.shape)

    @functools.wraps(original)
    def save(value: Any, *args: Any, **named: Any) -> None:
        original(tree_map_only(torch.Tensor, one_number, value), *args, **named)

    return save


def _noting(original: Callable[..., Any], listens: list[str]) -> Callable[..., Any]:
    @functools.wraps(original)
    def listen(tensor: torch.Tensor, *args: Any, **named: Any) -> Any:
        listens.append(original.__name__)
        return original(tensor, *args, **named)

    return listen


def _zeros(original: Callable[..., None], listens: list[str]) -> Callable[..., None]:
    @functools.wraps(original)
    def backward(loss: torch.Tensor, *args: Any, **named: Any) -> None:
        leaves = _leaves(loss) if not (listens or args or named) else None
        if leaves is None:
            return original(loss, *args, **named)
        for leaf in leaves:
            if leaf.grad is None:
                leaf.grad = torch.zeros_like(leaf)
        return None

    return backward


def _leaves(loss: torch.Tensor) -> list[torch.Tensor] | None:
    """What `backward` would give gradients; None where it would be refused, or code of Python's runs in it."""
    if loss.grad_fn is None or loss.numel() != 1:
        return None
    found, waiting, known = [], [loss.grad_fn], {loss.grad_fn}
    while waiting:
        node: Any = waiting.pop()
        if isinstance(node, BackwardCFunction):  # one written in Python, or a hook
            return None
        if hasattr(node, "variable"):
            found.append(node.variable)
        for following, _ in node.next_functions:
            if following is not None and following not in known:
                known.add(following)
                waiting.append(following)
    return found
