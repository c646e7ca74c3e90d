"""What every kernel shares: Triton where it is installed, the choice between program and reference, and the start of a program.

Triton decides when it is imported whether it compiles or interprets, by TRITON_INTERPRET, so that is what is asked here too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from ..errors import KernelError
from ._ahead import is_ahead

try:
    import triton
    import triton.language as tl
except ImportError:  # the references do without
    triton = None
    tl = None

__all__ = ["tl", "triton"]

INTERPRETED = triton is not None and bool(triton.knobs.runtime.interpret)
"""Whether programs run in Triton's interpreter, on tensors of any device."""

_OLDEST = (8, 0)  # bf16 in tensor cores, and what the programs are compiled for
_MOST_PROGRAMS = 2**31 - 1  # of CUDA's first grid dimension (CUDA C++ Programming Guide, "Technical Specifications")


def jit(function: Callable[..., Any]) -> Any:
    """`triton.jit` where Triton is installed; elsewhere the function, which nothing calls."""
    return function if triton is None else triton.jit(function)


def operator(name: str, reference: Callable[..., Any], empty: Callable[..., Any], start: Callable[..., None]) -> Any:
    """Registers `headrace::name`, which changes none of its arguments; the annotations of its reference are its schema.

    `empty(*arguments)` checks them and gives memory for the results, `start(results, *arguments)` starts the program on it.
    """

    def run(*arguments: Any) -> Any:
        results = empty(*arguments)
        memory = results if isinstance(results, tuple) else (results,)
        if runs_by_triton(*(item for item in (*arguments, *memory) if isinstance(item, torch.Tensor))):
            start(results, *arguments)
            return results
        found = reference(*arguments)
        return tuple(map(laid_out_as, found, memory)) if isinstance(results, tuple) else laid_out_as(found, results)

    schema = torch.library.infer_schema(reference, mutates_args=())
    defined = torch.library.custom_op(f"headrace::{name}", run, mutates_args=(), schema=schema)
    defined.register_fake(empty)
    return defined


def runs_by_triton(*tensors: torch.Tensor) -> bool:
    """Whether a program takes these tensors. float64, in which rewrites are proved, is computed by the references alone."""
    if triton is None or any(item.dtype == torch.float64 for item in tensors):
        return False
    if INTERPRETED:
        return True
    return torch.version.cuda is not None and all(
        item.is_cuda and torch.cuda.get_device_capability(item.device) >= _OLDEST for item in tensors
    )


def launch(
    program: Any, programs: int, device: torch.device, *arguments: Any, warps: int = 4, stages: int = 3, **constants: Any
) -> None:
    """Start so many programs on a tensor's own device, which need not be the current one, or compile them alone, where that is
    what `compile_ahead` is for. None is no error.

    Raises KernelError when there are more than a GPU numbers.
    """
    check(programs <= _MOST_PROGRAMS, f"{programs:,} programs are more than a GPU starts at once; split the batch")
    if programs == 0:
        return
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        if is_ahead():
            program.warmup(*arguments, grid=(programs,), num_warps=warps, num_stages=stages, **constants)
        else:
            program[(programs,)](*arguments, num_warps=warps, num_stages=stages, **constants)


def check(holds: bool, message: str) -> None:
    """Raises KernelError with the message unless it holds."""
    if not holds:
        raise KernelError(message)


def laid_out_as(value: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """The value if its elements lie in memory as those of `out`, which has no gaps, else a copy of which that is true."""
    return value if value.stride() == out.stride() else torch.empty_like(out, dtype=value.dtype).copy_(value)


def wide(value: torch.Tensor) -> torch.Tensor:
    """The value in the precision that references compute in: float64 as it is, all else as float32."""
    return value if value.dtype == torch.float64 else value.float()


def next_power_of_two(number: int) -> int:
    """The least power of two that is not below a number; 1 for 0."""
    return 1 << max(0, number - 1).bit_length()


def size_of(*tensors: torch.Tensor | None) -> int:
    """Bytes of the tensors' elements together."""
    return sum(item.numel() * item.element_size() for item in tensors if item is not None)
