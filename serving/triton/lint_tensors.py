"""Inputs and outputs as a configuration declares them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any

from .finding import Finding, error, warning
from .subject import ModelFolder, Repository


def check(model: ModelFolder, repository: Repository) -> Iterator[Finding]:
    """Triton's ValidateModelInput, ValidateModelOutput and ValidateIOShape, in core's model_config_utils.cc."""
    config = model.config
    if config.max_batch_size < 0:
        yield error("TR007", "max_batch_size", f"it is {config.max_batch_size}; give 1 or more")
    if config.max_batch_size == 0:
        yield warning(
            "TR007",
            "max_batch_size",
            "it is 0: dims hold the batch, and the embedded server does not serve that; give 1 or more",
        )
    for side, tensors in (("input", config.input), ("output", config.output)):
        if not tensors:
            yield error("TR010", side, f"no {side} is declared; Triton would have to guess")
        for repeated, count in Counter(tensor.name for tensor in tensors).items():
            if repeated and count > 1:
                report = error if side == "input" else warning  # which of the outputs counts, Triton does not say
                yield report("TR010", side, f"{repeated!r} is declared {count} times; declare it once")
        for index, tensor in enumerate(tensors):
            yield from _tensor(f"{side}[{index}]", tensor, batches=config.max_batch_size > 0)


def _tensor(where: str, tensor: Any, *, batches: bool) -> Iterator[Finding]:
    if not tensor.name:
        yield error("TR010", where, "it has no name")
    if not tensor.data_type:
        yield error("TR009", f"{where}.data_type", f"{tensor.name!r} has none; write TYPE_FP32 or another")
    if not tensor.dims:
        yield error("TR008", f"{where}.dims", "there are none; one number per row is dims: 1 with reshape { }")
    if wrong := [size for size in tensor.dims if size < 1 and size != -1]:
        yield error("TR008", f"{where}.dims", f"{wrong[0]} is no size; a size is 1 or more, or -1 where it varies")
    if not tensor.HasField("reshape"):
        return
    shape = tensor.reshape.shape
    if not shape and not batches:
        yield error("TR008", f"{where}.reshape", "a model without batches cannot have scalars; give the shape a size")
    if wrong := [size for size in shape if size < 1 and size != -1]:
        yield error("TR008", f"{where}.reshape", f"{wrong[0]} is no size; a size is 1 or more, or -1 where it varies")
    elif -1 not in [*tensor.dims, *shape] and prod(tensor.dims) != prod(shape):
        yield error("TR008", f"{where}.reshape", f"{list(shape)} holds not as many elements as dims {list(tensor.dims)} do")
