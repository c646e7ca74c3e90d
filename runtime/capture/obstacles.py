"""What stands between a module and its graph, found all at once, each at the user's own file and line.

PG100  the module fails when run as it is
PG101  an input is no tensor, has no batch dimension, or has a dtype that graphs do not take
PG102  a parameter is on another device than the inputs
PG103  an output is not a tensor
PG104  an output has no batch dimension
PG105  the shape of an output depends on values
PG106  the forward pass writes to a buffer, a parameter or an attribute
PG107  the rows of a batch influence each other
PG108  a submodule is compiled TorchScript
PG109  the forward pass is random, or counts its calls
PG110  a parameter or buffer holds NaN or infinity
PG111  the graph and the module compute different values
PG112  weights are quantized already, sparse, nested, or made in inference mode
PG120  Python needs a tensor's value
PG121  the code fixes the batch size
PG122  an operation cannot be captured
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ...errors import Obstacle
from . import source_locations

_SPECIALISED = (
    "the batch size is fixed here{how}; keep it as the tensor gives it: "
    "x.shape[0] or -1 in view and reshape, no int() or len(), no =="
)
_VALUE = (
    "Python needs a tensor's value here; keep it a tensor (no if, int(), float(), .item(), .tolist()): "
    "use torch.where, or compute both branches"
)

_WANTS_GPU = re.compile(r"compiled with CUDA|CUDA GPUs are available|torch\.cuda\.\w+Tensor|NVIDIA driver")
_NO_GPU = "; there is no GPU here: write .to(x.device), of the module's input x, in place of .cuda()"
_ROUNDED = re.compile(r"\bint\(.*\.(shape\[0\]|size\(0\)).*/(?!/)")


def in_arguments(module: Any, inputs: Any, dtypes: Mapping[torch.dtype, str]) -> list[Obstacle]:
    """What is wrong with what `capture` was called with, before anything is run."""
    found = []
    if not isinstance(module, nn.Module):
        message = f"a {type(module).__name__} is no nn.Module; wrap it in one, or write a headrace.Graph whose build calls it"
        found.append(Obstacle("PG100", message))
    if not isinstance(inputs, tuple):
        remedy = "pass its tensors in the order of forward's parameters; a headrace.Graph's build can put them together again"
        return [*found, Obstacle("PG101", f"the inputs are a {type(inputs).__name__}; {remedy}")]
    if not inputs:
        return [*found, Obstacle("PG101", "at least one example input is needed")]
    for index, value in enumerate(inputs):
        what = _wrong_with(value, inputs[0], dtypes)
        if what:
            found.append(Obstacle("PG101", f"input {index} {what}"))
        elif value.device != inputs[0].device:
            message = f"input {index} is on {value.device}, input 0 on {inputs[0].device}; move one with .to()"
            found.append(Obstacle("PG102", message))
    return found


def _wrong_with(value: Any, first: Any, dtypes: Mapping[torch.dtype, str]) -> str:
    if not isinstance(value, torch.Tensor):
        return f"is a {type(value).__name__}; pass tensors of shape [batch, ...]"
    if value.is_nested or value.layout != torch.strided:
        return f"is a {'nested' if value.is_nested else _short(value.layout)} tensor; make it dense with .to_dense() or padding"
    if value.ndim < 1 or 0 in value.shape:
        return f"has shape {tuple(value.shape)}; it needs a batch dimension and no empty ones"
    if value.dtype not in dtypes:
        return f"is {_short(value.dtype)}; use float32 (the plan chooses lower precisions itself)"
    if isinstance(first, torch.Tensor) and not first.is_nested and first.ndim and value.shape[0] != first.shape[0]:
        return f"has {value.shape[0]} rows, input 0 has {first.shape[0]}"
    return ""


def in_module(module: nn.Module, device: torch.device) -> list[Obstacle]:
    """What the module's parts show without being run: weights that are elsewhere, not finite or not plain numbers."""
    found = []
    scripted: tuple[str, ...] = ()  # what is in one is not told again
    for name, item in module.named_modules():
        if name.startswith(scripted):
            continue
        if isinstance(item, torch.jit.ScriptModule):
            scripted = (*scripted, f"{name}." if name else "")
            remedy = "build it as an ordinary nn.Module instead (PS805 of headrace migrate does)"
            message = f"{name or 'the module'} is compiled TorchScript; {remedy}"
            found.append(Obstacle("PG108", message))
        elif any(isinstance(value, torch.ScriptObject) for value in vars(item).values()):
            title = name.removesuffix("._packed_params") or "the module"
            found.append(Obstacle("PG112", f"{title} is quantized already; give the float model, the plan quantizes it itself"))
    for name, value, exact in _weights(module):
        if torch.nn.parameter.is_lazy(value):
            found.append(Obstacle("PG100", f"{name} has no shape yet; run the module once before it is captured"))
        elif value.device != device:
            message = f"{name} is on {value.device}, the inputs on {device}; move one with .to()"
            found.append(Obstacle("PG102", message))
        elif isinstance(value, nn.Parameter) and value.is_inference():  # torch.export cannot use it
            message = (
                f"{name} was made in inference mode; make the model outside of torch.inference_mode(), or copy its weights"
            )
            found.append(Obstacle("PG112", message))
        elif value.is_nested or value.is_quantized or value.layout != torch.strided:
            kind = "nested" if value.is_nested else "quantized" if value.is_quantized else _short(value.layout)
            found.append(Obstacle("PG112", f"{name} is {kind}; store it dense, with .to_dense() or .dequantize()"))
        elif value.is_floating_point() and not _is_sound(value, exact):
            found.append(Obstacle("PG110", f"{name} holds NaN or infinity; load weights that are finite"))
    return found


