"""What a graph is called with: dense tensors with equally many rows, on one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...errors import InputError


def check_tensors(inputs: Sequence[Any], names: Sequence[str] = (), *, batched: bool = True) -> None:
    """Raise InputError unless a graph can take these; what this graph takes is checked against its signature.

    `names` are the inputs', where they are known. With `batched`, all must have equally many rows, at least one: a training
    step may take a number or two sizes.
    """
    called = names or [f"input {index}" for index in range(len(inputs))]
    for name, value in zip(called, inputs, strict=True):
        if not isinstance(value, torch.Tensor):
            remedy = "torch.as_tensor makes one of an array; a headrace.Graph's build puts tensors together to a dict or list"
            raise InputError(f"a graph takes tensors, got a {type(value).__name__} as {name}; {remedy}")
        if value.is_nested or value.layout != torch.strided or value.is_quantized:
            kind = "nested" if value.is_nested else "quantized" if value.is_quantized else str(value.layout)
            raise InputError(f"{name} is {kind}; make it dense, with .to_dense(), .dequantize() or padding")
        if value.device != inputs[0].device:
            raise InputError(f"{name} is on {value.device}, {called[0]} on {inputs[0].device}; move one with .to()")
        if value.is_meta:
            raise InputError(f"{name} is on the meta device and holds no values; make it on the CPU or a GPU")
        if value.ndim and not value.shape[0]:
            raise InputError(f"{name} has no rows (shape {tuple(value.shape)}); give at least one")
        if batched and not value.ndim:
            raise InputError(f"{name} is a number; its first dimension must be the batch: value[None]")
        if batched and value.shape[0] != inputs[0].shape[0]:
            raise InputError(f"{name} has {value.shape[0]} rows, {called[0]} has {inputs[0].shape[0]}; give equally many")
