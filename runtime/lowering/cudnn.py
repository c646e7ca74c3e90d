"""cuDNN's convolutions with the ReLU, and the sum before it, in their epilogue, as torch has them: operators for CUDA alone.

A program that names them opens wherever torch is. On other devices they raise NotImplementedError when they are called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

WITH_RELU = torch.ops.aten.cudnn_convolution_relu.default
WITH_SUM_AND_RELU = torch.ops.aten.cudnn_convolution_add_relu.default
OPERATORS = (WITH_RELU, WITH_SUM_AND_RELU)
NAMES = ("cudnn_convolution_relu", "cudnn_convolution_add_relu")

_conv2d = torch.ops.aten.conv2d.default


def convolved(x: Any, weight: Any, bias: Any, residual: Any = None, **numbers: Any) -> tuple[Any]:
    """The ReLU of a convolution, plus `residual` where there is one; of tensors or of proxies for nodes."""
    geometry = tuple(numbers[name] for name in ("stride", "padding", "dilation", "groups"))
    if residual is None:
        return (WITH_RELU(x, weight, bias, *geometry),)
    return (WITH_SUM_AND_RELU(x, weight, residual, 1.0, bias, *geometry),)


def _relu_shape(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *geometry: Any) -> torch.Tensor:
    return _conv2d(x, weight, None, *geometry)


def _sum_shape(
    x: torch.Tensor, weight: torch.Tensor, z: torch.Tensor, alpha: float | None, bias: torch.Tensor | None, *geometry: Any
) -> torch.Tensor:
    return _conv2d(x, weight, None, *geometry)


def _describe(operators: Sequence[Any]) -> None:
    """Tell torch the shape of what they give, which it does not know of itself and which an edited program keeps."""
    for operator, shape in zip(operators, (_relu_shape, _sum_shape), strict=True):
        if not torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "Meta"):
            torch.library.register_fake(operator.name(), shape)


_describe(OPERATORS)
