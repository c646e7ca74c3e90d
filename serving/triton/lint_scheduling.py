"""Instances, batching, queue policy, warm-up and the backend's parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .finding import Finding, error, warning
from .subject import ModelFolder, Repository, datatype_name

_GPU, _CPU = 1, 2  # ModelInstanceGroup.Kind
_INTEGERS = ("intra_op_thread_count", "inter_op_thread_count", "execution_mode")
_CPU_ACCELERATORS, _GPU_ACCELERATORS = ("openvino",), ("tensorrt", "cuda")


def check(model: ModelFolder, repository: Repository) -> Iterator[Finding]:
    """Triton's ValidateBatching, ValidateInstanceGroup and warm-up, and the settings of onnxruntime_backend."""
    yield from _instances(model, repository.gpus)
    yield from _batching(model)
    yield from _warmup(model)
    yield from _accelerators(model)
    if model.backend == "onnxruntime":
        for name in _INTEGERS:
            given = model.config.parameters[name].string_value if name in model.config.parameters else "0"
            if not given.removeprefix("-").isdecimal():
                yield error("TR018", f"parameters[{name}]", f"{given!r} is no whole number")


def _instances(model: ModelFolder, gpus: int) -> Iterator[Finding]:
    groups = model.config.instance_group
    if groups and model.is_ensemble:
        yield error("TR013", "instance_group", "an ensemble has no instances of its own; give them to its steps")
        return
    for index, group in enumerate(groups):
        where = f"instance_group[{index}]"
        if group.count < 0:
            yield warning("TR013", where, f"count {group.count} is taken for the default; give 1 or more")
        if group.kind == _CPU and group.gpus:
            yield error("TR013", where, "KIND_CPU has no gpus; take them out, or write KIND_GPU")
        elif group.kind == _GPU and not gpus:
            yield error(
                "TR013",
                where,
                "KIND_GPU, and there is no GPU here; write KIND_AUTO or KIND_CPU, or check for the machine "
                "that will serve with --gpus N",
            )
        elif absent := [gpu for gpu in group.gpus if not 0 <= gpu < gpus]:
            yield error("TR013", where, f"there is no GPU {absent[0]}; the machine has {gpus}")


def _batching(model: ModelFolder) -> Iterator[Finding]:
    config = model.config
    kind = config.WhichOneof("scheduling_choice")
    if model.is_ensemble and kind != "ensemble_scheduling":
        return  # another check's finding
    if kind == "sequence_batching":
        yield warning("TR014", kind, "the embedded server keeps no sequences, and an image classifier needs none")
    if kind != "dynamic_batching":
        return
    batching = config.dynamic_batching
    for size in batching.preferred_batch_size:
        if not 1 <= size <= config.max_batch_size:
            yield error("TR014", "preferred_batch_size", f"{size} is not from 1 to max_batch_size, {config.max_batch_size}")
    levels, default = batching.priority_levels, batching.default_priority_level
    if levels and not 1 <= default <= levels:
        yield error("TR014", "default_priority_level", f"it is {default}; with priority_levels {levels} give 1 to {levels}")
    for level in batching.priority_queue_policy:
        if not 1 <= level <= levels:
            yield error("TR014", "priority_queue_policy", f"there is no level {level}; priority_levels is {levels}")


def _warmup(model: ModelFolder) -> Iterator[Finding]:
    config = model.config
    declared = {tensor.name: tensor for tensor in config.input}
    for index, sample in enumerate(config.model_warmup):
        where = f"model_warmup[{index}]"
        if model.is_ensemble:
            yield warning("TR016", where, "an ensemble is not warmed up; warm its steps up")
            return
        if sample.batch_size > max(1, config.max_batch_size):
            yield error(
                "TR016",
                where,
                f"{sample.batch_size} rows are more than max_batch_size, {config.max_batch_size}; Triton 2.51 may crash",
            )
        if absent := [tensor for tensor in declared if tensor not in sample.inputs and not declared[tensor].optional]:
            yield error("TR016", where, f"input {absent[0]!r} is missing")
        for tensor, source in sample.inputs.items():
            yield from _warmup_input(model, f"{where}.inputs[{tensor}]", declared.get(tensor), source)


def _warmup_input(model: ModelFolder, where: str, declared: Any, source: Any) -> Iterator[Finding]:
    if declared is None:
        yield error("TR016", where, "the model has no such input")
        return
    if source.data_type != declared.data_type:
        kinds = (datatype_name(source.data_type), datatype_name(declared.data_type))
        yield error("TR016", where, f"it is {kinds[0]}, the input is {kinds[1]}")
    sizes, wanted = list(source.dims), list(declared.dims)
    if len(sizes) != len(wanted) or any(one not in (two, -1) and two != -1 for one, two in zip(sizes, wanted, strict=True)):
        yield error("TR016", where, f"dims {sizes} do not fit the input's {wanted}")
    kind = source.WhichOneof("input_data_type")
    if kind is None:
        yield error("TR016", where, "give zero_data, random_data or input_data_file")
    elif kind == "input_data_file" and not (model.folder / "warmup" / source.input_data_file).is_file():
        yield error("TR016", where, f"there is no warmup/{source.input_data_file} in the model's folder")


def _accelerators(model: ModelFolder) -> Iterator[Finding]:
    if model.backend != "onnxruntime":
        return
    accelerators = model.config.optimization.execution_accelerators
    for kind, given, known in (
        ("cpu", accelerators.cpu_execution_accelerator, _CPU_ACCELERATORS),
        ("gpu", accelerators.gpu_execution_accelerator, _GPU_ACCELERATORS),
    ):
        for accelerator in given:
            if accelerator.name not in known:
                yield error(
                    "TR017",
                    f"{kind}_execution_accelerator",
                    f"{accelerator.name!r} is none of onnxruntime's; it has {', '.join(known)}",
                )
    if accelerators.gpu_execution_accelerator and all(group.kind == _CPU for group in model.config.instance_group):
        yield warning("TR017", "gpu_execution_accelerator", "it is passed over, for all instances are on CPUs")
