"""A foreign model's config: refused where it asks for what is not done here, completed from the graph, held against it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ....errors import ArtifactError
from ....runtime.artifact.formats import Declared, GraphTensor, OpenedGraph
from ....runtime.artifact.model_config import FILE, MOST_ROWS, ConfigTensor, ModelConfig, parse_config_json

# What Triton sets (--backend-config default-max-batch-size) where a config is silent and every tensor's first size varies.
_DEFAULT_BATCH = 4
_MOST_DIMENSIONS, _LARGEST_SIZE = 32, 1 << 40


def check_supported(config: ModelConfig, *, name: str) -> None:
    """Raise ArtifactError, naming all of it, for what a config asks for and this server does not do."""
    message = config.message
    wrong = [
        f"{field}: {why}"
        for field, there, why in (
            ("sequence_batching", "sequence_batching" in message, "no state is kept between requests; serve it with Triton"),
            (
                "model_transaction_policy",
                message.get("model_transaction_policy", {}).get("decoupled"),
                "a request has one answer here; serve it with Triton",
            ),
            (
                "model_operations",
                message.get("model_operations", {}).get("op_library_filename"),
                "a library of operators is native code, which is not loaded; export the model with standard operators",
            ),
            ("batch_input", message.get("batch_input"), "ragged batches are not formed; serve it with Triton"),
            ("batch_output", message.get("batch_output"), "ragged batches are not formed; serve it with Triton"),
        )
        if there
    ]
    for tensor in (*message.get("input", ()), *message.get("output", ())):
        wrong += [
            f"'{tensor['name'][:100]}': {field} is not done here; take it out, or serve the model with Triton"
            for field in ("allow_ragged_batch", "is_shape_tensor", "is_non_linear_format_io", "optional")
            if tensor.get(field)
        ]
    if config.name not in ("", name):
        wrong.append(f"the name is {config.name[:100]!r}, the folder is {name!r}")
    if config.max_batch_size > MOST_ROWS:
        wrong.append(f"max_batch_size: at most {MOST_ROWS:,} rows go into a batch here, got {config.max_batch_size:,}")
    for side in (config.inputs, config.outputs):
        wrong += [f"'{tensor.name[:100]}' {fault}" for tensor in side if (fault := _fault(tensor))]
        if len({tensor.name for tensor in side}) != len(side):
            wrong.append("a tensor is declared twice")
    if wrong:
        raise ArtifactError(f"{FILE} of '{name}':\n" + "\n".join(f"  {point}" for point in wrong))


def declared_tensors(config: ModelConfig) -> Declared:
    """Inputs and outputs as the graph is to have them, by a config that must say so."""
    inputs, outputs = (
        tuple(GraphTensor(name=tensor.name, datatype=tensor.datatype, shape=whole(config, tensor.shape)) for tensor in side)
        for side in (config.inputs, config.outputs)
    )
    return inputs, outputs


def whole(config: ModelConfig, row: Sequence[int]) -> tuple[int, ...]:
    """The shape with the batch, where the model takes batches."""
    return (-1, *row) if config.max_batch_size else tuple(row)


def completed(config: ModelConfig, graph: OpenedGraph, *, name: str, backend: str) -> ModelConfig:
    """The config with what it leaves out taken from the graph, as Triton completes it. Raises ArtifactError listing all points
    in which the two contradict each other."""
    message = {**config.message, "name": name, "backend": backend}
    everything = (*graph.inputs, *graph.outputs)
    silent = not config.inputs and not config.outputs and not config.max_batch_size
    if silent and all(tensor.shape is not None and tensor.shape[:1] == (-1,) for tensor in everything):
        message["max_batch_size"] = _DEFAULT_BATCH
        message.setdefault("dynamic_batching", {})
    batches = message.get("max_batch_size", 0) > 0
    for side, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        known = {tensor.name: tensor for tensor in tensors}
        given = [dict(entry) for entry in message.get(side, ())] or [{"name": tensor.name} for tensor in tensors]
        for entry in given:
            if (tensor := known.get(entry["name"])) is not None:
                _fill(entry, tensor, side, batches=batches)
        message[side] = given
    full = parse_config_json(json.dumps(message), where=f"{FILE} of '{name}'")
    if wrong := [*_differences(full, graph)]:
        raise ArtifactError(f"{FILE} does not fit the model '{name}':\n" + "\n".join(f"  {point}" for point in wrong))
    return full


def _fill(entry: dict[str, Any], tensor: GraphTensor, side: str, *, batches: bool) -> None:
    if entry.get("data_type", "TYPE_INVALID") == "TYPE_INVALID":
        entry["data_type"] = f"TYPE_{'STRING' if tensor.datatype == 'BYTES' else tensor.datatype}"
    if entry.get("dims"):
        return
    if tensor.shape is None:
        if side == "output":
            entry["dims"] = [-1]
        return
    row = tensor.shape[1:] if batches else tensor.shape
    entry["dims"] = list(row) or [1]
    if not row:
        entry["reshape"] = {"shape": []}


def _differences(config: ModelConfig, graph: OpenedGraph) -> Iterator[str]:
    for side, declared, tensors in (("input", config.inputs, graph.inputs), ("output", config.outputs, graph.outputs)):
        known, named = {tensor.name: tensor for tensor in tensors}, {tensor.name for tensor in declared}
        if side == "input":
            yield from (f"input '{name}' is not declared" for name in known if name not in named)
        if not declared:
            yield f"the model has no {side}"
        for tensor in declared:
            actual = known.get(tensor.name)
            if actual is None:
                yield f"{side} '{tensor.name[:100]}' does not exist; the model has {', '.join(known)}"
            elif fault := _fault(tensor):
                yield f"{side} '{tensor.name}' {fault}"
            elif tensor.datatype != actual.datatype:
                yield f"{side} '{tensor.name}' is declared TYPE_{tensor.datatype}, the model's is TYPE_{actual.datatype}"
            elif not tensor.dims:
                yield f"{side} '{tensor.name}' needs dims, of which the model says nothing"
            elif actual.shape is not None and graph.described:
                yield from _sizes(side, tensor.name, whole(config, tensor.shape), actual.shape, bool(config.max_batch_size))


def _sizes(side: str, name: str, wanted: Sequence[int], actual: Sequence[int], batches: bool) -> Iterator[str]:
    fits = len(wanted) == len(actual) and all(-1 in pair or pair[0] == pair[1] for pair in zip(wanted, actual, strict=True))
    if not fits:
        yield f"{side} '{name}' is declared {list(wanted)}, the model's is {list(actual)}"
    elif batches and actual[0] != -1:
        yield (
            f"{side} '{name}' has {actual[0]} rows in the model, always; set max_batch_size to 0 and give the whole dims, or "
            "export the model with a batch that varies"
        )


def _fault(tensor: ConfigTensor) -> str:
    """What is wrong with the sizes that a config gives a tensor."""
    sizes = (*tensor.dims, *tensor.shape)
    if len(sizes) > 2 * _MOST_DIMENSIONS or any(size != -1 and not 0 < size <= _LARGEST_SIZE for size in sizes):
        return f"has dims {list(tensor.dims)[:8]}; each must be -1 or from 1 to {_LARGEST_SIZE:,}"
    if tensor.dims == tensor.shape:
        return ""
    if tensor.dims.count(-1) > 1 or tensor.dims.count(-1) != tensor.shape.count(-1):
        return "is reshaped with sizes that vary, of which there must be one on each side, or none"
    if -1 not in tensor.dims and math.prod(tensor.dims) != math.prod(tensor.shape):
        return f"is reshaped from {list(tensor.dims)} to {list(tensor.shape)}, which hold different numbers of elements"
    return ""


def instance_count(message: Mapping[str, Any]) -> int:
    """The sessions side by side that a config asks for."""
    return sum(max(1, int(group.get("count", 1))) for group in message.get("instance_group", ())) or 1
