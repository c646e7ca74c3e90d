"""What a graph is called with: dense tensors with equally many rows, on one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import InputError


def check_tensors(inputs: Sequence[Any], *, batched: bool = True) -> None:
    """Raise InputError unless a graph can take these; what this graph takes is checked against its signature.

    With `batched`, all must have equally many rows, at least one: a training step may take a number or two sizes.
    """
    for index, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            remedy = "torch.as_tensor makes one of an array; a penstock.Graph's build puts tensors together to a dict or list"
            raise InputError(f"a graph takes tensors, got a {type(value).__name__} as input {index}; {remedy}")
        if value.is_nested or value.layout != torch.strided or value.is_quantized:
            kind = "nested" if value.is_nested else "quantised" if value.is_quantized else str(value.layout)
            raise InputError(f"input {index} is {kind}; make it dense, with .to_dense(), .dequantize() or padding")
        if value.device != inputs[0].device:
            raise InputError(f"input {index} is on {value.device}, input 0 on {inputs[0].device}; move one with .to()")
        if value.is_meta:
            raise InputError(f"input {index} is on the meta device and holds no values; make it on the CPU or a GPU")
        if value.ndim and not value.shape[0]:
            raise InputError(f"input {index} has no rows (shape {tuple(value.shape)}); give at least one")
        if batched and not value.ndim:
            raise InputError(f"input {index} is a number; its first dimension must be the batch: value[None]")
        if batched and value.shape[0] != inputs[0].shape[0]:
            raise InputError(f"input {index} has {value.shape[0]} rows, input 0 has {inputs[0].shape[0]}; give equally many")