def _weights(module: nn.Module) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """Every parameter and buffer by name, and whether it must be finite: a buffer may be an attention mask of -inf."""
    for name, value in module.named_parameters():
        yield name, value, True
    for prefix, item in module.named_modules():
        for name, value in item.named_buffers(prefix, recurse=False):
            yield name, value, isinstance(item, nn.modules.batchnorm._NormBase)


def _is_sound(value: torch.Tensor, finite: bool) -> bool:
    numbers = value.detach() if value.element_size() > 1 else value.detach().float()  # torch cannot ask this of float8
    return bool(torch.isfinite(numbers).all()) if finite else not bool(torch.isnan(numbers).any())


def made_in_forward(module: nn.Module, before: Mapping[str, torch.Tensor]) -> list[Obstacle]:
    """Parameters that came to be, or were written to, since `before` (copies by name) was made: the module has just run."""
    found = []
    for name, value in module.named_parameters():
        if name not in before:
            message = f"{name} is made during the forward pass; run the module once before it is captured"
            found.append(Obstacle("PG100", message, *source_locations.of_forward(module)))
        elif value.shape != before[name].shape or not torch.equal(value.detach(), before[name]):
            found.append(writes(name, *source_locations.of_forward(module)))
    return found


def writes(name: str, path: str = "", line: int = 0) -> Obstacle:
    """The forward pass writes to something that outlives it."""
    return Obstacle("PG106", f"the forward pass writes to {name}; a graph keeps no state between calls", path, line)


def stray(where: str, value: object, module: nn.Module) -> Obstacle:
    """A value in the outputs that is no tensor."""
    message = f"{where} is a {type(value).__name__}, not a tensor; return tensors only"
    return Obstacle("PG103", message, *source_locations.of_forward(module))


def in_outputs(
    leaves: Sequence[torch.Tensor], names: Sequence[str], batch: int, dtypes: Collection[torch.dtype], module: nn.Module
) -> list[Obstacle]:
    """What is wrong with the tensors that the module returned for `batch` rows."""
    place = source_locations.of_forward(module)
    if not leaves:
        return [Obstacle("PG103", "the module returns no tensor; return at least one", *place)]
    found = []
    for value, name in zip(leaves, names, strict=True):
        if value.is_nested or value.layout != torch.strided:
            message = f"output {name} is a {'nested' if value.is_nested else _short(value.layout)} tensor; return it dense"
            found.append(Obstacle("PG103", message, *place))
        elif value.ndim < 1 or value.shape[0] != batch or 0 in value.shape:
            message = f"output {name} has shape {tuple(value.shape)} for {batch} rows; the first dimension must be the batch"
            found.append(Obstacle("PG104", message, *place))
        elif value.dtype not in dtypes:
            found.append(Obstacle("PG104", f"output {name} is {_short(value.dtype)}; return it as float32", *place))
    return found


def fixed_batch(how: str, path: str, line: int) -> Obstacle:
    """A line that fixes the batch size; `how` says by what, in brackets, or is empty."""
    mended = "; headrace migrate rewrites this line (PS801)" if _ROUNDED.search(linecache.getline(path, line)) else ""
    return Obstacle("PG121", _SPECIALISED.format(how=how) + mended, path, line)


def value_needed(path: str, line: int) -> Obstacle:
    """A line where Python needs a tensor's value."""
    return Obstacle("PG120", _VALUE, path, line)


def from_exception(error: BaseException, *, code: str, prefix: str = "", module: nn.Module | None = None) -> Obstacle:
    """The exception as an obstacle at the innermost line that is the user's own, or else where the module's forward begins."""
    path, line = source_locations.of_trace(error.__traceback__)
    if not path and module is not None:
        path, line = source_locations.of_forward(module)
    if code == "PG120":
        return value_needed(path, line)
    if code == "PG121":
        return fixed_batch("", path, line)
    lines = [text for text in str(error).splitlines() if text.strip()]
    remedy = _NO_GPU if _WANTS_GPU.search(str(error)) else ""
    return Obstacle(code, f"{prefix}{type(error).__name__}: {lines[0] if lines else 'no message'}{remedy}", path, line)


def _short(value: object) -> str:
    return str(value).removeprefix("torch.")
